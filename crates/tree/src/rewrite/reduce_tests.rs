//! Tests of the rules, as text: the examples in the header of `reduce.rs`, a table of further
//! cases, and generated histories whose readers must see the same before and after.

use super::RewriteCounts;
use super::compaction_iterator::{CompactionItem, CompactionIterator};
use super::pacer::OutputBytes;
use super::*;
use crate::mvcc::SnapshotStripes;
use crate::scan::{MergeCursor, SourceCursor};
use crate::{Memtable, Version};
use perigee_base::{
    Error, Expiry, FamilyId, FixedClock, KeyBoundary, KeyBoundaryRef, KeyComparator, LevelNo,
    MergeOperator, MergeOperators, MergeRule, OpIndex, Result, SeqNo, ValueRef,
};
use perigee_env::fs::memory::SimDisk;
use perigee_env::{DirOpenMode, Fs};
use perigee_file::log::{Batch, BatchOp, BatchOps};
use perigee_file::{BlockCache, Compression, KlogOptions, RangeTombstones, TableCache};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Clock of all cases.
const NOW_MS: u64 = 50;
/// Sequence number of the present.
const PRESENT: SeqNo = SeqNo(10);

/// One case on each line: `VERSIONS [| CONTEXT] -> OUTPUT [; DROPPED]`. The notation is that of
/// `reduce.rs`. Contexts: `snapshots`, `history` (every version above it is kept), `bottom`,
/// `shared` (sequence number for bottommost values), `rolled back`, `filter` (drops the value
/// `drop`, changes `change`), `no operator`, `ignore case`. The operator appends, and refuses `!`.
const CASES: &str = include_str!("reduce_cases.txt");

struct Fixture {
    table_cache: TableCache,
    version: Version,
    ids: AtomicU64,
    clock: FixedClock,
}

/// Drops values `drop`, changes values `change`, and fails for `fail`.
struct WordFilter;

impl CompactionFilter for WordFilter {
    fn name(&self) -> &str {
        "word"
    }
    fn decide(&self, entry: &FilterEntry<'_>) -> Result<FilterDecision> {
        Ok(match &*entry.value()? {
            b"drop" => FilterDecision::Drop,
            b"change" => FilterDecision::Change(b"changed".to_vec()),
            b"fail" => return Err(Error::invalid("the filter fails")),
            _ => FilterDecision::Keep,
        })
    }
}

/// Appends after a comma; refuses operands `!`.
struct CommaOperator;

impl MergeOperator for CommaOperator {
    fn name(&self) -> &str {
        "comma"
    }
    fn merge(&self, _: &[u8], left: Option<&[u8]>, right: &[u8], out: &mut Vec<u8>) -> Result<()> {
        if right == b"!" {
            return Err(Error::invalid("refused"));
        }
        if let Some(left) = left {
            out.extend_from_slice(left);
            out.push(b',');
        }
        out.extend_from_slice(right);
        Ok(())
    }
}

/// Settings of a case.
#[derive(Default)]
struct CaseContext {
    snapshots: Vec<SeqNo>,
    history: Option<SeqNo>,
    bottommost: bool,
    shared_seq: Option<SeqNo>,
    rolled_back: Vec<std::ops::Range<SeqNo>>,
    has_filter: bool,
    has_no_operator: bool,
    comparator: KeyComparator,
}

fn seqs(text: &str) -> Vec<SeqNo> {
    text.split_whitespace().map(|s| SeqNo(s.parse().unwrap())).collect()
}

fn parse_context(text: &str) -> CaseContext {
    let mut context = CaseContext::default();
    for item in text.split(',').map(str::trim).filter(|i| !i.is_empty()) {
        if let Some(list) = item.strip_prefix("snapshots") {
            context.snapshots = seqs(list);
        } else if let Some(at) = item.strip_prefix("history") {
            context.history = seqs(at).first().copied();
        } else if let Some(at) = item.strip_prefix("shared") {
            context.shared_seq = seqs(at).first().copied();
        } else if let Some(list) = item.strip_prefix("rolled back") {
            context.rolled_back = seqs(list).into_iter().map(|s| s..s.plus(1)).collect();
        } else {
            match item {
                "bottom" => context.bottommost = true,
                "filter" => context.has_filter = true,
                "no operator" => context.has_no_operator = true,
                "ignore case" => context.comparator = KeyComparator::CaseInsensitive,
                _ => panic!("unknown context {item:?}"),
            }
        }
    }
    context
}

/// A version as text: `KEY.KIND.SEQ:VALUE@EXPIRY`.
struct TextVersion<'t> {
    key: &'t str,
    kind: &'t str,
    seq: SeqNo,
    value: &'t str,
    expiry: Option<Expiry>,
}

fn parse_version(text: &str) -> TextVersion<'_> {
    let (head, value) = text.split_once(':').unwrap_or((text, ""));
    let (value, expiry) = value.split_once('@').map_or((value, None), |(v, x)| (v, Some(x)));
    let mut parts = head.split('.');
    let mut part = || parts.next().unwrap_or_else(|| panic!("malformed version {text:?}"));
    let (key, kind, seq) = (part(), part(), part());
    let expiry = expiry.map(|x| Expiry(x.parse().unwrap()));
    TextVersion { key, kind, seq: SeqNo(seq.parse().unwrap()), value, expiry }
}

/// Returns a memtable with this version only.
fn memtable_of(v: &TextVersion<'_>, comparator: KeyComparator) -> Arc<Memtable> {
    let mut b = Batch::new();
    let (family, key, value) = (FamilyId(0), v.key.as_bytes(), v.value.as_bytes());
    match (v.kind, v.expiry) {
        ("PUT", None) => b.put(family, key, value).unwrap(),
        ("PUT", Some(expiry)) => b.put_expiring(family, key, value, expiry).unwrap(),
        ("DEL", _) => b.delete(family, key).unwrap(),
        ("SDEL", _) => b.single_delete(family, key).unwrap(),
        ("MERGE", _) => b.merge(family, key, value).unwrap(),
        _ => panic!("unknown kind {}", v.kind),
    }
    let record = b.finish();
    let ops: Vec<(BatchOp, OpIndex)> = BatchOps::new(&record.buf, record.payload_range())
        .map(|op| (op.unwrap(), OpIndex(0)))
        .collect();
    let memtable = Arc::new(Memtable::new(comparator));
    memtable.insert(&Arc::new(record.buf), v.seq, &ops).unwrap();
    memtable
}

/// Returns the key, kind, sequence number and value of an entry as text.
fn entry_text(key: &[u8], seq: SeqNo, value: &ValueRef<'_>) -> String {
    let key = String::from_utf8_lossy(key);
    let text = |v: &[u8]| String::from_utf8_lossy(v).into_owned();
    match value {
        ValueRef::Tombstone => format!("{key}.DEL.{}", seq.0),
        ValueRef::SingleDelete => format!("{key}.SDEL.{}", seq.0),
        ValueRef::Inline(v) => format!("{key}.PUT.{}:{}", seq.0, text(v)),
        ValueRef::InlineExpiring(v, x) => format!("{key}.PUT.{}:{}@{}", seq.0, text(v), x.0),
        ValueRef::Operand(v) => format!("{key}.MERGE.{}:{}", seq.0, text(v)),
        other => panic!("a case has no value log: {other:?}"),
    }
}

fn boundary_text(b: &KeyBoundary) -> String {
    b.as_ref().key().map(|k| String::from_utf8_lossy(k).into_owned()).unwrap_or_default()
}

fn dropped_text(counts: &RewriteCounts) -> String {
    let of = |n: u64, name: &str| if n > 0 { format!("{n} {name}") } else { String::new() };
    let all = [
        of(counts.shadowed, "shadowed"),
        of(counts.obsolete_tombstones, "obsolete"),
        of(counts.expired, "expired"),
        of(counts.covered, "covered"),
        of(counts.cancelled, "cancelled"),
        of(counts.filtered, "filtered"),
        of(counts.merged, "merged"),
        of(counts.rolled_back, "rolled back"),
    ];
    all.into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(", ")
}

impl Fixture {
    fn new() -> Fixture {
        let dir = SimDisk::new(1).open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
        Fixture {
            table_cache: TableCache::new(
                dir,
                1,
                Arc::new(BlockCache::new(1 << 16)),
                Arc::default(),
            ),
            version: Version::empty(KeyComparator::Bytes),
            ids: AtomicU64::new(1),
            clock: FixedClock(NOW_MS),
        }
    }

    fn job<'a>(&'a self, case: &CaseContext) -> RewriteContext<'a> {
        let mut operators = MergeOperators::default();
        operators.register(Arc::new(CommaOperator));
        let rule = MergeRule::User("comma".to_owned());
        let filter = RewriteFilter { filter: &WordFilter, level: LevelNo(6) };
        RewriteContext {
            version: &self.version,
            stripes: SnapshotStripes::new(case.snapshots.clone(), PRESENT)
                .with_history_from(case.history),
            options: KlogOptions {
                database: 1,
                family: FamilyId(0),
                comparator: case.comparator,
                block_bytes: 4096,
                compression: Compression::None,
                filter_bits: 10,
            },
            separation_threshold: usize::MAX,
            target_bytes: 1 << 20,
            cuts: Vec::new(),
            verify_outputs: false,
            fill_cache: false,
            table_cache: &self.table_cache,
            next_file_id: &self.ids,
            pacer: &NoPacing,
            now: &self.clock,
            merge_operator: operators.merger(Some(&rule)).filter(|_| !case.has_no_operator),
            filter: case.has_filter.then_some(filter),
            bottom_seq: case.shared_seq,
            deferred_sync: None,
        }
    }

    /// Returns what a rewrite of these versions writes, and its counts.
    fn reduce(&self, versions: &str, case: &CaseContext) -> (String, RewriteCounts) {
        let comparator = case.comparator;
        let (mut sources, mut ranges) = (Vec::new(), RangeTombstones::default());
        for v in versions.split_whitespace().map(parse_version) {
            if let ("RANGEDEL", Some((begin, end))) = (v.kind, v.key.split_once('-')) {
                let (begin, end) = (begin.as_bytes(), end.as_bytes());
                let before = KeyBoundaryRef::Before;
                ranges.add(comparator, before(begin), before(end), v.seq);
            } else {
                sources.push(SourceCursor::from(memtable_of(&v, comparator).cursor()));
            }
        }
        let input = RewriteInput {
            source: MergeCursor::new(comparator, sources),
            bottommost: case.bottommost,
            range_tombstones: ranges,
            relocate_vlogs: BTreeSet::new(),
            zero_seqs: false,
            pass_through_blocks: false,
            rolled_back: case.rolled_back.clone().into(),
        };
        let job = self.job(case);
        let mut iterator = CompactionIterator::new(input, &job);
        let mut output = Vec::new();
        for f in iterator.range_tombstones().fragments() {
            let (begin, end) = (boundary_text(&f.begin), boundary_text(&f.end));
            output.extend(f.seqs.iter().map(|seq| format!("{begin}-{end}.RANGEDEL.{}", seq.0)));
        }
        let ranges_written = output.len() as u64;
        iterator.seek_first().unwrap();
        while let Some(item) = iterator.next().unwrap() {
            match item {
                CompactionItem::Entry(e) => {
                    output.push(entry_text(e.entry.key, e.entry.seq, &e.entry.value));
                }
                CompactionItem::Block(block) => panic!("a memtable has no blocks: {block:?}"),
                CompactionItem::QuantumEnd => drop(iterator.take_progress(OutputBytes::default())),
            }
        }
        let counts = iterator.counts();
        assert_eq!(
            counts.read,
            output.len() as u64 - ranges_written + counts.dropped(),
            "{versions}: {output:?} {counts:?}"
        );
        (output.join(" "), counts)
    }
}

/// Returns the lines that are wrong, with what the rewrite did; `has_counts`: lines list what is
/// dropped.
fn wrong_cases<'t>(lines: impl Iterator<Item = &'t str>, has_counts: bool) -> Vec<String> {
    let fixture = Fixture::new();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut wrong = Vec::new();
    for line in lines {
        let (input, expected) = line.split_once("->").unwrap_or_else(|| panic!("no arrow: {line}"));
        let (versions, context) = input.split_once('|').unwrap_or((input, ""));
        let (output, dropped) = expected.split_once(';').unwrap_or((expected, ""));
        let (written, counts) = fixture.reduce(versions, &parse_context(context));
        let counted = if has_counts { dropped_text(&counts) } else { words(dropped) };
        if written != words(output) || counted != words(dropped) {
            wrong.push(format!("{} -> {written} ; {counted}", words(input)));
        }
    }
    wrong
}

#[test]
fn examples_in_the_header_are_correct() {
    let header = || include_str!("reduce.rs").lines().map_while(|l| l.strip_prefix("//!"));
    let examples = || header().filter(|l| l.contains("->"));
    assert!(examples().count() > 20, "{} examples were found", examples().count());
    let wrong = wrong_cases(examples(), false);
    assert!(wrong.is_empty(), "should be: {wrong:#?}");
}

#[test]
fn rules_decide_as_listed() {
    let cases = || CASES.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    assert!(cases().count() >= 100, "{} cases were found", cases().count());
    let wrong = wrong_cases(cases(), true);
    assert!(wrong.is_empty(), "should be: {wrong:#?}");
}

#[test]
fn failing_filter_fails_the_rewrite() {
    let fixture = Fixture::new();
    let case = parse_context("filter");
    let memtable = memtable_of(&parse_version("a.PUT.8:fail"), KeyComparator::Bytes);
    let sources = vec![SourceCursor::from(memtable.cursor())];
    let input = RewriteInput {
        source: MergeCursor::new(KeyComparator::Bytes, sources),
        bottommost: false,
        range_tombstones: RangeTombstones::default(),
        relocate_vlogs: BTreeSet::new(),
        zero_seqs: false,
        pass_through_blocks: false,
        rolled_back: Arc::default(),
    };
    let job = fixture.job(&case);
    let mut iterator = CompactionIterator::new(input, &job);
    iterator.seek_first().unwrap();
    assert!(iterator.next().unwrap_err().to_string().contains("the filter fails"));
}

/// Once a range tombstone has hidden many entries, the rewrite seeks past the rest.
#[test]
fn long_covered_sequence_is_not_read() {
    let fixture = Fixture::new();
    let versions: Vec<String> = (0..40).map(|i| format!("k{i:02}.PUT.5:x")).collect();
    let versions = versions.join(" ");
    let covered = |context: &str| {
        let text = format!("k00-k30.RANGEDEL.7 {versions}");
        fixture.reduce(&text, &parse_context(context)).1
    };
    assert_eq!((covered("").covered, covered("").read), (16, 26));
    // Entries hidden from the present only are all read: a snapshot may see those between them.
    assert_eq!(covered("snapshots 3").covered, 30);
}

/// What a reader sees of one key.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    Value(String),
}

/// Returns what a reader at `at` sees of the versions of one key, newest first.
fn read(versions: &str, at: SeqNo) -> Seen {
    let mut operands: Vec<&str> = Vec::new();
    let mut base = None;
    for v in versions.split_whitespace().map(parse_version).filter(|v| v.seq <= at) {
        match v.kind {
            "MERGE" => operands.push(v.value),
            "PUT" if v.expiry.is_none_or(|x| !x.is_expired(NOW_MS)) => {
                base = Some(v.value);
                break;
            }
            _ => break,
        }
    }
    let all: Vec<&str> = base.into_iter().chain(operands.into_iter().rev()).collect();
    if all.is_empty() { Seen::Nothing } else { Seen::Value(all.join(",")) }
}

/// Returns a history of one key, newest first, of which single deletes follow exactly one put.
fn random_history(below: &mut impl FnMut(u64) -> u64) -> Vec<String> {
    let (mut history, mut puts) = (Vec::new(), 0);
    for seq in 1..=1 + below(8) {
        let value = char::from(b'a' + seq as u8);
        let (text, puts_now) = match below(8) {
            0 => (format!("k.DEL.{seq}"), 0),
            1 | 2 if puts == 1 => (format!("k.SDEL.{seq}"), 0),
            3 | 4 => (format!("k.MERGE.{seq}:{value}"), 2),
            5 => (format!("k.PUT.{seq}:{value}@{}", 40 + below(20)), puts + 1),
            _ => (format!("k.PUT.{seq}:{value}"), puts + 1),
        };
        puts = puts_now;
        history.push(text);
    }
    history.reverse();
    history
}

/// A rewrite of the newest versions of a key does not change what any reader sees, whatever lies
/// below.
#[test]
fn readers_see_the_same_before_and_after() {
    let (fixture, mut random) = (Fixture::new(), 0x9E37_79B9_7F4A_7C15_u64);
    let mut below = |n: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) % n
    };
    for case in 0..4000 {
        let history = random_history(&mut below);
        let mut context = CaseContext { has_no_operator: below(8) == 0, ..CaseContext::default() };
        let snapshots = below(4);
        context.snapshots = (0..snapshots).map(|_| SeqNo(1 + below(8))).collect();
        let inputs = 1 + below(history.len() as u64) as usize;
        context.bottommost = inputs == history.len();
        let (newer, older) = (history[..inputs].join(" "), history[inputs..].join(" "));
        let (written, _) = fixture.reduce(&newer, &context);
        for at in context.snapshots.iter().chain([&PRESENT]) {
            assert_eq!(
                read(&format!("{written} {older}"), *at),
                read(&format!("{newer} {older}"), *at),
                "case {case}, reader at {}: {newer} | {:?}, bottom {} -> {written}, above {older}",
                at.0,
                context.snapshots,
                context.bottommost,
            );
        }
    }
}
