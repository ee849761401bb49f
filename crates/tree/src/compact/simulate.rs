//! Modelled workloads on the modelled tree: write, read and space amplification over time. Pure:
//! the same spec gives the same samples.

use super::model::{LsmModel, ModelEntry, PickerKind, SimulationTotals};
use super::pick::PickerOptions;

/// What users do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Every key once in scattered order, then uniform overwrites.
    Random,
    /// Ascending keys, each once.
    Sequential,
    /// Every key once, then overwrites of which few keys get most.
    Zipf,
    /// Inserted at the tail, deleted at the head; as many keys as there are lie between.
    Queue,
    /// Every key once, then a delete of one key and an insert of another, by turns.
    Churn,
}

/// A simulation.
#[derive(Clone, Copy, Debug)]
pub struct SimulationSpec {
    /// What users do.
    pub workload: Workload,
    /// Different keys, about.
    pub keys: u32,
    /// Operations beyond the first load, as a multiple of the keys.
    pub rounds: u32,
    /// Bytes of an entry.
    pub entry_bytes: u64,
    /// Bytes of a memtable.
    pub memtable_bytes: u64,
    /// The pickers' settings.
    pub limits: PickerOptions,
    /// Who picks.
    pub picker: PickerKind,
    /// Bytes that compactions may write for every byte flushed; 0: they always finish before the
    /// next flush.
    pub compaction_ratio: u64,
    /// How many samples.
    pub samples: u32,
}

/// The tree after so many operations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SimulationSample {
    /// Operations so far.
    pub ops: u64,
    /// Bytes of what readers see.
    pub live_bytes: u64,
    /// Bytes of tables.
    pub stored_bytes: u64,
    /// Most bytes of tables at any moment since the sample before.
    pub peak_bytes: u64,
    /// Most runs that a seek had to look into since the sample before.
    pub max_runs: usize,
    /// Levels with tables, level 0 left out.
    pub levels: usize,
    /// Everything so far.
    pub totals: SimulationTotals,
}

impl SimulationSample {
    /// Table bytes written for every byte that users wrote, since `before`.
    pub fn write_amplification(&self, before: &SimulationSample) -> f64 {
        let written = |s: &SimulationSample| s.totals.flushed_bytes + s.totals.compacted_bytes;
        (written(self) - written(before)) as f64
            / (self.totals.user_bytes - before.totals.user_bytes).max(1) as f64
    }
    /// Bytes of tables for every byte that a reader sees.
    pub fn space_amplification(&self) -> f64 {
        self.stored_bytes as f64 / self.live_bytes.max(1) as f64
    }
    /// The same at the worst moment since the sample before.
    pub fn peak_amplification(&self) -> f64 {
        self.peak_bytes as f64 / self.live_bytes.max(1) as f64
    }
}

/// Each sample with the one before it.
pub fn with_previous(
    samples: &[SimulationSample],
) -> impl Iterator<Item = (SimulationSample, &SimulationSample)> {
    samples
        .iter()
        .enumerate()
        .map(|(i, s)| (i.checked_sub(1).map_or(SimulationSample::default(), |b| samples[b]), s))
}

/// Runs it; `progress` hears how many operations are done.
pub fn simulate(spec: &SimulationSpec, mut progress: impl FnMut(u64)) -> Vec<SimulationSample> {
    let mut model = LsmModel::new(spec.picker, spec.limits, spec.entry_bytes);
    let mut source = WorkloadOps::new(spec);
    let total = source.total_ops();
    let memtable = (spec.memtable_bytes / spec.entry_bytes.max(8)).max(1);
    let every = (total / u64::from(spec.samples.max(1))).max(1);
    let (mut samples, mut credit, mut runs) = (Vec::<SimulationSample>::new(), 0u64, 0);
    while source.done < total {
        let before = source.done;
        let n = memtable.min(total - source.done);
        let flushed = model.totals.flushed_bytes;
        model.flush((0..n).map(|_| source.next_entry()).collect());
        credit = credit.saturating_add(
            (model.totals.flushed_bytes - flushed).saturating_mul(spec.compaction_ratio),
        );
        runs = runs.max(model.run_count());
        while spec.compaction_ratio == 0 || credit > 0 {
            let Some(written) = model.compact() else { break };
            credit = credit.saturating_sub(written);
        }
        if spec.compaction_ratio == 0 || credit > 0 {
            credit = 0;
        }
        progress(source.done);
        if source.done / every > before / every || source.done >= total {
            samples.push(SimulationSample {
                ops: source.done,
                live_bytes: model.live_bytes_and_keys().0,
                stored_bytes: model.stored_bytes(),
                peak_bytes: model.totals.peak_bytes,
                max_runs: runs,
                levels: model.shape().levels[1..].iter().filter(|l| !l.is_empty()).count(),
                totals: model.totals,
            });
            (model.totals.peak_bytes, runs) = (model.stored_bytes(), 0);
        }
    }
    samples
}

/// Operations, one after the other.
struct WorkloadOps {
    spec: SimulationSpec,
    done: u64,
    random: u64,
}

impl WorkloadOps {
    fn new(spec: &SimulationSpec) -> WorkloadOps {
        WorkloadOps {
            spec: SimulationSpec { keys: spec.keys.max(1), ..*spec },
            done: 0,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }
    fn total_ops(&self) -> u64 {
        u64::from(self.spec.keys) * (1 + u64::from(self.spec.rounds))
    }
    /// 0 to 1 (xorshift).
    fn next_f64(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }
    fn next_entry(&mut self) -> ModelEntry {
        let (n, keys) = (self.done, u64::from(self.spec.keys));
        self.done += 1;
        let seq = u32::try_from(self.done).unwrap_or(u32::MAX);
        // Multiplying by an odd number scatters keys and keeps them apart.
        let scattered = |i: u64| (i as u32).wrapping_mul(0x9e37_79b1);
        let put = |key| ModelEntry { key, seq, is_tombstone: false };
        let (load, turn) = (n < keys, n % 2 == 0);
        match self.spec.workload {
            Workload::Sequential => put(n as u32),
            Workload::Queue if load => put(n as u32),
            Workload::Queue if turn => put((keys + (n - keys) / 2) as u32),
            Workload::Queue => ModelEntry { key: ((n - keys) / 2) as u32, seq, is_tombstone: true },
            _ if load => put(scattered(n)),
            Workload::Random => put(scattered((self.next_f64() * keys as f64) as u64)),
            Workload::Zipf => put(scattered((keys as f64).powf(self.next_f64()) as u64 - 1)),
            // Keys come and go: those that are there are a window over an endless, scattered row.
            Workload::Churn if turn => put(scattered(keys + (n - keys) / 2)),
            Workload::Churn => {
                ModelEntry { key: scattered((n - keys) / 2), seq, is_tombstone: true }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bounds that the picker is built for, on a set ten times as large as a memtable.
    #[test]
    fn amplification_stays_bounded() {
        let limits = PickerOptions {
            level0_runs: 4,
            level1_bytes: 400_000,
            ratio: 10,
            table_bytes: 100_000,
        };
        let of = |workload| {
            let spec = SimulationSpec {
                workload,
                keys: 10_000,
                rounds: 10,
                entry_bytes: 100,
                memtable_bytes: 100_000,
                limits,
                picker: PickerKind::Spooky,
                compaction_ratio: 0,
                samples: 11,
            };
            let samples = simulate(&spec, |_| {});
            let settled = &samples[samples.len() / 2..];
            let last = samples[samples.len() - 1];
            let worst =
                settled.iter().map(SimulationSample::peak_amplification).fold(0.0, f64::max);
            (last.write_amplification(&settled[0]), worst)
        };
        let (write, space) = of(Workload::Random);
        assert!(write < 8.0 && space < 1.25, "{write} {space}");
        let (write, space) = of(Workload::Sequential);
        assert!(write < 1.01 && space < 1.01, "{write} {space}");
        let (write, space) = of(Workload::Zipf);
        assert!(write < 8.0 && space < 1.3, "{write} {space}");
        let (write, space) = of(Workload::Queue);
        assert!(write < 3.0 && space < 1.3, "{write} {space}");
    }

    /// The story: when compaction could not keep up, overwritten entries made groups coarse, coarse
    /// groups went into the level above the last, and level 0 came first for ever: that level grew
    /// as large as the last one, and was never emptied.
    #[test]
    fn overwritten_entries_do_not_fill_upper_levels() {
        let limits = PickerOptions {
            level0_runs: 4,
            level1_bytes: 400_000,
            ratio: 10,
            table_bytes: 100_000,
        };
        let spec = SimulationSpec {
            workload: Workload::Random,
            keys: 10_000,
            rounds: 8,
            entry_bytes: 100,
            memtable_bytes: 50_000,
            limits,
            picker: PickerKind::Spooky,
            compaction_ratio: 2,
            samples: 9,
        };
        let samples = simulate(&spec, |_| {});
        let worst =
            samples[3..].iter().map(SimulationSample::space_amplification).fold(0.0, f64::max);
        // It was 2.36, and is 1.36.
        assert!(worst < 1.6, "{worst}");
    }
}
