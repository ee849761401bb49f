//! Flushes, compactions and repairs of generated inputs write the same bytes as they did when the
//! hashes in this file were recorded: table files, value logs, counters and pacing.
//!
//! The inputs contain every kind of entry (puts, expiring puts, deletes, single deletes, range
//! deletes, merge operands, duplicates, rolled-back entries) under snapshots, history horizons,
//! compaction filters, merge operators that fail, value separation, block pass-through, output
//! boundaries and common sequence numbers.
//!
//! After an intended change of the output: `UPDATE_HASHES=1 cargo test -p perigeedb-tree --test
//! rewrite_golden`. `GOLDEN_SEEDS=1..601` hashes other seeds and prints one line for each, which
//! compares two revisions; `GOLDEN_DETAIL=1` prints a line for each rewrite.
#![allow(clippy::unwrap_used)]

use perigee_base::{
    Error, Expiry, FamilyId, FileId, FixedClock, KeyBoundary, KeyBoundaryRef, KeyComparator,
    LevelNo, MergeOperator, MergeOperators, MergeRule, OpIndex, OperandMerger, Result, RunId,
    SeqNo,
};
use perigee_env::fs::memory::SimDisk;
use perigee_env::{DirOpenMode, Fs};
use perigee_file::log::{Batch, BatchOp, BatchOps};
use perigee_file::{BlockCache, Compression, KlogOptions, TableCache};
use perigee_tree::compact::{CompactionPlan, CompactionReason, run_compaction};
use perigee_tree::read::{MergeCursor, RunCursor, SourceCursor};
use perigee_tree::rewrite::{
    CompactionFilter, CreatedFiles, FilterDecision, FilterEntry, RewriteContext, RewriteFilter,
    RewriteInput, RewriteOutput, RewritePacer, RewriteProgress, run_rewrite,
};
use perigee_tree::{Memtable, Run, SnapshotStripes, Version, VersionEdit, flush};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Number of seeds with recorded hashes.
const RECORDED_SEEDS: u64 = 60;
const HASHES: &str = include_str!("rewrite_golden.txt");

/// FNV-1a.
fn hash_bytes(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

fn hash_of(bytes: &[u8]) -> u64 {
    hash_bytes(0xcbf2_9ce4_8422_2325, bytes)
}

/// Hashes the progress that it is called with; cancels after a number of calls.
#[derive(Debug)]
struct HashingPacer {
    hash: Mutex<u64>,
    calls_left: AtomicU64,
}

impl HashingPacer {
    fn add(&self, what: &str, p: RewriteProgress) {
        let text = format!("{what} {} {} {};", p.entries, p.read_bytes, p.written_bytes);
        let mut hash = self.hash.lock().unwrap();
        *hash = hash_bytes(*hash, text.as_bytes());
    }
}

impl RewritePacer for HashingPacer {
    fn throttle(&self, moved: RewriteProgress) -> Result<()> {
        self.add("moved", moved);
        match self.calls_left.fetch_sub(1, Relaxed) {
            0 => Err(Error::invalid("cancelled by the test")),
            _ => Ok(()),
        }
    }
    fn record_final(&self, moved: RewriteProgress) {
        self.add("final", moved);
    }
}

/// Decides by a hash of key and value.
struct HashFilter {
    salt: u64,
    fails: bool,
}

impl CompactionFilter for HashFilter {
    fn name(&self) -> &str {
        "hash"
    }
    fn decide(&self, entry: &FilterEntry<'_>) -> Result<FilterDecision> {
        let hash = hash_bytes(hash_bytes(self.salt, entry.key()), &entry.value()?);
        Ok(match hash >> 8 & 15 {
            0..=3 => FilterDecision::Drop,
            4..=5 => FilterDecision::Change(Vec::new()),
            6..=7 => FilterDecision::Change(hash.to_le_bytes().repeat((hash % 9) as usize)),
            8 if self.fails => return Err(Error::invalid("the filter of the test fails")),
            _ => FilterDecision::Keep,
        })
    }
}

/// Appends, but refuses operands that begin with '!' and results longer than 150 bytes.
struct RefusingOperator;

impl MergeOperator for RefusingOperator {
    fn name(&self) -> &str {
        "refusing"
    }
    fn merge(&self, _: &[u8], left: Option<&[u8]>, right: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let left = left.unwrap_or(b"-");
        if right.starts_with(b"!") || left.len() + right.len() > 150 {
            return Err(Error::invalid("refused"));
        }
        out.extend_from_slice(left);
        out.extend_from_slice(right);
        Ok(())
    }
}

/// A column family with generated contents, and what its rewrites wrote.
struct Family {
    seed: u64,
    random: u64,
    tables: TableCache,
    ids: AtomicU64,
    version: Version,
    comparator: KeyComparator,
    seq: u64,
    snapshots: Vec<SeqNo>,
    horizon: Option<SeqNo>,
    options: KlogOptions,
    threshold: usize,
    target_bytes: u64,
    cuts: Vec<KeyBoundary>,
    merger: Option<Arc<OperandMerger>>,
    filter: Option<HashFilter>,
    bottom_seq: Option<SeqNo>,
    clock: FixedClock,
    /// Kinds of operations that the generator chooses from.
    kinds: Vec<u8>,
    hash: u64,
    log: Vec<String>,
}

impl Family {
    fn new(seed: u64) -> Family {
        let dir = SimDisk::new(1).open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
        let cache = TableCache::new(dir, 1, Arc::new(BlockCache::new(1 << 16)), Arc::default());
        let comparator =
            if seed % 6 == 5 { KeyComparator::CaseInsensitive } else { KeyComparator::Bytes };
        let compression = [Compression::Lz4, Compression::None, Compression::Snappy];
        let mut family = Family {
            seed,
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            tables: cache,
            ids: AtomicU64::new(1),
            version: Version::empty(comparator),
            comparator,
            seq: 0,
            snapshots: Vec::new(),
            horizon: None,
            options: KlogOptions {
                database: 1,
                family: FamilyId(0),
                comparator,
                block_bytes: 256,
                compression: compression[seed as usize % 3],
                filter_bits: 10,
            },
            threshold: usize::MAX,
            target_bytes: 8 << 10,
            cuts: Vec::new(),
            merger: None,
            filter: None,
            bottom_seq: None,
            clock: FixedClock(30),
            kinds: Vec::new(),
            hash: hash_of(b""),
            log: Vec::new(),
        };
        family.choose_settings();
        family
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % n
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn choose_settings(&mut self) {
        self.threshold = [usize::MAX, 30, 1, usize::MAX][self.below(4) as usize];
        self.target_bytes = [8 << 10, 1500, 100][self.below(3) as usize];
        let mut operators = MergeOperators::default();
        operators.register(Arc::new(RefusingOperator));
        let rule = match self.below(4) {
            0 => None,
            1 => Some(MergeRule::Counter),
            2 => Some(MergeRule::Append(",".to_owned())),
            _ => Some(MergeRule::User("refusing".to_owned())),
        };
        self.merger = operators.merger(rule.as_ref());
        if self.one_in(4) {
            self.filter = Some(HashFilter { salt: self.seed, fails: self.one_in(8) });
        }
        // 0: delete, 1: single delete, 2: merge, 3: expiring put, 4: range delete, 5..: put.
        let mut kinds = vec![5, 5];
        for kind in 0..5 {
            let most = [4, 4, 12][self.below(3) as usize];
            (0..self.below(most)).for_each(|_| kinds.push(kind));
        }
        self.kinds = kinds;
    }

    fn choose_readers(&mut self) {
        self.snapshots.clear();
        for _ in 0..[0, 0, 1, 3, 6][self.below(5) as usize] {
            let at = self.below(self.seq + 1);
            self.snapshots.push(SeqNo(at));
        }
        self.horizon = None;
        if self.one_in(6) {
            self.horizon = Some(SeqNo(self.below(self.seq + 1)));
        }
    }

    fn key(&mut self, n: u64) -> Vec<u8> {
        let mut key = format!("key{n:05}").into_bytes();
        if self.comparator != KeyComparator::Bytes {
            let upper = self.below(8);
            (0..3).filter(|bit| upper >> bit & 1 == 1).for_each(|i| key[i].make_ascii_uppercase());
        }
        key
    }

    /// Adds one operation of a random kind to a batch.
    fn add_op(&mut self, batch: &mut Batch, number: u64, kind: u8) {
        let (id, key) = (FamilyId(0), self.key(number));
        let is_counter = self.merger.as_ref().is_some_and(|m| *m.rule() == MergeRule::Counter);
        let longest = [12, 70][self.below(2) as usize];
        let len = if is_counter && !self.one_in(12) { 8 } else { self.below(longest) };
        let first = if self.one_in(15) { b'!' } else { b'a' + self.below(26) as u8 };
        let mut value: Vec<u8> = (0..len).map(|_| b'a' + self.below(4) as u8).collect();
        value.iter_mut().take(1).for_each(|b| *b = first);
        match kind {
            0 => batch.delete(id, &key).unwrap(),
            1 => batch.single_delete(id, &key).unwrap(),
            2 => batch.merge(id, &key, &value).unwrap(),
            3 => {
                let expiry = Expiry(40 + self.below(20));
                batch.put_expiring(id, &key, &value, expiry).unwrap();
            }
            4 => {
                let end = number + 1 + self.below(30);
                let end = self.key(end);
                let (begin, end) = (KeyBoundaryRef::Before(&key), KeyBoundaryRef::Before(&end));
                batch.delete_range(id, begin, end).unwrap();
            }
            _ => batch.put(id, &key, &value).unwrap(),
        }
    }

    /// Returns a memtable: many versions of few keys, or ascending keys with few other kinds.
    fn memtable(&mut self) -> Arc<Memtable> {
        let memtable = Arc::new(Memtable::new(self.comparator));
        let (start, wide) = ([30, 300, 3000][self.below(3) as usize], self.one_in(3));
        let first = self.below(start);
        let (n, keys) = match wide {
            true => (50 + self.below(450), [1, 3, 8][self.below(3) as usize]),
            false => (1 + self.below(80), 1 + self.below(12)),
        };
        for i in 0..n {
            let number = if wide { first + i * keys } else { first + self.below(keys) };
            let kind = self.below(self.kinds.len() as u64) as usize;
            let kind = if wide && !self.one_in(40) { 5 } else { self.kinds[kind] };
            let mut batch = Batch::new();
            self.add_op(&mut batch, number, kind);
            self.insert(&memtable, batch);
        }
        memtable
    }

    fn insert(&mut self, memtable: &Memtable, batch: Batch) {
        let record = batch.finish();
        let ops: Vec<(BatchOp, OpIndex)> = BatchOps::new(&record.buf, record.payload_range())
            .enumerate()
            .map(|(i, op)| (op.unwrap(), OpIndex(i as u64)))
            .collect();
        memtable.insert(&Arc::new(record.buf), SeqNo(self.seq + 1), &ops).unwrap();
        self.seq += ops.len() as u64;
    }

    fn pacer(&mut self) -> HashingPacer {
        let calls = if self.one_in(25) { self.below(4) } else { u64::MAX };
        HashingPacer { hash: Mutex::new(hash_of(b"")), calls_left: AtomicU64::new(calls) }
    }

    fn context<'a>(&'a self, pacer: &'a HashingPacer, level: u8) -> RewriteContext<'a> {
        let filter = self.filter.as_ref().map(|f| f as &dyn CompactionFilter);
        RewriteContext {
            version: &self.version,
            stripes: SnapshotStripes::new(self.snapshots.clone(), SeqNo(self.seq))
                .with_history_from(self.horizon),
            options: self.options.clone(),
            separation_threshold: self.threshold,
            target_bytes: self.target_bytes,
            cuts: Vec::new(),
            verify_outputs: self.seed % 16 == 0,
            fill_cache: false,
            table_cache: &self.tables,
            next_file_id: &self.ids,
            pacer,
            now: &self.clock,
            merge_operator: self.merger.clone(),
            filter: filter.map(|filter| RewriteFilter { filter, level: LevelNo(level) }),
            bottom_seq: self.bottom_seq,
            deferred_sync: None,
        }
    }

    /// Adds the outcome of a rewrite to the hash: counters, pacing and the bytes of its files.
    fn record(
        &mut self,
        what: &str,
        pacer: &HashingPacer,
        created: &CreatedFiles,
        output: Result<&RewriteOutput>,
    ) {
        let mut text = format!("{what}: ");
        match output {
            Ok(output) => {
                text += &format!("{:?} {} calls", output.counts, output.write_calls);
                for CreatedFile { name, bytes } in self.created_files(created) {
                    text += &format!(" {name} {} {:016x}", bytes.len(), hash_of(&bytes));
                }
            }
            Err(e) => text += &format!("{e}"),
        }
        text += &format!(" pacing {:016x}", *pacer.hash.lock().unwrap());
        self.hash = hash_bytes(self.hash, text.as_bytes());
        self.log.push(text);
    }

    fn created_files(&self, created: &CreatedFiles) -> Vec<CreatedFile> {
        let dir = self.tables.dir();
        let mut files = Vec::new();
        for id in &created.0 {
            for extension in ["klog", "vlog"] {
                let name = format!("{:06}.{extension}", id.0);
                if let Some(len) = dir.file_len(&name).unwrap() {
                    let mut bytes = vec![0; len as usize];
                    dir.open(&name).unwrap().read_exact_at(&mut bytes, 0).unwrap();
                    files.push(CreatedFile { name, bytes });
                }
            }
        }
        files
    }

    fn install(&mut self, edit: &VersionEdit) {
        self.version = self.version.apply(edit, &self.tables).unwrap();
    }

    fn flush(&mut self, memtable: &Arc<Memtable>) {
        // Flushes do not filter.
        let (filter, pacer) = (self.filter.take(), self.pacer());
        let mut created = CreatedFiles::default();
        let result = flush(memtable, RunId(self.seq), self.context(&pacer, 0), &mut created);
        self.filter = filter;
        let output = result.as_ref().map(|(_, output)| output).map_err(clone_error);
        self.record("flush", &pacer, &created, output);
        if let Ok((edit, _)) = result {
            self.install(&edit);
        }
    }

    /// Merges all tables of the levels `from` and deeper, up to and including `to`.
    fn compact(&mut self, from: u8, to: u8) {
        let level_in = |l: &LevelNo| (from..=to).contains(&l.0);
        let tables = self.version.tables().filter(|(l, _, _)| level_in(l));
        let inputs: Vec<(LevelNo, FileId)> = tables.map(|(l, _, t)| (l, t.meta.id)).collect();
        let is_complete = inputs.len() == self.version.tables().count();
        let reason =
            [CompactionReason::Manual, CompactionReason::LevelBytes][self.below(3).min(1) as usize];
        let mut plan = CompactionPlan::merge(reason, inputs, LevelNo(to));
        if self.one_in(3) {
            let vlogs: Vec<FileId> = self.version.vlogs.keys().copied().collect();
            plan.relocate_vlogs = vlogs.into_iter().filter(|_| self.one_in(2)).collect();
        }
        plan.cuts = self.cuts.clone();
        let readers = SnapshotStripes::new(self.snapshots.clone(), SeqNo(self.seq))
            .with_history_from(self.horizon);
        self.bottom_seq = (is_complete && readers.is_in_oldest_stripe(SeqNo(self.seq)))
            .then_some(SeqNo(self.seq))
            .filter(|_| self.one_in(2));
        let (pacer, mut created) = (self.pacer(), CreatedFiles::default());
        let result = run_compaction(&plan, self.context(&pacer, to), &mut created);
        self.bottom_seq = None;
        let output = result.as_ref().map(|(_, output)| output).map_err(clone_error);
        self.record(&format!("compact {from}..={to} {reason:?}"), &pacer, &created, output);
        if let Ok((edit, _)) = result {
            self.install(&edit);
        }
    }

    /// Merges all runs, some of them twice, as a repair or the end of a large transaction does. The
    /// output is not installed.
    fn merge_copies(&mut self, extra: &Arc<Memtable>) {
        let comparator = self.comparator;
        let mut sources = vec![SourceCursor::from(extra.cursor())];
        let runs: Vec<Arc<Run>> = self.version.runs().cloned().collect();
        let all = SnapshotStripes::new(Vec::new(), SeqNo::MAX).with_history_from(Some(SeqNo::ZERO));
        let mut ranges = extra.range_tombstones().fragments(&all);
        for run in runs {
            for _ in 0..1 + self.below(3) / 2 {
                sources.push(SourceCursor::Run(RunCursor::new(
                    Arc::clone(&run),
                    comparator,
                    false,
                )));
            }
            for table in &run.tables {
                ranges = ranges.merge(comparator, table.reader.range_tombstones());
            }
        }
        let mut rolled_back: Vec<Range<SeqNo>> = Vec::new();
        let mut at = 1;
        while self.one_in(2) && at < self.seq {
            let start = at + self.below(self.seq / 2 + 1);
            at = start + 1 + self.below(6);
            rolled_back.push(SeqNo(start)..SeqNo(at));
            at += 1;
        }
        let relocate_vlogs: BTreeSet<FileId> = match self.one_in(3) {
            true => self.version.vlogs.keys().copied().collect(),
            false => BTreeSet::new(),
        };
        let (bottommost, zero_seqs) = (self.one_in(2), self.one_in(5));
        let pass_through_blocks = self.one_in(3) && rolled_back.is_empty();
        let input = RewriteInput {
            source: MergeCursor::new(comparator, sources),
            bottommost,
            range_tombstones: ranges,
            relocate_vlogs,
            zero_seqs,
            pass_through_blocks,
            rolled_back: rolled_back.into(),
        };
        let (pacer, mut created) = (self.pacer(), CreatedFiles::default());
        let result = run_rewrite(input, self.context(&pacer, 6), &mut created);
        self.record("copies", &pacer, &created, result.as_ref().map_err(clone_error));
    }

    /// Flushes more operands of one key than are held at a time.
    fn flush_many_operands(&mut self) {
        self.merger = MergeOperators::default().merger(Some(&MergeRule::Counter));
        let memtable = Arc::new(Memtable::new(self.comparator));
        for _ in 0..70 {
            let mut batch = Batch::new();
            for i in 0..1000u64 {
                batch.merge(FamilyId(0), b"key00001", &i.to_le_bytes()).unwrap();
            }
            self.insert(&memtable, batch);
        }
        self.flush(&memtable);
    }
}

struct CreatedFile {
    name: String,
    bytes: Vec<u8>,
}

fn clone_error(e: &Error) -> Error {
    Error::invalid(e.to_string())
}

/// Returns the hash of everything that the rewrites of one seed wrote, and one line for each.
fn run_seed(seed: u64) -> (u64, Vec<String>) {
    let mut family = Family::new(seed);
    if family.one_in(2) {
        let every = 1 + family.below(60);
        let keys = (1..30).map(|i| format!("key{:05}", i * every).into_bytes());
        family.cuts = keys.map(KeyBoundary::Before).collect();
        family.cuts.dedup();
    }
    if seed % 100 == 7 {
        family.flush_many_operands();
    }
    for _ in 0..8 + family.below(8) {
        family.clock = FixedClock(family.clock.0 + family.below(8));
        match family.below(10) {
            0..=4 => {
                let memtable = family.memtable();
                family.choose_readers();
                family.flush(&memtable);
            }
            5 => {
                let memtable = family.memtable();
                family.choose_readers();
                family.merge_copies(&memtable);
            }
            n => {
                family.choose_readers();
                let (from, to) = [(0, 6), (0, 5), (5, 6), (0, 4)][n as usize - 6];
                family.compact(from, to);
            }
        }
    }
    (family.hash, family.log)
}

#[test]
fn rewrites_write_the_recorded_bytes() {
    let seeds = std::env::var("GOLDEN_SEEDS").ok();
    let range = seeds.as_ref().map(|s| {
        let (from, to) = s.split_once("..").unwrap();
        from.parse::<u64>().unwrap()..to.parse::<u64>().unwrap()
    });
    let mut hashes = String::new();
    for seed in range.unwrap_or(1..RECORDED_SEEDS + 1) {
        let (hash, log) = run_seed(seed);
        hashes += &format!("{seed} {hash:016x}\n");
        if std::env::var_os("GOLDEN_DETAIL").is_some() {
            log.iter().for_each(|line| println!("{seed} {line}"));
        }
    }
    if seeds.is_some() {
        println!("{hashes}");
        return;
    }
    if std::env::var_os("UPDATE_HASHES").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rewrite_golden.txt");
        std::fs::write(path, &hashes).unwrap();
        return;
    }
    for (now, recorded) in hashes.lines().zip(HASHES.lines()) {
        assert_eq!(now, recorded, "the bytes written have changed (seed and hash)");
    }
    assert_eq!(hashes.lines().count(), HASHES.lines().count());
}
