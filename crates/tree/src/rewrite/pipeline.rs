//! The road itself: every entry of the source is kept or dropped for a reason, and they are counted.

use super::chain::{Below, Chain, Outcome};
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
use perigee_base::{EntryRef, Error, FileId, Merger, Now, Result, SeqNo, ValueRef};
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
    /// Merges operands; without it they stay what they are.
    pub merger: Option<Arc<Merger>>,
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
/// filtered + merged + taken back`. Range
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
    /// Operands, and what lay below them, that became part of another entry.
    pub merged: u64,
    /// Of those written: operands that the merge operator could not join to what is known of what lies below.
    pub unmerged: u64,
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
    let order = job.options.order;
    let split = Split::new(order, job.target_bytes, job.cuts.clone());
    let sink = Sink::new(job.shelf, job.ids, job.options.clone(), job.verify, created);
    let sink = sink.leaving_syncs_to(job.later);
    let mut exit = Exit { version: job.version, place, split, sink, renumber: input.renumber };
    let collapse = Collapse::new(order, job.strata.clone(), input.bottom, job.now);
    let mut collapse = collapse.with_ranges(input.ranges).settling(job.settle).without(input.taken_back);
    let (mut counts, mut quantum) = (Counts::default(), Quantum::default());
    let (ranges, of_ranges) = collapse.ranges();
    counts.ranges = of_ranges;
    let ranges = if input.renumber { ranges.under(SeqNo::ZERO) } else { ranges };
    exit.sink.set_ranges(ranges.joined(order));
    let mut held: Option<Held> = None;
    let mut chain = Chain::default();
    // Below the last version of a key.
    let end = if input.bottom { Below::Nothing } else { Below::Unknown };
    // What a job before this one left to pay.
    job.pace.step(quantum.take(exit.sink.taken()))?;
    source.seek_first()?;
    while source.valid() {
        if quantum.is_full() {
            match job.pace.step(quantum.take(exit.sink.taken())) {
                Err(_) if bug::on(Bug::InstallCancelled) => break,
                go_on => go_on?,
            }
        }
        if !chain.is_empty() && !chain.is_of(order, source.key()) {
            merge(&mut chain, end, &job, &collapse, &mut exit, &mut counts)?;
        }
        if held.is_none()
            && chain.is_empty()
            && let Some(s) = whole.step(&mut source, (&mut collapse, &mut exit.split, &mut exit.sink))?
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
        let (mut verdict, new_key) = collapse.judge(&entry, another);
        chain.next(new_key);
        if let Some(single) = held.take() {
            if matches!(verdict, Verdict::Cancel | Verdict::Replace) {
                counts.cancelled += 1;
            } else if verdict == Verdict::Deletes || (verdict == Verdict::Shadowed && !new_key) {
                held = Some(Held { plain: single.plain || verdict == Verdict::Deletes, ..single });
            } else {
                exit.write(single.entry(), single.new_key)?;
                counts.written += 1;
            }
        }
        if !chain.is_empty() || matches!(verdict, Verdict::Operand | Verdict::Base | Verdict::NoBase) {
            let rest = (&job, &collapse, &mut exit, &mut counts);
            match below(&mut chain, &entry, (verdict, new_key), rest)? {
                Some(then) => verdict = then,
                None => {
                    source.step()?;
                    continue;
                }
            }
        }
        let decided = match &job.filter {
            Some(f) if verdict == Verdict::Keep && !chain.is_over() && collapse.may_filter(&entry) => {
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
            Verdict::Hold => {
                held = Some(Held { key: entry.key.to_vec(), seq: entry.seq, new_key, plain: false });
            }
            Verdict::Cancel => counts.cancelled += 1,
            Verdict::Covered => {
                counts.covered += 1;
                if let Some((end, seq)) = collapse.way_out() {
                    source.leave(end, seq)?;
                    continue;
                }
            }
            Verdict::Shadowed | Verdict::Deletes => counts.shadowed += 1,
            Verdict::TakenBack => counts.taken_back += 1,
            Verdict::SpentTombstone => counts.tombstones += 1,
            Verdict::Expired => counts.expired += 1,
            Verdict::Operand | Verdict::Base | Verdict::NoBase => {
                return Err(Error::internal("a rewrite has forgotten operands"));
            }
            Verdict::Keep if bug::on(Bug::LoseLastEntry) && counts.read % 50 == 0 => {}
            Verdict::Keep | Verdict::Replace | Verdict::Bury => {
                if verdict == Verdict::Bury {
                    entry.value = ValueRef::None;
                    counts.buried += 1;
                }
                // Below operands that went on it keeps its number: that must be smaller than theirs.
                let seq = if chain.is_over() { entry.seq } else { collapse.settled(&entry) };
                exit.write(EntryRef { seq, ..entry }, new_key)?;
                counts.written += 1;
            }
        }
        source.step()?;
    }
    if let Some(single) = held.take() {
        exit.write(single.entry(), single.new_key)?;
        counts.written += 1;
    }
    merge(&mut chain, end, &job, &collapse, &mut exit, &mut counts)?;
    let mut sink = exit.sink;
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

/// An operand, or what comes below operands that wait. What it is to be treated as now; `None`: it waits, or became a part of
/// another entry.
fn below(
    chain: &mut Chain,
    entry: &EntryRef<'_>,
    (verdict, new_key): (Verdict, bool),
    (job, collapse, exit, counts): (&Setting<'_>, &Collapse<'_>, &mut Exit<'_, '_>, &mut Counts),
) -> Result<Option<Verdict>> {
    if verdict == Verdict::Operand && chain.has(entry.seq) && !new_key {
        counts.shadowed += 1;
        return Ok(None);
    }
    if verdict == Verdict::Base && chain.has(entry.seq) && chain.take_back() {
        counts.shadowed += 1;
    }
    if verdict == Verdict::Operand {
        let stratum = collapse.stratum(entry.seq);
        if !chain.is_in(stratum) && !bug::on(Bug::FoldAcrossSnapshot) {
            merge(chain, Below::Unknown, job, collapse, exit, counts)?;
        }
        chain.push(entry, stratum, new_key);
        if chain.is_long() {
            match chain.resolve(job.merger.as_deref(), Below::Unknown, job.version)? {
                Outcome::Operand(joined) => {
                    counts.merged += chain.len() as u64 - 1;
                    chain.replace(&joined);
                }
                _ => drop(merge(chain, Below::Unknown, job, collapse, exit, counts)?),
            }
        }
        return Ok(None);
    }
    let below = match verdict {
        Verdict::Base => Below::Value(entry.value),
        Verdict::NoBase | Verdict::Hold | Verdict::SpentTombstone | Verdict::Expired | Verdict::Covered => {
            Below::Nothing
        }
        _ => Below::Unknown,
    };
    let merged = merge(chain, below, job, collapse, exit, counts)?;
    let spent = collapse.spends(entry);
    Ok(match verdict {
        Verdict::Base | Verdict::NoBase if merged => {
            counts.merged += 1;
            None
        }
        Verdict::Base => Some(Verdict::Keep),
        Verdict::NoBase if entry.value.is_tombstone() => {
            Some(if spent { Verdict::SpentTombstone } else { Verdict::Keep })
        }
        Verdict::NoBase => Some(if spent { Verdict::Expired } else { Verdict::Bury }),
        other => Some(other),
    })
}

/// The operands that wait go on, if there are any; whether as a value.
fn merge(
    chain: &mut Chain,
    below: Below<'_>,
    job: &Setting<'_>,
    collapse: &Collapse<'_>,
    exit: &mut Exit<'_, '_>,
    counts: &mut Counts,
) -> Result<bool> {
    if chain.is_empty() {
        return Ok(false);
    }
    let (n, new_key) = (chain.len() as u64, chain.begins());
    let outcome = chain.resolve(job.merger.as_deref(), below, job.version)?;
    let bytes = match &outcome {
        Outcome::Value(bytes) | Outcome::Operand(bytes) => bytes,
        Outcome::AsTheyAre => {
            for (i, e) in chain.entries().enumerate() {
                exit.write(e, new_key && i == 0)?;
            }
            counts.written += n;
            counts.unmerged += if n > 1 || !matches!(below, Below::Unknown) { n } else { 0 };
            chain.clear(true);
            return Ok(false);
        }
    };
    let is_value = matches!(outcome, Outcome::Value(_));
    let value = if is_value { ValueRef::Inline(bytes) } else { ValueRef::Operand(bytes) };
    let e = EntryRef { key: chain.key(), seq: chain.newest(), value };
    let decided = match &job.filter {
        Some(f) if is_value && !chain.is_over() && collapse.may_filter(&e) => f.decide(&e, job.version)?,
        _ => FilterDecision::Keep,
    };
    counts.merged += n - 1;
    if decided == FilterDecision::Drop && collapse.spends(&e) {
        counts.filtered += 1;
    } else {
        let e = EntryRef { value: filtered(&decided, e.value), ..e };
        // Below operands that went on it keeps its number: that must be smaller than theirs.
        let seq = if chain.is_over() { e.seq } else { collapse.settled(&e) };
        exit.write(EntryRef { seq, ..e }, new_key)?;
        counts.written += 1;
    }
    chain.clear(!is_value);
    Ok(is_value)
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
    let value = e.value.beside().map_or(0, <[u8]>::len);
    (e.key.len() + value) as u64
}

/// Where entries leave the road.
struct Exit<'x, 's> {
    version: &'x Version,
    place: Place,
    split: Split,
    sink: Sink<'s>,
    /// Every entry goes under number 0.
    renumber: bool,
}

impl Exit<'_, '_> {
    /// Writes an entry, behind a cut if one is due; `new_key`: it begins a key.
    fn write(&mut self, e: EntryRef<'_>, new_key: bool) -> Result<()> {
        let (table_bytes, index_bytes) = self.sink.pending();
        if let Some(at) = self.split.cut(e.key, new_key, table_bytes, index_bytes) {
            self.sink.cut(at)?;
        }
        let seq = if self.renumber { SeqNo::ZERO } else { e.seq };
        write(self.version, &self.place, &mut self.sink, EntryRef { seq, ..e })
    }
}

fn write(version: &Version, place: &Place, sink: &mut Sink<'_>, e: EntryRef<'_>) -> Result<()> {
    let value = match (place.of(&e.value), e.value.beside(), e.value.apart()) {
        (Placement::Separate, Some(v), _) => e.value.with_pointer(sink.separate(v)?),
        (Placement::Relocate, _, Some(p)) => {
            let v = get::fetch_for(version, &p, Cause::Compaction)?;
            if v.len() < place.threshold {
                return sink.add(EntryRef { value: e.value.with_bytes(&v), ..e });
            }
            e.value.with_pointer(sink.separate(&v)?)
        }
        _ => e.value,
    };
    sink.add(EntryRef { value, ..e })
}

/// What went in came out, or was dropped for a reason.
fn check_counts(c: &Counts, sink: &Sink<'_>) -> Result<()> {
    let in_tables: u64 = sink.tables.iter().map(|t| t.summary.entries).sum();
    let dropped = c.shadowed
        + c.tombstones
        + c.expired
        + c.covered
        + c.cancelled
        + c.filtered
        + c.merged
        + c.taken_back;
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
    /// It became a delete.
    plain: bool,
}

impl Held {
    fn entry(&self) -> EntryRef<'_> {
        let value = if self.plain { ValueRef::None } else { ValueRef::Single };
        EntryRef { key: &self.key, seq: self.seq, value }
    }
}
