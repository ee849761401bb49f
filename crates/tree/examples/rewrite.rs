//! Benchmark of flush and compaction on their own: `cargo run --profile perf -p perigeedb-tree
//! --example rewrite [ENTRIES [ROUNDS]]`
//!
//! Measures flushes of memtables and merges of four such runs with a last level ten times as large:
//! random 16-byte keys, 100-byte values of which half is random. Then merges of one run of
//! consecutive keys, a hundredth of the last level in size, with the last level. Each is measured
//! with and without output verification. Reports nanoseconds of this thread's CPU time per entry
//! read (`/proc/thread-self/schedstat`): first the minimum of all rounds, which noise affects
//! least, then the median.
#![allow(clippy::unwrap_used)]

use perigee_base::{FamilyId, FixedClock, KeyComparator, LevelNo, OpIndex, Result, RunId, SeqNo};
use perigee_env::{DirOpenMode, Env};
use perigee_file::log::{Batch, BatchOp, BatchOps};
use perigee_file::{BlockCache, Compression, KlogOptions, TableCache};
use perigee_tree::compact::{CompactionPlan, CompactionReason, run_compaction};
use perigee_tree::rewrite::{CreatedFiles, NoPacing, RewriteContext, RewriteOutput};
use perigee_tree::{Memtable, SnapshotStripes, Version, VersionEdit, flush};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The last level.
const LAST_LEVEL: LevelNo = LevelNo(6);

fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Returns the 16-byte key of number `k`; keys of consecutive numbers are not in order.
fn key(k: u64) -> Vec<u8> {
    let mixed = (k + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    [(mixed ^ mixed >> 29).to_be_bytes(), k.to_be_bytes()].concat()
}

/// State shared by the jobs, and the current version.
struct RewriteBench {
    tables: TableCache,
    ids: AtomicU64,
    version: Version,
    verify: bool,
    seq: u64,
    next_random: u64,
}

impl RewriteBench {
    fn next_random(&mut self) -> u64 {
        self.next_random ^= self.next_random << 13;
        self.next_random ^= self.next_random >> 7;
        self.next_random ^= self.next_random << 17;
        self.next_random
    }

    /// Returns a memtable with `n` puts of the keys that `pick` chooses.
    fn memtable(
        &mut self,
        n: u64,
        mut pick: impl FnMut(&mut RewriteBench, u64) -> u64,
    ) -> Arc<Memtable> {
        let memtable = Arc::new(Memtable::new(KeyComparator::Bytes));
        for start in (0..n).step_by(1000) {
            let mut b = Batch::new();
            for i in start..(start + 1000).min(n) {
                let k = pick(self, i);
                let key = key(k);
                let mut value = [b'v'; 100];
                value[..48]
                    .chunks_mut(8)
                    .for_each(|c| c.copy_from_slice(&self.next_random().to_le_bytes()));
                b.put(FamilyId(0), &key, &value).unwrap();
            }
            let f = b.finish();
            let ops: Vec<(BatchOp, OpIndex)> = BatchOps::new(&f.buf, f.payload_range())
                .enumerate()
                .map(|(i, op)| (op.unwrap(), OpIndex(i as u64)))
                .collect();
            memtable.insert(&Arc::new(f.buf), SeqNo(self.seq + 1), &ops).unwrap();
            self.seq += ops.len() as u64;
        }
        memtable
    }

    fn rewrite_context<'a>(&'a self, version: &'a Version) -> RewriteContext<'a> {
        RewriteContext {
            version,
            stripes: SnapshotStripes::new(Vec::new(), SeqNo(self.seq)),
            options: KlogOptions {
                database: 1,
                family: FamilyId(0),
                comparator: KeyComparator::Bytes,
                block_bytes: 4096,
                compression: Compression::Lz4,
                filter_bits: 10,
            },
            separation_threshold: usize::MAX,
            target_bytes: 8 << 20,
            cuts: Vec::new(),
            verify_outputs: self.verify,
            fill_cache: false,
            table_cache: &self.tables,
            next_file_id: &self.ids,
            pacer: &NoPacing,
            now: &FixedClock(0),
            merge_operator: None,
            filter: None,
            bottom_seq: None,
            deferred_sync: None,
        }
    }

    /// Runs a job, installs its edit and returns the nanoseconds per entry read.
    fn run_job(
        &mut self,
        name: &str,
        job: impl FnOnce(RewriteContext<'_>, &mut CreatedFiles) -> Result<(VersionEdit, RewriteOutput)>
        + Send,
    ) -> f64 {
        // One named thread per kind of job, so that profilers can tell the kinds apart.
        let this = &*self;
        let (took, (edit, output)) = std::thread::scope(|scope| {
            let work = move || {
                let start = cpu_ns();
                let done =
                    job(this.rewrite_context(&this.version), &mut CreatedFiles::default()).unwrap();
                (cpu_ns() - start, done)
            };
            let thread =
                std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work);
            thread.unwrap().join().unwrap()
        });
        let removed: Vec<_> = edit.removed.iter().map(|(_, id)| *id).collect();
        self.version = self.version.apply(&edit, &self.tables).unwrap();
        for id in removed {
            self.tables.evict(id);
            self.tables.dir().remove(&format!("{:06}.klog", id.0)).unwrap();
        }
        took as f64 / output.counts.read as f64
    }

    fn flush(&mut self, memtable: &Arc<Memtable>) -> f64 {
        let run = RunId(self.seq);
        self.run_job("flush", |context, created| flush(memtable, run, context, created))
    }

    fn merge(&mut self) -> f64 {
        let inputs = self.version.tables().map(|(level, _, t)| (level, t.meta.id)).collect();
        let plan = CompactionPlan::merge(CompactionReason::LevelBytes, inputs, LAST_LEVEL);
        self.run_job("merge", |context, created| run_compaction(&plan, context, created))
    }
}

fn main() {
    let number = |i: usize| std::env::args().nth(i).and_then(|a| a.parse::<u64>().ok());
    let (n, rounds) = (number(1).unwrap_or(500_000), number(2).unwrap_or(5));
    for verify in [false, true] {
        let path = std::env::temp_dir().join(format!("perigee-rewrite-{}", std::process::id()));
        let dir = Env::real().fs.open_dir(&path, DirOpenMode::CreateIfMissing).unwrap();
        let table_cache =
            TableCache::new(dir, 1, Arc::new(BlockCache::new(1 << 20)), Arc::default());
        let (ids, version) = (AtomicU64::new(1), Version::empty(KeyComparator::Bytes));
        let mut bench =
            RewriteBench { tables: table_cache, ids, version, verify, seq: 0, next_random: 7 };
        let load = bench.memtable(n, |_, i| i);
        bench.flush(&load);
        drop(load);
        bench.merge();
        let mut sorted: Vec<u64> = (0..n).collect();
        sorted.sort_by_key(|k| key(*k));
        let (mut flushes, mut merges) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            for _ in 0..4 {
                let memtable = bench.memtable(n / 10, |bench, _| bench.next_random() % n);
                memtable.cursor().seek_first(); // sort outside the measured time
                flushes.push(bench.flush(&memtable));
            }
            merges.push(bench.merge());
        }
        let mut range_merges = Vec::new();
        for round in 0..rounds {
            let memtable =
                bench.memtable(n / 100, |_, i| sorted[(round * n / 7 + i) as usize % sorted.len()]);
            memtable.cursor().seek_first();
            bench.flush(&memtable);
            range_merges.push(bench.merge());
        }
        let results = [
            ("flush", flushes),
            ("merge of 4 + 1 runs", merges),
            ("merge of a narrow key range", range_merges),
        ];
        for (what, mut ns) in results {
            ns.sort_by(f64::total_cmp);
            let verified = if verify { ", outputs verified" } else { "" };
            println!(
                "{:<44} {:>7.0} ns min, {:>7.0} median",
                format!("{what}{verified}"),
                ns[0],
                ns[ns.len() / 2]
            );
        }
        let _ = std::fs::remove_dir_all(&path);
    }
}
