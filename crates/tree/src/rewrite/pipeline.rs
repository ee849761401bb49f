//! The road itself: every entry of the source is kept or dropped for a reason, and they are counted.

use super::collapse::{Collapse, RangeCounts, Verdict};
use super::filter::{FilterDecision, Filtering};
use super::later::Later;
use super::pace::{Pace, Quantum};
use super::place::{Place, Placement};
use super::sink::{Created, Sink};
use super::split::Split;
use super::whole::Whole;
use crate::get;
use crate::mvcc::Strata;
use crate::scan::MergeCursor;
use crate::version::{TableMeta, Version, VlogMeta};
use perigee_base::bug::{self, Bug};
use perigee_base::cut::Cut;
use perigee_base::io::Cause;
use perigee_base::{EntryRef, Error, FileId, Now, Result, SeqNo, ValueRef};
use perigee_file::{Fragments, KlogOptions, Shelf};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// For whom a rewrite works, and into what: the same for flush and compaction.
#[derive(Clone)]
pub struct Setting<'a> {
    /// The current version of the family; separated values of the source are read there.
    pub version: &'a Version,
    /// The readers to respect.
    pub strata: Strata,
    /// Format of the outputs.
    pub options: KlogOptions,
    /// Values of this length and up are separated.
    pub threshold: usize,
    /// Bytes at which tables are cut.
    pub target_bytes: u64,
    /// Places, ascending, at which they are cut where they are large enough.
    pub cuts: Vec<Cut>,
    /// Read outputs again before they are believed.
    pub verify: bool,
    /// Opens and creates files.
    pub shelf: &'a Shelf,
    /// Where file ids come from.
    pub ids: &'a AtomicU64,
    /// Whether and how fast it may go on.
    pub pace: &'a dyn Pace,
    /// Asked if an entry expires.
    pub now: &'a dyn Now,
    /// The user's filter, for compactions.
    pub filter: Option<Filtering<'a>>,
    /// The number for values that every reader sees and beneath which nothing lies, if they may have one.
    pub settle: Option<SeqNo>,
    /// Who syncs the outputs and reads them again, if not the rewrite.
    pub later: Option<&'a Later>,
}

/// What a rewrite moves.
pub struct Input {
    /// Not positioned.
    pub source: MergeCursor,
    /// Below the output lies no older version of any key of the source.
    pub bottom: bool,
    /// The range tombstones of all that is in the source.
    pub ranges: Fragments,
    /// Value logs whose values move to a new one.
    pub relocate: BTreeSet<FileId>,
    /// Every entry is written under number 0: the table will get a stamp.
    pub renumber: bool,
    /// Blocks in which nothing changes may be moved as they are stored.
    pub whole: bool,
    /// Numbers of entries that their transaction has taken back, ascending and apart.
    pub taken_back: Arc<[Range<u64>]>,
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
    /// Write calls that the files took.
    pub write_calls: u64,
}

/// Entries in, out, and dropped by reason: `read = written + shadowed + tombstones + expired + covered + cancelled +
/// filtered + taken back`. Range
/// tombstones are counted apart, once for each fragment.
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
    /// Expired entries dropped because nothing is left to hide.
    pub expired: u64,
    /// Dropped by the user's filter, with nothing left to hide.
    pub filtered: u64,
    /// Of those written: expired entries that became tombstones.
    pub buried: u64,
    /// Of those written: entries of blocks that were moved as they were stored.
    pub moved: u64,
    /// Dropped because a range tombstone hides them. (Of many in a row most are not read at all, and not counted anywhere.)
    pub covered: u64,
    /// Single deletes and what they cancelled.
    pub cancelled: u64,
    /// Taken back by the transaction that wrote them.
    pub taken_back: u64,
    /// Range tombstones.
    pub ranges: RangeCounts,
}

/// Moves every entry of the source. Files are synced, the directory is not. After an error the outputs are worthless and
/// named in `created`.
pub fn run(input: Input, job: Setting<'_>, created: &mut Created) -> Result<Output> {
    let mut source = input.source;
    let place = Place { threshold: job.threshold, relocate: input.relocate };
    let unseen = input.whole && !input.renumber && job.filter.is_none() && place.relocate.is_empty();
    let mut whole = Whole::new(unseen, place.threshold);
    let mut split = Split::new(job.options.order, job.target_bytes, job.cuts.clone());
    let sink = Sink::new(job.shelf, job.ids, job.options.clone(), job.verify, created);
    let mut sink = sink.leaving_syncs_to(job.later);
    let order = job.options.order;
    let collapse = Collapse::new(order, job.strata.clone(), input.bottom, job.now);
    let mut collapse = collapse.with_ranges(input.ranges).settling(job.settle).without(input.taken_back);
    let (mut counts, mut quantum) = (Counts::default(), Quantum::default());
    let (ranges, of_ranges) = collapse.ranges();
    counts.ranges = of_ranges;
    let ranges = if input.renumber { ranges.under(SeqNo::ZERO) } else { ranges };
    sink.set_ranges(ranges.joined(order));
    let mut held: Option<Held> = None;
    // What a job before this one left to pay.
    job.pace.step(quantum.take(sink.taken()))?;
    source.seek_first()?;
    while source.valid() {
        if quantum.is_full() {
            match job.pace.step(quantum.take(sink.taken())) {
                Err(_) if bug::on(Bug::InstallCancelled) => break,
                go_on => go_on?,
            }
        }
        if held.is_none()
            && let Some(s) = whole.step(&mut source, (&mut collapse, &mut split, &mut sink))?
        {
            counts.moved += s.entries;
            counts.read += s.entries;
            counts.written += s.entries;
            quantum.add_all(s.entries, s.bytes);
            continue;
        }
        counts.read += 1;
        let another = source.on_another_key();
        let mut entry = source.entry();
        quantum.add(moved_bytes(&entry));
        let (verdict, new_key) = collapse.judge(&entry, another);
        if let Some(single) = held.take() {
            if matches!(verdict, Verdict::Cancel | Verdict::Replace) {
                counts.cancelled += 1;
            } else if verdict == Verdict::Shadowed && !new_key {
                held = Some(single);
            } else {
                single.write(&mut split, &mut sink)?;
                counts.written += 1;
            }
        }
        let decided = match &job.filter {
            Some(f) if verdict == Verdict::Keep && collapse.may_filter(&entry) => {
                f.decide(&entry, job.version)?
            }
            _ => FilterDecision::Keep,
        };
        if decided == FilterDecision::Drop && collapse.spends(&entry) {
            counts.filtered += 1;
            source.step()?;
            continue;
        }
        entry.value = filtered(&decided, entry.value);
        match verdict {
            Verdict::Hold => held = Some(Held { key: entry.key.to_vec(), seq: entry.seq, new_key }),
            Verdict::Cancel => counts.cancelled += 1,
            Verdict::Covered => {
                counts.covered += 1;
                if let Some((end, seq)) = collapse.way_out() {
                    source.leave(end, seq)?;
                    continue;
                }
            }
            Verdict::Shadowed => counts.shadowed += 1,
            Verdict::TakenBack => counts.taken_back += 1,
            Verdict::SpentTombstone => counts.tombstones += 1,
            Verdict::Expired => counts.expired += 1,
            Verdict::Keep if bug::on(Bug::LoseLastEntry) && counts.read % 50 == 0 => {}
            Verdict::Keep | Verdict::Replace | Verdict::Bury => {
                if verdict == Verdict::Bury {
                    entry.value = ValueRef::None;
                    counts.buried += 1;
                }
                let (table_bytes, index_bytes) = sink.pending();
                if let Some(at) = split.cut(entry.key, new_key, table_bytes, index_bytes) {
                    sink.cut(at)?;
                }
                let seq = if input.renumber { SeqNo::ZERO } else { collapse.settled(&entry) };
                write(job.version, &place, &mut sink, EntryRef { seq, ..entry })?;
                counts.written += 1;
            }
        }
        source.step()?;
    }
    if let Some(single) = held.take() {
        single.write(&mut split, &mut sink)?;
        counts.written += 1;
    }
    sink.finish()?;
    // What is finished is not thrown away because somebody cancels now, and nobody waits with it in hand.
    job.pace.done(quantum.take(sink.taken()));
    check_counts(&counts, &sink)?;
    Ok(Output {
        tables: std::mem::take(&mut sink.tables),
        vlogs: std::mem::take(&mut sink.vlogs),
        counts,
        write_calls: sink.write_calls,
    })
}

/// The value after the filter's decision.
fn filtered<'a>(decided: &'a FilterDecision, value: ValueRef<'a>) -> ValueRef<'a> {
    match (decided, value.expiry()) {
        (FilterDecision::Keep, _) => value,
        (FilterDecision::Drop, _) => ValueRef::None,
        (FilterDecision::Change(v), None) => ValueRef::Inline(v),
        (FilterDecision::Change(v), Some(x)) => ValueRef::InlineUntil(v, x),
    }
}

/// The end of the road alone, for entries that are in order already, each key once: nothing is dropped.
pub fn write_sorted<'e>(
    entries: impl Iterator<Item = EntryRef<'e>>,
    job: Setting<'_>,
    created: &mut Created,
) -> Result<Output> {
    let place = Place { threshold: job.threshold, relocate: BTreeSet::new() };
    let mut split = Split::new(job.options.order, job.target_bytes, job.cuts.clone());
    let sink = Sink::new(job.shelf, job.ids, job.options.clone(), job.verify, created);
    let mut sink = sink.leaving_syncs_to(job.later);
    let (mut counts, mut quantum) = (Counts::default(), Quantum::default());
    for entry in entries {
        if quantum.is_full() {
            job.pace.step(quantum.take(sink.taken()))?;
        }
        counts.read += 1;
        quantum.add(moved_bytes(&entry));
        let (table_bytes, index_bytes) = sink.pending();
        if let Some(at) = split.cut(entry.key, true, table_bytes, index_bytes) {
            sink.cut(at)?;
        }
        write(job.version, &place, &mut sink, entry)?;
        counts.written += 1;
    }
    sink.finish()?;
    check_counts(&counts, &sink)?;
    Ok(Output {
        tables: std::mem::take(&mut sink.tables),
        vlogs: std::mem::take(&mut sink.vlogs),
        counts,
        write_calls: sink.write_calls,
    })
}

/// Bytes that an entry brings along; a separated value stays where it is, or is counted where it is written.
fn moved_bytes(e: &EntryRef<'_>) -> u64 {
    let value = match e.value {
        ValueRef::Inline(v) | ValueRef::InlineUntil(v, _) => v.len(),
        _ => 0,
    };
    (e.key.len() + value) as u64
}

fn write(version: &Version, place: &Place, sink: &mut Sink<'_>, e: EntryRef<'_>) -> Result<()> {
    use ValueRef::{Inline, InlineUntil, Pointer, PointerUntil};
    let expiry = e.value.expiry();
    let value = match (place.of(&e.value), e.value) {
        (Placement::Separate, Inline(v) | InlineUntil(v, _)) => ValueRef::pointer(sink.separate(v)?, expiry),
        (Placement::Relocate, Pointer(p) | PointerUntil(p, _)) => {
            let v = get::fetch_for(version, &p, Cause::Compaction)?;
            if v.len() < place.threshold {
                return sink.add(EntryRef { value: ValueRef::inline(&v, expiry), ..e });
            }
            ValueRef::pointer(sink.separate(&v)?, expiry)
        }
        (_, as_is) => as_is,
    };
    sink.add(EntryRef { value, ..e })
}

/// What went in came out, or was dropped for a reason.
fn check_counts(c: &Counts, sink: &Sink<'_>) -> Result<()> {
    let in_tables: u64 = sink.tables.iter().map(|t| t.summary.entries).sum();
    let dropped = c.shadowed + c.tombstones + c.expired + c.covered + c.cancelled + c.filtered + c.taken_back;
    if (c.read != c.written + dropped || c.written != in_tables) && !bug::on(Bug::LoseLastEntry) {
        return Err(Error::internal(format!("a rewrite lost entries: {c:?}, in tables: {in_tables}")));
    }
    let ranges: u64 = sink.tables.iter().filter_map(|t| t.summary.ranges.as_ref()).map(|r| r.count).sum();
    if ranges != sink.ranges_expected() && !bug::on(Bug::RangeLostAtCut) {
        let (c, expected) = (c.ranges, sink.ranges_expected());
        return Err(Error::internal(format!(
            "a rewrite lost range tombstones: {c:?}, {ranges} of {expected}"
        )));
    }
    Ok(())
}

/// A single delete that waits for its put.
struct Held {
    key: Vec<u8>,
    seq: SeqNo,
    new_key: bool,
}

impl Held {
    fn write(&self, split: &mut Split, sink: &mut Sink<'_>) -> Result<()> {
        let (table_bytes, index_bytes) = sink.pending();
        if let Some(at) = split.cut(&self.key, self.new_key, table_bytes, index_bytes) {
            sink.cut(at)?;
        }
        sink.add(EntryRef { key: &self.key, seq: self.seq, value: ValueRef::Single })
    }
}
