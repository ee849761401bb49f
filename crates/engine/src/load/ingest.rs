//! Ingest: standalone tables, built elsewhere, become tables of the database. Every byte of a file
//! is verified before an entry of it is believed, then the entries take the one road into new files
//! with our ids, our settings and one sequence number: nothing of the foreign file's identity comes
//! in.

use super::publish::{LoadedTables, publish_tables};
use super::{LoadGuard, LoadPace};
use crate::core::EngineCore;
use crate::family::FamilyState;
use crate::jobs::flush::{discard_outputs, rewrite_setting};
use perigee_base::{Error, Result, RunId, SeqNo};
use perigee_env::DirOpenMode;
use perigee_file::klog::standalone;
use perigee_file::{KlogReader, RangeTombstones};
use perigee_tree::mvcc::SnapshotStripes;
use perigee_tree::rewrite::{CreatedFiles, RewriteContext, RewriteInput, run_rewrite};
use perigee_tree::scan::{MergeCursor, RunCursor, SourceCursor};
use perigee_tree::{Run, Table, TableMeta, Version};
use std::cmp::Ordering::Less;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files for one family, in key order.
pub type IngestFiles = (Arc<FamilyState>, Vec<PathBuf>);

/// Ingests all files, of all families, at one sequence number; the number, the entries and the
/// bytes of keys and values.
///
/// # Errors
/// `InvalidArgument` for files that overlap, do not fit the family, or hold range tombstones;
/// `Corruption` naming file and place; as `publish`. Nothing of it is there then.
pub fn ingest_files(core: &Arc<EngineCore>, files: &[IngestFiles]) -> Result<(SeqNo, u64, u64)> {
    let _working = LoadGuard::start(core)?;
    let mut created = CreatedFiles::default();
    let done = build_tables(core, files, &mut created).and_then(|parts| {
        let entries = parts.iter().flat_map(|p| &p.tables).map(|t| t.summary.entries).sum();
        let bytes = |t: &TableMeta| t.summary.raw_key_bytes + t.summary.raw_value_bytes;
        let bytes = parts.iter().flat_map(|p| &p.tables).map(bytes).sum();
        let seq = if parts.is_empty() { core.visible_seq() } else { publish_tables(core, &parts)? };
        Ok((seq, entries, bytes))
    });
    done.inspect_err(|_| discard_outputs(core, &created))
}

fn build_tables(
    core: &Arc<EngineCore>,
    files: &[IngestFiles],
    created: &mut CreatedFiles,
) -> Result<Vec<LoadedTables>> {
    let mut parts: Vec<LoadedTables> = Vec::new();
    // Everything is looked at before anything is written.
    let mut opened = Vec::new();
    for (family, paths) in files {
        family.check_not_dropped()?;
        if opened.iter().any(|(f, _): &(Arc<FamilyState>, _)| f.id == family.id) {
            let text = format!(
                "the family {:?} is named twice: give all its files at once",
                family.name()
            );
            return Err(Error::invalid(text));
        }
        let readers =
            paths.iter().map(|path| open_table_file(core, path)).collect::<Result<Vec<_>>>()?;
        check_key_order(family, &readers)?;
        opened.push((Arc::clone(family), readers));
    }
    for (_, readers) in &opened {
        readers.iter().try_for_each(|r| r.verify_without_checksum(&mut |_| {}))?;
    }
    for (family, readers) in opened.into_iter().filter(|(_, readers)| !readers.is_empty()) {
        parts.push(rewrite_tables(core, family, readers, created)?);
    }
    Ok(parts)
}

fn open_table_file(core: &EngineCore, path: &Path) -> Result<Arc<KlogReader>> {
    let shown = path.display();
    let name = path.file_name().and_then(|n| n.to_str());
    let name = name.ok_or_else(|| Error::invalid(format!("{shown} names no file")))?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = core.env.fs.open_dir(parent, DirOpenMode::Existing)?;
    let reader = standalone::open(&*dir, name)?;
    let s = reader.summary();
    // The rewrite below takes entries only: what the ranges hide would come back.
    if s.ranges.is_some() {
        return Err(Error::invalid(format!(
            "{name} holds range tombstones, which ingest does not take: build it without them, and call delete_range first"
        )));
    }
    if reader.operand_count() > 0 {
        return Err(Error::invalid(format!(
            "{name} holds operands of merges, which ingest does not take: build it of values"
        )));
    }
    if s.largest_seq != SeqNo::ZERO || !s.vlogs.is_empty() {
        return Err(Error::corruption(
            "a standalone table numbers entries, or references value logs",
        )
        .in_file(name));
    }
    Ok(Arc::new(reader))
}

/// The family's order, keys ascending from file to file.
fn check_key_order(family: &FamilyState, readers: &[Arc<KlogReader>]) -> Result<()> {
    let order = family.tree.comparator();
    if let Some(other) = readers.iter().find(|r| r.comparator() != order) {
        return Err(Error::invalid(format!(
            "{} is sorted in another order than the family {:?}: build it again with the family's options",
            other.name(),
            family.name()
        ))
        .expected(order.name(), other.comparator().name()));
    }
    for pair in readers.windows(2) {
        let (a, b) = (pair[0].summary(), pair[1].summary());
        if order.cmp(&a.last_key, &b.first_key) == Less {
            continue;
        }
        let (a_name, b_name) = (pair[0].name(), pair[1].name());
        return Err(Error::invalid(if order.cmp(&b.last_key, &a.first_key) == Less {
            format!("the files are not in key order: give {b_name} before {a_name}")
        } else {
            format!(
                "{a_name} and {b_name} share keys: ingest one after the other, or build one file of both"
            )
        }));
    }
    Ok(())
}

fn rewrite_tables(
    core: &Arc<EngineCore>,
    family: Arc<FamilyState>,
    readers: Vec<Arc<KlogReader>>,
    created: &mut CreatedFiles,
) -> Result<LoadedTables> {
    let order = family.tree.comparator();
    let table = |reader: Arc<KlogReader>| {
        let meta =
            TableMeta { id: reader.id(), summary: reader.summary().clone(), global_seq: None };
        Arc::new(Table { meta, reader })
    };
    let all = Arc::new(Run::new(RunId(0), readers.into_iter().map(table).collect(), order));
    let source =
        MergeCursor::new(order, vec![SourceCursor::Run(RunCursor::new(all, order, false))]);
    let (empty, pace) = (Version::empty(order), LoadPace::new(core));
    let job = rewrite_setting(core, &family, &empty, &pace, SeqNo::ZERO);
    let job = RewriteContext { stripes: SnapshotStripes::new(Vec::new(), SeqNo::MAX), ..job };
    let (ranges, relocate) = (RangeTombstones::default(), BTreeSet::new());
    let input = RewriteInput {
        source,
        range_tombstones: ranges,
        bottommost: false,
        relocate_vlogs: relocate,
        zero_seqs: true,
        pass_through_blocks: false,
        rolled_back: Arc::default(),
    };
    let output = run_rewrite(input, job, created)?;
    Ok(LoadedTables { family, tables: output.tables, vlogs: output.vlogs, open: Vec::new() })
}
