//! `perigee-sim model`: random histories against the oracle, the same history under several option
//! sets, and histories of concurrent writers and readers.

use crate::compaction_filter;
use crate::concurrent;
use crate::driver;
use crate::engine_target::EngineTarget;
use crate::history::Generator;
use crate::rng::{Rng, mix};
use crate::runner::{Case, CommonArgs, Tally, print_summary, run_cases};
use crate::settings::Settings;
use perigee_env::fs::memory::SimDisk;
use perigee_env::sim::SimWorld;

/// Options of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Shared options.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Continue until this many operations were performed.
    #[arg(long, default_value_t = 0)]
    pub ops: u64,
}

/// Number of option sets for each history.
const OPTION_SETS: usize = 4;
/// Number of operations in a history.
const HISTORY_LEN: usize = 600;

/// Runs the command. Returns true if no case failed.
pub fn run(args: &Args) -> bool {
    let mut tally = run_cases("model", &args.common, 0, args.common.case_limit(u64::MAX), run_case);
    while args.common.case.is_none() && tally.get("operations") < args.ops {
        if tally.violations > 0 && (args.common.stop || tally.violations > 50) {
            break;
        }
        let more: Tally = run_cases("model", &args.common, tally.cases, 50, run_case);
        tally.add(&more);
    }
    let enough = args.common.case.is_some() || tally.get("operations") >= args.ops;
    let cases = if args.common.case.is_some() { 1 } else { args.common.cases };
    print_summary(&tally, cases) && enough
}

fn run_case(case: &Case) -> Result<(), String> {
    if case.number % 8 == 7 {
        return concurrent::run_case(case);
    }
    if case.number % 16 == 6 {
        return compaction_filter::run_case(case);
    }
    let mut generator = Generator::new(case.case_seed());
    let (ops, merges) = (generator.history(HISTORY_LEN), generator.merges);
    let mut rng = Rng::new(mix(case.case_seed(), 1));
    for set in 0..OPTION_SETS {
        let settings = Settings::random(&mut rng)
            .with_random_comparator(&mut rng)?
            .with_merge_operator(merges)
            .with_random_encryption(mix(case.case_seed(), set as u64));
        let seed = rng.next();
        let disk = SimDisk::new(seed);
        case.keep_disk(&format!("set-{set}"), &disk);
        let performed = SimWorld::new(seed)
            .run(disk, |env| {
                let mut engine =
                    EngineTarget::open(env, settings.clone()).map_err(|e| format!("open: {e}"))?;
                let performed = driver::run(&mut engine, &ops, settings.family.comparator)?;
                engine.close().map_err(|e| format!("close: {e}"))?;
                Ok::<u64, String>(performed)
            })
            .map_err(|e| format!("option set {set} {settings:?}: {e}"))?;
        case.count("operations", performed);
    }
    Ok(())
}
