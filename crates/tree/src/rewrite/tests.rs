//! Merges that move blocks as they lie, against merges that look at every entry.

use super::*;
use crate::compact::{Plan, Reason, compact};
use crate::flush::flush;
use crate::mvcc::Strata;
use crate::scan::{MergeCursor, RunCursor, Source};
use crate::version::Opener;
use crate::{Memtable, Table, TableMeta, Version, VersionEdit, Vlog, VlogMeta};
use perigee_base::cut::{Cut, CutRef};
use perigee_base::expiry::Frozen;
use perigee_base::{Expiry, FamilyId, KeyOrder, LevelNo, Result, RunId, SeqNo};
use perigee_env::fs::memory::SimDisk;
use perigee_env::{Fs, OpenDir};
use perigee_file::log::{Batch, Op, Ops};
use perigee_file::{BlockCache, Compression, KlogOptions, Shelf};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

struct Tables(Shelf);

impl Opener for Tables {
    fn table(&self, meta: &TableMeta) -> Result<Arc<Table>> {
        Ok(Arc::new(Table { meta: meta.clone(), reader: self.0.klog(meta.id, meta.summary.bytes)? }))
    }
    fn vlog(&self, meta: &VlogMeta) -> Result<Arc<Vlog>> {
        Ok(Arc::new(Vlog { meta: meta.clone(), reader: self.0.vlog(meta.id, meta.bytes)? }))
    }
}

struct World {
    tables: Tables,
    ids: AtomicU64,
    version: Version,
    order: KeyOrder,
    seq: u64,
    random: u64,
    snapshots: Vec<SeqNo>,
    threshold: usize,
    cuts: Vec<Cut>,
    target_bytes: u64,
    settle: bool,
}

impl World {
    fn new(seed: u64, order: KeyOrder) -> World {
        let dir = SimDisk::new(seed).open_dir(Path::new("/db"), OpenDir::CreateIfMissing).unwrap();
        let shelf = Shelf::new(dir, 1, Arc::new(BlockCache::new(1 << 16)), Arc::default());
        World {
            tables: Tables(shelf),
            ids: AtomicU64::new(1),
            version: Version::empty(order),
            order,
            seq: 0,
            random: seed * 2 + 1,
            snapshots: Vec::new(),
            threshold: usize::MAX,
            cuts: Vec::new(),
            target_bytes: 8 << 10,
            settle: false,
        }
    }
    fn below(&mut self, n: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % n
    }

    /// Keys of a stretch, every `step`-th of them; now and then something other than a put.
    fn flush(&mut self, keys: std::ops::Range<u64>, step: usize, odd: u64) {
        let memtable = Arc::new(Memtable::new(self.order));
        let kinds = [2, 250][self.seq as usize % 4 / 3];
        for k in keys.clone().step_by(step) {
            let mut b = Batch::new();
            let key = format!("key{k:06}").into_bytes();
            let len = 20 + self.below(30) as usize;
            let value: Vec<u8> = (0..len).map(|_| self.below(kinds) as u8).collect();
            match if odd == 0 { 9 } else { self.below(odd) } {
                0 => b.delete(FamilyId(0), &key).unwrap(),
                1 => b.put_until(FamilyId(0), &key, &value, Expiry(40 + self.below(20))).unwrap(),
                2 => b.single_delete(FamilyId(0), &key).unwrap(),
                3 => {
                    let end = format!("key{:06}", k + 1 + self.below(40)).into_bytes();
                    b.delete_range(FamilyId(0), CutRef::Before(&key), CutRef::Before(&end)).unwrap();
                }
                _ => b.put(FamilyId(0), &key, &value).unwrap(),
            }
            self.seq += 1;
            let f = b.finish();
            let ops: Vec<(Op, SeqNo)> =
                Ops::new(&f.buf, f.payload()).map(|op| (op.unwrap(), SeqNo(self.seq))).collect();
            memtable.insert(&Arc::new(f.buf), 0, &ops).unwrap();
        }
        let run = RunId(self.seq);
        let (edit, _) = flush(&memtable, run, self.setting(), &mut Created::default()).unwrap();
        self.install(&edit);
    }

    fn setting(&self) -> Setting<'_> {
        Setting {
            version: &self.version,
            strata: Strata::new(self.snapshots.clone(), SeqNo(self.seq)),
            options: KlogOptions {
                database: 1,
                family: FamilyId(0),
                order: self.order,
                block_bytes: 256,
                compression: Compression::Lz4,
                filter_bits: 10,
            },
            threshold: self.threshold,
            target_bytes: self.target_bytes,
            cuts: Vec::new(),
            verify: true,
            shelf: &self.tables.0,
            ids: &self.ids,
            pace: &Unhindered,
            now: &Frozen(50),
            merger: None,
            filter: None,
            settle: self.settle.then_some(SeqNo(self.seq)),
            later: None,
        }
    }
    fn install(&mut self, edit: &VersionEdit) {
        self.version = self.version.apply(edit, &self.tables).unwrap();
    }

    fn merge(&self, reason: Reason) -> (VersionEdit, Output) {
        let inputs = self.version.tables().map(|(level, _, t)| (level, t.meta.id)).collect();
        let plan = Plan { cuts: self.cuts.clone(), ..Plan::merge(reason, inputs, LevelNo(6)) };
        compact(&plan, self.setting(), &mut Created::default()).unwrap()
    }

    /// The entries of the version that an edit makes.
    fn content(&self, edit: &VersionEdit) -> Vec<String> {
        let version = self.version.apply(edit, &self.tables).unwrap();
        let of = |r: &Arc<_>| Source::Run(RunCursor::new(Arc::clone(r), self.order, false));
        let mut c = MergeCursor::new(self.order, version.runs().map(of).collect());
        let mut all = Vec::new();
        c.seek_first().unwrap();
        while c.valid() {
            let mut entry = c.entry();
            // Under which number a settled entry lies is another matter.
            entry.seq = if self.settle { SeqNo::ZERO } else { entry.seq };
            all.push(format!("{entry:?}"));
            c.step().unwrap();
        }
        all
    }
}

/// Small runs over a large one, clustered and scattered: moved blocks change nothing that a reader could see.
#[test]
fn blocks_that_are_moved_hold_what_a_merge_would_write() {
    let mut moved = 0;
    for seed in 1..=40 {
        let order = [KeyOrder::Bytes, KeyOrder::CaseInsensitive][seed as usize % 4 / 3];
        let mut w = World::new(seed, order);
        let odd = [0, 30, 200][seed as usize % 3];
        w.flush(0..3000, 1, odd);
        for _ in 0..w.below(4) {
            let (start, len) = (w.below(3000), w.below(900));
            let step = [1, 7, 90][w.below(3) as usize];
            let odd = odd * w.below(2);
            w.flush(start..start + len, step, odd);
        }
        if seed % 5 == 0 {
            w.snapshots = vec![SeqNo(w.seq / 2), SeqNo(w.seq - 10)];
        }
        if seed % 7 == 0 {
            w.threshold = 40;
        }
        // Tables that are full with their first block, and such as end at boundaries.
        w.target_bytes = [8 << 10, 100][seed as usize % 9 / 8];
        w.settle = seed % 5 > 0 && seed % 4 == 1;
        if seed % 2 == 0 {
            w.cuts = (1..30).map(|i| Cut::Before(format!("key{:06}", i * 101).into_bytes())).collect();
        }
        let (by_block, out) = w.merge(Reason::LevelBytes);
        let (by_entry, all) = w.merge(Reason::Manual);
        assert_eq!(out.counts.written, all.counts.written, "seed {seed}");
        assert_eq!(all.counts.moved, 0);
        let (one, other) = (w.content(&by_block), w.content(&by_entry));
        assert_eq!(one.len(), other.len(), "seed {seed}");
        if w.threshold == usize::MAX {
            assert_eq!(one, other, "seed {seed}");
        }
        moved += out.counts.moved;
        // And once more, over what was moved.
        w.install(&by_block);
        w.threshold = usize::MAX;
        w.flush(500..700, 3, 0);
        let (again, out) = w.merge(Reason::LevelBytes);
        w.content(&again);
        moved += out.counts.moved;
    }
    assert!(moved > 60_000, "only {moved} entries were moved in whole blocks");
}

/// What every reader sees at the bottom goes on under one number, in blocks that are moved too.
#[test]
fn settled_entries_have_one_number() {
    let mut w = World::new(5, KeyOrder::Bytes);
    w.flush(0..2000, 1, 0);
    w.flush(100..200, 3, 0);
    w.settle = true;
    let (edit, out) = w.merge(Reason::LevelBytes);
    assert!(out.tables.iter().all(|t| t.seqs() == (SeqNo(w.seq), SeqNo(w.seq))), "{:?}", out.counts);
    w.install(&edit);
    w.flush(700..720, 1, 0);
    let (_, out) = w.merge(Reason::LevelBytes);
    assert!(out.counts.moved > 1500, "{:?}", out.counts);
}

/// Runs that do not overlap lose nothing and gain nothing: all but the ends of runs is moved.
#[test]
fn runs_beside_each_other_are_moved_nearly_whole() {
    let mut w = World::new(77, KeyOrder::Bytes);
    for i in 0..4 {
        w.flush(i * 1000..(i + 1) * 1000, 1, 0);
    }
    let (_, out) = w.merge(Reason::Level0Runs);
    assert!(out.counts.moved > 3800, "{:?}", out.counts);
}
