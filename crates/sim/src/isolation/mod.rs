//! `perigee-sim isolation`: runs concurrent transactions and checks every history for the anomalies
//! that its level forbids. Allowed anomalies must be found: a checker that never finds one checks
//! nothing.

mod history;
mod graph;
mod abort_counts;
mod check;
mod store;
#[cfg(test)]
mod faulty_store;
mod clients;

use crate::engine_target::PATH;
use crate::rng::Rng;
use crate::runner::{Case, CommonArgs, print_summary, run_cases};
use crate::settings::Settings;
use abort_counts::AbortCounts;
use check::{Anomaly, Findings, check_history, expected_anomalies, forbidden_anomalies};
use clients::{ClientRun, RunPlan};
use history::{ClientOp, TxnEnd, TxnHistory};
use perigee::env::Env;
use perigee::{Db, Isolation};
use perigee_env::fs::memory::SimDisk;
use perigee_env::sim::SimWorld;
use std::path::Path;
use std::sync::Arc;
use store::{PerigeeStore, TxnStore};

/// Options of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Shared options; a case is one history.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Number of transactions in each history.
    #[arg(long, default_value_t = 200)]
    pub txns: u64,
}

const LEVELS: [(Isolation, &str); 5] = [
    (Isolation::ReadUncommitted, "read uncommitted"),
    (Isolation::ReadCommitted, "read committed"),
    (Isolation::RepeatableRead, "repeatable read"),
    (Isolation::Snapshot, "snapshot"),
    (Isolation::Serializable, "serializable"),
];

/// With this many histories of a level, every anomaly that it allows must have been found.
const HISTORIES_REQUIRED: u64 = 100;
/// One history in this number runs on real threads.
const REAL_THREADS_INTERVAL: u64 = 8;

/// Runs the command. Returns true if no case failed.
pub fn run(args: &Args) -> bool {
    let common = &args.common;
    let mut good = true;
    let mut all = crate::runner::Tally::default();
    for (i, (level, name)) in LEVELS.iter().enumerate() {
        let share = common.cases / LEVELS.len() as u64;
        let first = i as u64 * share;
        let tally =
            run_cases("isolation", common, first, share, |case| run_case(case, *level, args.txns));
        if common.case.is_none() {
            println!("{name}: histories {}, {}", tally.cases, tally.counts_line());
        }
        let enough = common.case.is_none() && tally.cases >= HISTORIES_REQUIRED;
        for anomaly in expected_anomalies(*level)
            .iter()
            .filter(|a| enough && tally.get(anomaly_name(**a)) == 0)
        {
            println!("{name}: allows {anomaly:?}, but none was found: the checker does not work");
            good = false;
        }
        if enough && tally.get(REFUSED_LABEL) > tally.get(BACKWARD_LABEL) {
            println!("{name}: refused more than plain backward validation would");
            good = false;
        }
        all.add(&tally);
        if common.stop && all.violations > 0 {
            break;
        }
    }
    print_summary(&all, if common.case.is_some() { 1 } else { common.cases / 5 * 5 }) && good
}

/// Names of the counts of serializable transactions that wrote something and tried to commit.
const COMMITS_LABEL: &str = "of writers";
const REFUSED_LABEL: &str = "refused";
const OVERWRITTEN_LABEL: &str = "(over a key that they wrote";
const NECESSARY_LABEL: &str = "needed by a precise validator";
const BACKWARD_LABEL: &str = "by backward validation)";

fn anomaly_name(anomaly: Anomaly) -> &'static str {
    match anomaly {
        Anomaly::G0 => "G0",
        Anomaly::G1a => "G1a",
        Anomaly::G1b => "G1b",
        Anomaly::G1c => "G1c",
        Anomaly::TornScan => "torn",
        Anomaly::Otv => "OTV",
        Anomaly::GSingle => "G-single",
        Anomaly::LongFork => "long fork",
        Anomaly::P4 => "P4",
        Anomaly::G2Item => "G2-item",
        Anomaly::G2 => "G2",
        Anomaly::StaleRead => "stale",
        Anomaly::RealTimeViolation => "strict",
        Anomaly::InconsistentRead => "broken",
        Anomaly::LockViolation => "guard",
        Anomaly::FalseConflict => "false conflict",
    }
}

fn run_case(case: &Case, level: Isolation, txns: u64) -> Result<(), String> {
    let mut rng = Rng::new(case.case_seed());
    let (settings, seed) = (Settings::random(&mut rng), rng.next());
    let disk = SimDisk::new(seed);
    let mut body = |env: Env| {
        let db =
            Db::open(Path::new(PATH), settings.options(env.clone())).map_err(|e| e.to_string())?;
        let store = PerigeeStore::new(db.clone(), &settings.family)?;
        // Prepared transactions, even those rolled back later, cause conflicts that the history
        // does not explain.
        let two_phases = case.number % 3 == 1;
        let store = if two_phases {
            store.with_two_phase_commit(Arc::clone(&env.clock), seed)
        } else {
            store
        };
        let plan = RunPlan::random(&mut rng, level, txns);
        let (mut found, mut aborts) = run_and_check(
            Box::new(store),
            env,
            plan,
            |h| {
                case.count("transactions", h.records.len() as u64);
                case.count("committed", h.records.iter().filter(|r| r.committed()).count() as u64);
                let refused = h.records.iter().filter(|r| matches!(r.end, TxnEnd::Conflict(_)));
                case.count("conflicts", refused.count() as u64);
                let ops = || h.records.iter().flat_map(|r| &r.ops);
                let count = |is: fn(&&ClientOp) -> bool| ops().filter(is).count() as u64;
                case.count("unlocked", count(|op| matches!(op, ClientOp::Unlocked(_))));
                case.count("interrupted", count(|op| matches!(op, ClientOp::Interrupted)));
            },
            &mut rng,
        )?;
        if two_phases {
            found.retain(|(_, anomaly), _| *anomaly != Anomaly::FalseConflict);
            aborts = AbortCounts::default();
        }
        db.close().map_err(|e| format!("close: {e}"))?;
        check_level(case, level, &found, aborts)
    };
    let done = if case.number % REAL_THREADS_INTERVAL == 0 {
        body(Env { fs: disk, ..Env::real() })
    } else {
        let mut world = SimWorld::new(seed);
        world.lock_switch_probability(0.3);
        world.run(disk, body)
    };
    done.map_err(|e| format!("{level:?} {settings:?}: {e}"))
}

/// Runs a history and checks it.
fn run_and_check(
    store: Box<dyn TxnStore>,
    env: Env,
    plan: RunPlan,
    inspect: impl FnOnce(&TxnHistory),
    rng: &mut Rng,
) -> Result<(Findings, AbortCounts), String> {
    let run = Arc::new(ClientRun::new(store, env, plan));
    let history = ClientRun::run_clients(&run, rng)?;
    inspect(&history);
    Ok(check_history(&history))
}

fn describe_violation(found: &Findings) -> Option<String> {
    let bad =
        found.iter().find(|((level, anomaly), _)| forbidden_anomalies(*level).contains(anomaly));
    bad.map(|((level, anomaly), example)| format!("{anomaly:?} at {level:?}: {example}"))
}

fn check_level(
    case: &Case,
    level: Isolation,
    found: &Findings,
    aborts: AbortCounts,
) -> Result<(), String> {
    found
        .keys()
        .filter(|(of, _)| *of == level)
        .for_each(|(_, anomaly)| case.count(anomaly_name(*anomaly), 1));
    if matches!(level, Isolation::RepeatableRead | Isolation::Snapshot) {
        // Printed even if there is none.
        case.count(anomaly_name(Anomaly::FalseConflict), 0);
    }
    if level == Isolation::Serializable {
        let AbortCounts {
            commits: asked,
            refused,
            overwritten,
            necessary: needed,
            backward_validation: backward,
        } = aborts;
        let counts =
            [COMMITS_LABEL, REFUSED_LABEL, OVERWRITTEN_LABEL, NECESSARY_LABEL, BACKWARD_LABEL]
                .into_iter();
        counts
            .zip([asked, refused, overwritten, needed, backward])
            .for_each(|(what, n)| case.count(what, n));
    }
    describe_violation(found).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::faulty_store::{FaultyStore, MISTAKES, Mistake};
    use super::*;

    /// Returns true if the faulty store shows a forbidden anomaly in one of this many histories.
    fn is_caught(mistake: Mistake, level: Isolation, histories: u64) -> bool {
        (0..histories).any(|seed| {
            let mut rng = Rng::new(crate::rng::mix(77, seed));
            let world = SimWorld::new(rng.next());
            let found = world.run(SimDisk::new(1), |env| {
                let toy = FaultyStore::new(mistake, Arc::clone(&env.clock));
                let plan = RunPlan::random(&mut rng, level, 100);
                run_and_check(Box::new(toy), env, plan, |_| {}, &mut rng)
                    .map(|(found, _)| describe_violation(&found))
            });
            // A store that commits an aborted transaction is detected while it runs.
            found.is_err() || found.is_ok_and(|broken| broken.is_some())
        })
    }

    #[test]
    fn every_mistake_is_caught() {
        for (mistake, level) in MISTAKES {
            assert!(is_caught(*mistake, *level, 60), "{mistake:?} at {level:?}");
        }
    }

    #[test]
    fn correct_store_shows_no_anomaly() {
        for (level, _) in LEVELS {
            assert!(!is_caught(Mistake::None, level, 60), "{level:?}");
        }
    }
}
