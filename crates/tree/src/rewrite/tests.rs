//! Merges with block pass-through against merges that process every entry.

use super::pending_operands::PendingOperands;
use super::reduce::OperandBase;
use super::*;
use crate::compact::{CompactionPlan, CompactionReason, run_compaction};
use crate::flush::flush;
use crate::mvcc::SnapshotStripes;
use crate::scan::{MergeCursor, RunCursor, SourceCursor};
use crate::{Memtable, Version, VersionEdit};
use perigee_base::{
    Expiry, FamilyId, FixedClock, KeyBoundary, KeyBoundaryRef, KeyComparator, LevelNo, OpIndex,
    RunId, SeqNo, ValueRef, violation,
};
use perigee_env::fs::memory::SimDisk;
use perigee_env::{DirOpenMode, Fs};
use perigee_file::log::{Batch, BatchOp, BatchOps};
use perigee_file::{BlockCache, Compression, KlogOptions, TableCache};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

struct RewriteFixture {
    tables: TableCache,
    ids: AtomicU64,
    version: Version,
    comparator: KeyComparator,
    seq: u64,
    random: u64,
    snapshots: Vec<SeqNo>,
    threshold: usize,
    cuts: Vec<KeyBoundary>,
    target_bytes: u64,
    use_bottom_seq: bool,
}

impl RewriteFixture {
    fn new(seed: u64, comparator: KeyComparator) -> RewriteFixture {
        let dir =
            SimDisk::new(seed).open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
        let table_cache =
            TableCache::new(dir, 1, Arc::new(BlockCache::new(1 << 16)), Arc::default());
        RewriteFixture {
            tables: table_cache,
            ids: AtomicU64::new(1),
            version: Version::empty(comparator),
            comparator,
            seq: 0,
            random: seed * 2 + 1,
            snapshots: Vec::new(),
            threshold: usize::MAX,
            cuts: Vec::new(),
            target_bytes: 8 << 10,
            use_bottom_seq: false,
        }
    }
    fn random_below(&mut self, n: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % n
    }

    /// Flushes every `step`-th key of a range. Of every `odd_every` entries about one is a delete,
    /// one an expiring put, one a single delete and one a range delete (0: none).
    fn flush(&mut self, keys: std::ops::Range<u64>, step: usize, odd_every: u64) {
        let memtable = Arc::new(Memtable::new(self.comparator));
        let kinds = [2, 250][self.seq as usize % 4 / 3];
        for k in keys.clone().step_by(step) {
            let mut b = Batch::new();
            let key = format!("key{k:06}").into_bytes();
            let len = 20 + self.random_below(30) as usize;
            let value: Vec<u8> = (0..len).map(|_| self.random_below(kinds) as u8).collect();
            match if odd_every == 0 { 9 } else { self.random_below(odd_every) } {
                0 => b.delete(FamilyId(0), &key).unwrap(),
                1 => b
                    .put_expiring(FamilyId(0), &key, &value, Expiry(40 + self.random_below(20)))
                    .unwrap(),
                2 => b.single_delete(FamilyId(0), &key).unwrap(),
                3 => {
                    let end = format!("key{:06}", k + 1 + self.random_below(40)).into_bytes();
                    b.delete_range(
                        FamilyId(0),
                        KeyBoundaryRef::Before(&key),
                        KeyBoundaryRef::Before(&end),
                    )
                    .unwrap();
                }
                _ => b.put(FamilyId(0), &key, &value).unwrap(),
            }
            self.seq += 1;
            let f = b.finish();
            let ops: Vec<(BatchOp, OpIndex)> = BatchOps::new(&f.buf, f.payload_range())
                .map(|op| (op.unwrap(), OpIndex(0)))
                .collect();
            memtable.insert(&Arc::new(f.buf), SeqNo(self.seq), &ops).unwrap();
        }
        let run = RunId(self.seq);
        let (edit, _) =
            flush(&memtable, run, self.context(), &mut CreatedFiles::default()).unwrap();
        self.install(&edit);
    }

    fn context(&self) -> RewriteContext<'_> {
        RewriteContext {
            version: &self.version,
            stripes: SnapshotStripes::new(self.snapshots.clone(), SeqNo(self.seq)),
            options: KlogOptions {
                database: 1,
                family: FamilyId(0),
                comparator: self.comparator,
                block_bytes: 256,
                compression: Compression::Lz4,
                filter_bits: 10,
            },
            separation_threshold: self.threshold,
            target_bytes: self.target_bytes,
            cuts: Vec::new(),
            verify_outputs: true,
            fill_cache: false,
            table_cache: &self.tables,
            next_file_id: &self.ids,
            pacer: &NoPacing,
            now: &FixedClock(50),
            merge_operator: None,
            filter: None,
            bottom_seq: self.use_bottom_seq.then_some(SeqNo(self.seq)),
            deferred_sync: None,
        }
    }
    fn install(&mut self, edit: &VersionEdit) {
        self.version = self.version.apply(edit, &self.tables).unwrap();
    }

    fn merge(&self, reason: CompactionReason) -> (VersionEdit, RewriteOutput) {
        let inputs = self.version.tables().map(|(level, _, t)| (level, t.meta.id)).collect();
        let plan = CompactionPlan {
            cuts: self.cuts.clone(),
            ..CompactionPlan::merge(reason, inputs, LevelNo(6))
        };
        run_compaction(&plan, self.context(), &mut CreatedFiles::default()).unwrap()
    }

    /// Returns the entries of the version that results from an edit.
    fn contents(&self, edit: &VersionEdit) -> Vec<String> {
        let version = self.version.apply(edit, &self.tables).unwrap();
        let run_cursor =
            |r: &Arc<_>| SourceCursor::Run(RunCursor::new(Arc::clone(r), self.comparator, false));
        let mut c = MergeCursor::new(self.comparator, version.runs().map(run_cursor).collect());
        let mut all = Vec::new();
        c.seek_first().unwrap();
        while c.valid() {
            let mut entry = c.entry();
            // The sequence number of values with a common one is not compared.
            entry.seq = if self.use_bottom_seq { SeqNo::ZERO } else { entry.seq };
            all.push(format!("{entry:?}"));
            c.step().unwrap();
        }
        all
    }
}

/// Small runs over a large one, clustered and scattered: block pass-through does not change what
/// readers see.
#[test]
fn block_pass_through_matches_entry_merge() {
    let mut passed_through = 0;
    for seed in 1..=40 {
        let comparator =
            [KeyComparator::Bytes, KeyComparator::CaseInsensitive][seed as usize % 4 / 3];
        let mut fixture = RewriteFixture::new(seed, comparator);
        let odd_every = [0, 30, 200][seed as usize % 3];
        fixture.flush(0..3000, 1, odd_every);
        for _ in 0..fixture.random_below(4) {
            let (start, len) = (fixture.random_below(3000), fixture.random_below(900));
            let step = [1, 7, 90][fixture.random_below(3) as usize];
            let odd_every = odd_every * fixture.random_below(2);
            fixture.flush(start..start + len, step, odd_every);
        }
        if seed % 5 == 0 {
            fixture.snapshots = vec![SeqNo(fixture.seq / 2), SeqNo(fixture.seq - 10)];
        }
        if seed % 7 == 0 {
            fixture.threshold = 40;
        }
        // Tables that are full with their first block, and tables that end at boundaries.
        fixture.target_bytes = [8 << 10, 100][seed as usize % 9 / 8];
        fixture.use_bottom_seq = seed % 5 > 0 && seed % 4 == 1;
        if seed % 2 == 0 {
            fixture.cuts = (1..30)
                .map(|i| KeyBoundary::Before(format!("key{:06}", i * 101).into_bytes()))
                .collect();
        }
        let (by_block, out) = fixture.merge(CompactionReason::LevelBytes);
        let (by_entry, all) = fixture.merge(CompactionReason::Manual);
        assert_eq!(out.counts.written, all.counts.written, "seed {seed}");
        assert_eq!(all.counts.passed_through, 0);
        let (contents_by_block, contents_by_entry) =
            (fixture.contents(&by_block), fixture.contents(&by_entry));
        assert_eq!(contents_by_block.len(), contents_by_entry.len(), "seed {seed}");
        if fixture.threshold == usize::MAX {
            assert_eq!(contents_by_block, contents_by_entry, "seed {seed}");
        }
        passed_through += out.counts.passed_through;
        // Merge again, with blocks that were copied before.
        fixture.install(&by_block);
        fixture.threshold = usize::MAX;
        fixture.flush(500..700, 3, 0);
        let (second, out) = fixture.merge(CompactionReason::LevelBytes);
        fixture.contents(&second);
        passed_through += out.counts.passed_through;
    }
    assert!(passed_through > 60_000, "only {passed_through} entries were moved in whole blocks");
}

/// Values that every reader sees share one sequence number at the bottommost level, in copied
/// blocks too.
#[test]
fn bottommost_entries_share_one_seq() {
    let mut fixture = RewriteFixture::new(5, KeyComparator::Bytes);
    fixture.flush(0..2000, 1, 0);
    fixture.flush(100..200, 3, 0);
    fixture.use_bottom_seq = true;
    let (edit, out) = fixture.merge(CompactionReason::LevelBytes);
    assert!(
        out.tables.iter().all(|t| t.seq_range() == (SeqNo(fixture.seq), SeqNo(fixture.seq))),
        "{:?}",
        out.counts
    );
    fixture.install(&edit);
    fixture.flush(700..720, 1, 0);
    let (_, out) = fixture.merge(CompactionReason::LevelBytes);
    assert!(out.counts.passed_through > 1500, "{:?}", out.counts);
}

/// Disjoint runs keep all their entries, and all blocks but those at the ends of runs are copied.
#[test]
fn disjoint_runs_pass_through_nearly_whole() {
    let mut fixture = RewriteFixture::new(77, KeyComparator::Bytes);
    for i in 0..4 {
        fixture.flush(i * 1000..(i + 1) * 1000, 1, 0);
    }
    let (_, out) = fixture.merge(CompactionReason::Level0Runs);
    assert!(out.counts.passed_through > 3800, "{:?}", out.counts);
}

#[test]
fn assertions_of_operands_detect_violations() {
    let version = Version::empty(KeyComparator::Bytes);
    let cases: [(&str, &dyn Fn()); 3] = [
        ("joined operands replace at least one", &|| PendingOperands::default().replace_all(b"v")),
        ("operands are merged onto a value if their base is a version", &|| {
            let mut operands = PendingOperands::default();
            let _ = operands.merge(b"k", None, OperandBase::Version, None, &version);
        }),
        ("operands come newest first", &|| {
            let mut operands = PendingOperands::default();
            operands.push(SeqNo(1), ValueRef::Operand(b"v"), true);
            operands.push(SeqNo(2), ValueRef::Operand(b"v"), false);
        }),
    ];
    for (invariant, work) in cases {
        let message = violation(work);
        assert!(message.contains(invariant), "{invariant}: {message}");
    }
}
