//! Ingests standalone tables. A file is verified completely before any of its entries is used. The
//! entries are then rewritten into new files with ids of the database, its settings and one
//! sequence number: no metadata of the original file is taken over.

use super::publish::{LoadedTables, publish_tables};
use super::{LoadGuard, LoadPace};
use crate::catalog::Catalog;
use crate::catalog::family::FamilyState;
use crate::catalog::install::discard_outputs;
use crate::maintenance::Maintenance;
use crate::runtime::Runtime;
use perigee_base::{Error, Result, RunId, SeqNo};
use perigee_env::DirOpenMode;
use perigee_file::{KlogReader, RangeTombstones, standalone};
use perigee_tree::read::{MergeCursor, RunCursor, SourceCursor};
use perigee_tree::rewrite::{CreatedFiles, RewriteContext, RewriteInput, run_rewrite};
use perigee_tree::{Run, SnapshotStripes, Table, TableMeta, Version};
use std::cmp::Ordering::Less;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files for one column family, in key order.
pub type IngestFiles = (Arc<FamilyState>, Vec<PathBuf>);

/// Ingests all files of all column families at one sequence number. Returns the sequence number,
/// the number of entries, and the bytes of keys and values.
///
/// # Errors
/// `InvalidArgument` for files that overlap, do not fit the column family, or contain range
/// tombstones; `Corruption` with file and offset; those of [`publish_tables`]. On an error nothing
/// is ingested.
pub fn ingest_files(maintenance: &Maintenance, files: &[IngestFiles]) -> Result<(SeqNo, u64, u64)> {
    let _working = LoadGuard::start(maintenance)?;
    let mut created = CreatedFiles::default();
    let done = build_tables(&maintenance.catalog, files, &mut created).and_then(|parts| {
        let entries = parts.iter().flat_map(|p| &p.tables).map(|t| t.summary.entries).sum();
        let bytes = |t: &TableMeta| t.summary.raw_key_bytes + t.summary.raw_value_bytes;
        let bytes = parts.iter().flat_map(|p| &p.tables).map(bytes).sum();
        let seq = if parts.is_empty() {
            maintenance.catalog.visible_seq()
        } else {
            publish_tables(maintenance, &parts)?
        };
        Ok((seq, entries, bytes))
    });
    done.inspect_err(|_| discard_outputs(&maintenance.catalog, &created))
}

fn build_tables(
    catalog: &Catalog,
    files: &[IngestFiles],
    created: &mut CreatedFiles,
) -> Result<Vec<LoadedTables>> {
    let mut parts: Vec<LoadedTables> = Vec::new();
    // Everything is checked before anything is written.
    let mut opened = Vec::new();
    for (family, paths) in files {
        family.check_not_dropped()?;
        if opened.iter().any(|(f, _): &(Arc<FamilyState>, _)| f.id == family.id) {
            let text = format!(
                "the column family {:?} is named twice: list all of its files at once",
                family.name()
            );
            return Err(Error::invalid(text));
        }
        let readers = paths
            .iter()
            .map(|path| open_table_file(&catalog.runtime, path))
            .collect::<Result<Vec<_>>>()?;
        check_key_order(family, &readers)?;
        opened.push((Arc::clone(family), readers));
    }
    for (_, readers) in &opened {
        readers.iter().try_for_each(|r| r.verify_without_checksum(&mut |_| {}))?;
    }
    for (family, readers) in opened.into_iter().filter(|(_, readers)| !readers.is_empty()) {
        parts.push(rewrite_tables(catalog, family, readers, created)?);
    }
    Ok(parts)
}

fn open_table_file(runtime: &Runtime, path: &Path) -> Result<Arc<KlogReader>> {
    let path_text = path.display();
    let name = path.file_name().and_then(|n| n.to_str());
    let name = name.ok_or_else(|| Error::invalid(format!("{path_text} names no file")))?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = runtime.env.fs.open_dir(parent, DirOpenMode::Existing)?;
    let reader = standalone::open(&*dir, name)?;
    let s = reader.read_summary()?;
    // The rewrite below only takes entries: what the range tombstones cover would reappear.
    if s.ranges.is_some() {
        return Err(Error::invalid(format!(
            "{name} contains range tombstones, which cannot be ingested: build it without them, \
             and call delete_range first"
        )));
    }
    if reader.operand_count() > 0 {
        return Err(Error::invalid(format!(
            "{name} contains merge operands, which cannot be ingested: build it from values"
        )));
    }
    if s.largest_seq != SeqNo::ZERO || !s.vlogs.is_empty() {
        return Err(Error::corruption(
            "a standalone table has sequence numbers or references value logs",
        )
        .in_file(name));
    }
    Ok(Arc::new(reader))
}

/// Checks that the files use the comparator of the column family and ascend from file to file.
fn check_key_order(family: &FamilyState, readers: &[Arc<KlogReader>]) -> Result<()> {
    let comparator = family.tree.comparator();
    if let Some(other) = readers.iter().find(|r| r.comparator() != comparator) {
        return Err(Error::invalid(format!(
            "{} uses another comparator than the column family {:?}: build it again with the \
             options of the column family",
            other.name(),
            family.name()
        ))
        .expected(comparator.name(), other.comparator().name()));
    }
    for pair in readers.windows(2) {
        let (a, b) = (pair[0].read_summary()?, pair[1].read_summary()?);
        if comparator.cmp(&a.last_key, &b.first_key) == Less {
            continue;
        }
        let (a_name, b_name) = (pair[0].name(), pair[1].name());
        return Err(Error::invalid(if comparator.cmp(&b.last_key, &a.first_key) == Less {
            format!("the files are not in key order: list {b_name} before {a_name}")
        } else {
            format!(
                "{a_name} and {b_name} share keys: ingest one after the other, or build one file \
                 from both"
            )
        }));
    }
    Ok(())
}

fn rewrite_tables(
    catalog: &Catalog,
    family: Arc<FamilyState>,
    readers: Vec<Arc<KlogReader>>,
    created: &mut CreatedFiles,
) -> Result<LoadedTables> {
    let comparator = family.tree.comparator();
    let table = |reader: Arc<KlogReader>| {
        let summary = reader.read_summary()?.into();
        let meta = TableMeta { id: reader.id(), summary, global_seq: None };
        Ok(Arc::new(Table { meta, reader }))
    };
    let tables: Vec<_> = readers.into_iter().map(table).collect::<Result<_>>()?;
    let found: u64 = tables.iter().map(|t| t.meta.summary.entries).sum();
    let all = Arc::new(Run::new(RunId(0), tables, comparator));
    let source = MergeCursor::new(
        comparator,
        vec![SourceCursor::Run(RunCursor::new(all, comparator, false))],
    );
    let (empty, pace) = (Version::empty(comparator), LoadPace::new(&catalog.resources));
    let job = catalog.rewrite_context(&family, &empty, &pace, SeqNo::ZERO);
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
    check_slow!(
        output.tables.iter().all(|t| created.0.contains(&t.id)),
        "an ingestion that fails removes all of its files",
        created
    );
    check_slow!(
        output.tables.iter().map(|t| t.summary.entries).sum::<u64>() == found,
        "an ingestion takes over every entry",
        found,
        output.tables.len()
    );
    Ok(LoadedTables { family, tables: output.tables, vlogs: output.vlogs, open: Vec::new() })
}
