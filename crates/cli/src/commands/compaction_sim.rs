//! `perigee compaction-sim`: simulates the cost of a workload under given settings, without a
//! database, by running the engine's compaction picker on a model of the tree.

use super::compaction_sim_html;
use crate::failure::{Failure, Result};
use crate::output::{Output, table};
use crate::progress::Progress;
use crate::size;
use clap::{Args, ValueEnum};
use perigee::value_syntax::parse_bytes;
use perigee_compaction_sim::{
    PickerKind, PickerOptions, SimulationSample, SimulationSpec, Workload, simulate, with_previous,
};
use serde_json::{Value, json};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  perigee compaction-sim --workload random
  perigee compaction-sim --workload churn --keys 100000 --memtable 1MiB --level-ratio 6
  perigee compaction-sim --workload random --picker leveled     classic leveled, for comparison
  perigee compaction-sim --workload random --background 8       compactions that cannot keep up
  perigee compaction-sim --workload zipf --html sim.html        charts in one HTML page

Sizes are relative: 400,000 entries of 100 bytes with a memtable of 4 MiB behave like 40 million \
with one of 400 MiB. Write amplification is table bytes written per byte written by users (the log \
adds one); read amplification is the number of sorted runs that a seek reads; space amplification \
is table bytes per live byte, at its peak including the outputs of running compactions.";

/// The simulated workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WorkloadArg {
    /// Every key once in random order, then uniform overwrites
    Random,
    /// Ascending keys, each once
    Sequential,
    /// Every key once, then overwrites skewed to a few hot keys
    Zipf,
    /// Inserts at the tail, deletes at the head
    Queue,
    /// Every key once, then alternating deletes and inserts
    Churn,
}

/// The compaction picker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PickerArg {
    /// Spooky with dynamic level capacities, as in the engine
    Spooky,
    /// Classic leveled: one table at a time, fixed level capacities
    Leveled,
}

/// Simulate compactions of a workload: write, read and space amplification over time
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompactionSimArgs {
    /// Workload to simulate
    #[arg(long, value_enum, default_value = "random")]
    workload: WorkloadArg,
    /// Number of distinct keys
    #[arg(long, default_value_t = 400_000, value_parser = clap::value_parser!(u32).range(1..=50_000_000))]
    keys: u32,
    /// Operations after the first load, as a multiple of the keys
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=80))]
    rounds: u32,
    /// Size of an entry
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "100")]
    entry: u64,
    /// Size at which a memtable is flushed
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "4MiB")]
    memtable: u64,
    /// Target size of a table (default: the memtable size)
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    table_size: Option<u64>,
    /// Data size up to which there is only one level below level 0 (default: four memtables)
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    level1: Option<u64>,
    /// Capacity ratio of adjacent levels
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=100))]
    level_ratio: u64,
    /// Number of level-0 runs that triggers a compaction
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    level0_runs: u32,
    /// Compaction picker to simulate
    #[arg(long, value_enum, default_value = "spooky")]
    picker: PickerArg,
    /// Bytes that compactions may write per byte flushed; 0: they finish before the next flush
    #[arg(long, default_value_t = 0)]
    background: u64,
    /// Number of samples to show
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    samples: u32,
    /// Write charts to this file, as one HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl CompactionSimArgs {
    fn workload_spec(&self) -> SimulationSpec {
        let workload = match self.workload {
            WorkloadArg::Random => Workload::Random,
            WorkloadArg::Sequential => Workload::Sequential,
            WorkloadArg::Zipf => Workload::Zipf,
            WorkloadArg::Queue => Workload::Queue,
            WorkloadArg::Churn => Workload::Churn,
        };
        let picker = match self.picker {
            PickerArg::Spooky => PickerKind::Spooky,
            PickerArg::Leveled => PickerKind::Leveled,
        };
        let limits = PickerOptions {
            level0_runs: self.level0_runs as usize,
            level1_bytes: self.level1.unwrap_or(self.memtable.saturating_mul(4)),
            ratio: self.level_ratio,
            table_bytes: self.table_size.unwrap_or(self.memtable).max(1),
            vlog_garbage_percent: 0,
        };
        SimulationSpec {
            workload,
            keys: self.keys,
            rounds: self.rounds,
            entry_bytes: self.entry.max(8),
            memtable_bytes: self.memtable,
            limits,
            picker,
            compaction_ratio: self.background,
            samples: self.samples,
        }
    }
}

/// Runs the simulation and prints the samples.
pub fn run(args: &CompactionSimArgs, out: &mut Output) -> Result<u8> {
    let spec = args.workload_spec();
    let total = u64::from(spec.keys) * (1 + u64::from(spec.rounds));
    let mut bar = Progress::items("operations", total);
    let samples = simulate(&spec, |done| bar.set_position(done));
    drop(bar);
    if let Some(path) = &args.html {
        let title = format!("{:?}, {:?}", spec.workload, spec.picker).to_lowercase();
        std::fs::write(path, compaction_sim_html::page(&title, &samples))
            .map_err(|e| Failure::file("write", path, &e))?;
    }
    if out.json {
        out.json_line(
            &json!({"samples": with_previous(&samples).map(|(b, s)| sample_json(b, s)).collect::<Vec<_>>()}),
        )?;
    } else {
        print_samples(&samples, out)?;
    }
    Ok(0)
}

fn print_samples(samples: &[SimulationSample], out: &mut Output) -> Result<()> {
    let mut t = table(&[
        ">operations",
        ">live",
        ">stored",
        ">write amp",
        ">so far",
        ">runs",
        ">levels",
        ">space amp",
        ">at worst",
        ">largest merge",
    ]);
    for (before, s) in with_previous(samples) {
        t.add_row([
            size::count(s.ops),
            size::bytes(s.live_bytes),
            size::bytes(s.stored_bytes),
            format!("{:.2}", s.write_amplification(&before)),
            format!("{:.2}", s.write_amplification(&SimulationSample::default())),
            s.max_runs.to_string(),
            s.levels.to_string(),
            format!("{:.2}", s.space_amplification()),
            format!("{:.2}", s.peak_amplification()),
            size::bytes(s.totals.largest_merge_bytes),
        ]);
    }
    out.line(t.trim_fmt())
}

fn sample_json(before: SimulationSample, s: &SimulationSample) -> Value {
    json!({
        "operations": s.ops, "live_bytes": s.live_bytes, "stored_bytes": s.stored_bytes, "peak_bytes": s.peak_bytes,
        "write_amplification": s.write_amplification(&before),
        "write_amplification_so_far": s.write_amplification(&SimulationSample::default()),
        "runs": s.max_runs, "levels": s.levels,
        "space_amplification": s.space_amplification(), "space_amplification_worst": s.peak_amplification(),
        "user_bytes": s.totals.user_bytes, "flushed_bytes": s.totals.flushed_bytes, "compacted_bytes": s.totals.compacted_bytes,
        "moved_bytes": s.totals.moved_bytes, "merges": s.totals.merges, "largest_merge_bytes": s.totals.largest_merge_bytes,
    })
}
