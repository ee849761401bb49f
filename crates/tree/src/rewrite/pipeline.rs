//! The road itself: every entry of the source is kept or dropped for a reason, and they are counted.

use super::collapse::{Collapse, Verdict};
use super::place::{Place, Placement};
use super::sink::{Created, Sink};
use super::split::Split;
use crate::mvcc::Strata;
use crate::scan::MergeCursor;
use crate::version::{TableMeta, Version, VlogMeta};
use perigee_base::bug::{self, Bug};
use perigee_base::key::VlogPointer;
use perigee_base::{EntryRef, Error, ErrorKind, Result, Shared, ValueRef};
use perigee_file::{KlogOptions, Shelf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A rewrite: what, for whom, into what.
pub struct Rewrite<'a> {
    /// Not positioned.
    pub source: MergeCursor,
    /// Where separated values of the source are read.
    pub version: &'a Version,
    /// The readers to respect.
    pub strata: Strata,
    /// Below the output lies no older version of any key of the source.
    pub bottom: bool,
    /// Inline or value log.
    pub place: Place,
    /// Where tables end.
    pub split: Split,
    /// Format of the outputs.
    pub options: KlogOptions,
    /// Read outputs again before they are believed.
    pub verify: bool,
    /// Opens and creates files.
    pub shelf: &'a Shelf,
    /// Where file ids come from.
    pub ids: &'a AtomicU64,
    /// Set from outside: give up.
    pub cancel: &'a AtomicBool,
}

/// What was made.
#[derive(Debug, Default)]
pub struct Output {
    /// Tables in key order, synced.
    pub tables: Vec<TableMeta>,
    /// Value logs, synced.
    pub vlogs: Vec<VlogMeta>,
    /// Entry counts.
    pub counts: Counts,
}

/// Entries in, out, and dropped by reason: `read = written + shadowed + tombstones`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries of the source.
    pub read: u64,
    /// Entries written.
    pub written: u64,
    /// Dropped because a newer version hides them.
    pub shadowed: u64,
    /// Tombstones dropped because nothing is left to hide.
    pub tombstones: u64,
}

/// Moves every entry of the source. Files are synced, the directory is not. After an error the outputs are worthless and
/// named in `created`.
pub fn run(mut job: Rewrite<'_>, created: &mut Created) -> Result<Output> {
    let mut sink = Sink::new(job.shelf, job.ids, job.options.clone(), job.verify, created);
    let mut collapse = Collapse::new(job.strata.clone(), job.bottom);
    let mut counts = Counts::default();
    job.source.seek_first()?;
    while job.source.valid() {
        if counts.read % 1024 == 0 && job.cancel.load(Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the job was cancelled"));
        }
        counts.read += 1;
        let entry = job.source.entry();
        let (verdict, new_key) = collapse.judge(&entry);
        match verdict {
            Verdict::Shadowed => counts.shadowed += 1,
            Verdict::SpentTombstone => counts.tombstones += 1,
            Verdict::Keep if bug::on(Bug::LoseLastEntry) && counts.read % 50 == 0 => {}
            Verdict::Keep => {
                let (table_bytes, index_bytes) = sink.pending();
                if job.split.cut(new_key, table_bytes, index_bytes) {
                    sink.cut()?;
                }
                write(&job, &mut sink, entry)?;
                counts.written += 1;
            }
        }
        job.source.step()?;
    }
    sink.finish()?;
    check_counts(&counts, &sink.tables)?;
    Ok(Output { tables: std::mem::take(&mut sink.tables), vlogs: std::mem::take(&mut sink.vlogs), counts })
}

fn write(job: &Rewrite<'_>, sink: &mut Sink<'_>, e: EntryRef<'_>) -> Result<()> {
    let value = match (job.place.of(&e.value), e.value) {
        (Placement::Separate, ValueRef::Inline(v)) => ValueRef::Pointer(sink.separate(v)?),
        (Placement::Relocate, ValueRef::Pointer(p)) => {
            let v = read(job, &p)?;
            if v.len() < job.place.threshold {
                return sink.add(EntryRef { value: ValueRef::Inline(&v), ..e });
            }
            ValueRef::Pointer(sink.separate(&v)?)
        }
        (_, as_is) => as_is,
    };
    sink.add(EntryRef { value, ..e })
}

fn read(job: &Rewrite<'_>, p: &VlogPointer) -> Result<Shared> {
    crate::get::fetch(job.version, p)
}

/// What went in came out, or was dropped for a reason.
fn check_counts(c: &Counts, tables: &[TableMeta]) -> Result<()> {
    let in_tables: u64 = tables.iter().map(|t| t.summary.entries).sum();
    if (c.read != c.written + c.shadowed + c.tombstones || c.written != in_tables)
        && !bug::on(Bug::LoseLastEntry)
    {
        return Err(Error::internal(format!("a rewrite lost entries: {c:?}, in tables: {in_tables}")));
    }
    Ok(())
}
