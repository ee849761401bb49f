//! Ingest: standalone tables, built elsewhere, become tables of the database. Every byte of a file is verified before an
//! entry of it is believed, then the entries take the one road into new files with our ids, our settings and one
//! sequence number: nothing of the foreign file's identity comes in.

use super::publish::{Part, publish};
use super::{LoadPace, Working};
use crate::core::Core;
use crate::family::Family;
use crate::jobs::flush::{discard, setting};
use perigee_base::{Error, Result, RunId, SeqNo};
use perigee_env::OpenDir;
use perigee_file::klog::standalone;
use perigee_file::{Fragments, KlogReader};
use perigee_tree::mvcc::Strata;
use perigee_tree::rewrite::{Created, Input, Setting, run};
use perigee_tree::scan::{MergeCursor, RunCursor, Source};
use perigee_tree::{Run, Table, TableMeta, Version};
use std::cmp::Ordering::Less;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files for one family, in key order.
pub type Files = (Arc<Family>, Vec<PathBuf>);

/// Ingests all files, of all families, at one sequence number; the number, the entries and the bytes of keys and values.
///
/// # Errors
/// `InvalidArgument` for files that overlap, do not fit the family, or hold range tombstones; `Corruption` naming file and place; as `publish`.
/// Nothing of it is there then.
pub fn ingest(core: &Arc<Core>, files: &[Files]) -> Result<(SeqNo, u64, u64)> {
    let _working = Working::start(core)?;
    let mut created = Created::default();
    let done = build(core, files, &mut created).and_then(|parts| {
        let entries = parts.iter().flat_map(|p| &p.tables).map(|t| t.summary.entries).sum();
        let bytes = |t: &TableMeta| t.summary.raw_key_bytes + t.summary.raw_value_bytes;
        let bytes = parts.iter().flat_map(|p| &p.tables).map(bytes).sum();
        let seq = if parts.is_empty() { core.visible() } else { publish(core, &parts)? };
        Ok((seq, entries, bytes))
    });
    done.inspect_err(|_| discard(core, &created))
}

fn build(core: &Arc<Core>, files: &[Files], created: &mut Created) -> Result<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    // Everything is looked at before anything is written.
    let mut opened = Vec::new();
    for (family, paths) in files {
        family.check()?;
        if opened.iter().any(|(f, _): &(Arc<Family>, _)| f.id == family.id) {
            let text = format!("the family {:?} is named twice: give all its files at once", family.name());
            return Err(Error::invalid(text));
        }
        let readers = paths.iter().map(|path| open(core, path)).collect::<Result<Vec<_>>>()?;
        check(family, &readers)?;
        opened.push((Arc::clone(family), readers));
    }
    for (_, readers) in &opened {
        readers.iter().try_for_each(|r| r.verify_alone(&mut |_| {}))?;
    }
    for (family, readers) in opened.into_iter().filter(|(_, readers)| !readers.is_empty()) {
        parts.push(rewrite(core, family, readers, created)?);
    }
    Ok(parts)
}

fn open(core: &Core, path: &Path) -> Result<Arc<KlogReader>> {
    let shown = path.display();
    let name = path.file_name().and_then(|n| n.to_str());
    let name = name.ok_or_else(|| Error::invalid(format!("{shown} names no file")))?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = core.env.fs.open_dir(parent, OpenDir::Existing)?;
    let reader = standalone::open(&*dir, name)?;
    let s = reader.summary();
    // The rewrite below takes entries only: what the ranges hide would come back.
    if s.ranges.is_some() {
        return Err(Error::invalid(format!(
            "{name} holds range tombstones, which ingest does not take: build it without them, and call delete_range first"
        )));
    }
    if reader.operands() > 0 {
        return Err(Error::invalid(format!(
            "{name} holds operands of merges, which ingest does not take: build it of values"
        )));
    }
    if s.largest != SeqNo::ZERO || !s.vlogs.is_empty() {
        return Err(
            Error::corruption("a standalone table numbers entries, or references value logs").in_file(name)
        );
    }
    Ok(Arc::new(reader))
}

/// The family's order, keys ascending from file to file.
fn check(family: &Family, readers: &[Arc<KlogReader>]) -> Result<()> {
    let order = family.tree.order();
    if let Some(other) = readers.iter().find(|r| r.order() != order) {
        return Err(Error::invalid(format!(
            "{} is sorted in another order than the family {:?}: build it again with the family's options",
            other.name(),
            family.name()
        ))
        .expected(order.name(), other.order().name()));
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
            format!("{a_name} and {b_name} share keys: ingest one after the other, or build one file of both")
        }));
    }
    Ok(())
}

fn rewrite(
    core: &Arc<Core>,
    family: Arc<Family>,
    readers: Vec<Arc<KlogReader>>,
    created: &mut Created,
) -> Result<Part> {
    let order = family.tree.order();
    let table = |reader: Arc<KlogReader>| {
        let meta = TableMeta { id: reader.id(), summary: reader.summary().clone(), stamp: None };
        Arc::new(Table { meta, reader })
    };
    let all = Arc::new(Run::new(RunId(0), readers.into_iter().map(table).collect(), order));
    let source = MergeCursor::new(order, vec![Source::Run(RunCursor::new(all, order, false))]);
    let (empty, pace) = (Version::empty(order), LoadPace::new(core));
    let job = setting(core, &family, &empty, &pace, SeqNo::ZERO);
    let job = Setting { strata: Strata::new(Vec::new(), SeqNo::MAX), ..job };
    let (ranges, relocate) = (Fragments::default(), BTreeSet::new());
    let input = Input {
        source,
        ranges,
        bottom: false,
        relocate,
        renumber: true,
        whole: false,
        taken_back: Arc::default(),
    };
    let output = run(input, job, created)?;
    Ok(Part { family, tables: output.tables, vlogs: output.vlogs, open: Vec::new() })
}
