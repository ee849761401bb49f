//! `perigee-sim isolation`: concurrent transactions, every history examined for what its level forbids. What a level allows must
//! be seen: a checker that never sees an anomaly looks at nothing.

mod history;
mod graph;
mod precise;
mod check;
mod store;
#[cfg(test)]
mod toy;
mod work;

use crate::engine::PATH;
use crate::rng::Rng;
use crate::runner::{Case, Common, conclude, run_cases};
use crate::settings::Settings;
use check::{Anomaly, Findings, check, expected, forbidden};
use history::{End, History};
use perigee::env::Env;
use perigee::{Db, Isolation};
use perigee_env::fs::memory::SimDisk;
use perigee_env::sim::World;
use precise::Aborts;
use std::path::Path;
use std::sync::Arc;
use store::{Perigee, Store};
use work::{Plan, Run};

/// Options of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Shared options; a case is one history.
    #[command(flatten)]
    pub common: Common,
    /// Transactions of each history.
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

/// With so many histories of a level all that it allows must have been seen.
const ENOUGH: u64 = 100;
/// One history in so many is made by real threads.
const REAL: u64 = 8;

/// Runs the command; whether all went well.
pub fn run(args: &Args) -> bool {
    let common = &args.common;
    let mut good = true;
    let mut all = crate::runner::Tally::default();
    for (i, (level, name)) in LEVELS.iter().enumerate() {
        let share = common.cases / LEVELS.len() as u64;
        let first = i as u64 * share;
        let tally = run_cases("isolation", common, first, share, |case| one_case(case, *level, args.txns));
        if common.case.is_none() {
            println!("{name}: histories {}, {}", tally.cases, tally.counts_line());
        }
        let enough = common.case.is_none() && tally.cases >= ENOUGH;
        for anomaly in expected(*level).iter().filter(|a| enough && tally.get(label(**a)) == 0) {
            println!("{name}: allows {anomaly:?}, and none was seen: the checker does not look");
            good = false;
        }
        if enough && tally.get(REFUSED) > tally.get(BACKWARD) {
            println!("{name}: more were refused than by plain backward validation");
            good = false;
        }
        all.add(&tally);
        if common.stop && all.violations > 0 {
            break;
        }
    }
    conclude(&all, if common.case.is_some() { 1 } else { common.cases / 5 * 5 }) && good
}

/// Names of counts at serializable, of transactions that wrote something and asked for their commit.
const ASKED: &str = "of writers";
const REFUSED: &str = "refused";
const OVERWRITTEN: &str = "(over a key that they wrote";
const NEEDED: &str = "needed by a precise validator";
const BACKWARD: &str = "by backward validation)";

fn label(anomaly: Anomaly) -> &'static str {
    match anomaly {
        Anomaly::G0 => "G0",
        Anomaly::G1a => "G1a",
        Anomaly::G1b => "G1b",
        Anomaly::G1c => "G1c",
        Anomaly::Torn => "torn",
        Anomaly::Otv => "OTV",
        Anomaly::GSingle => "G-single",
        Anomaly::LongFork => "long fork",
        Anomaly::P4 => "P4",
        Anomaly::G2Item => "G2-item",
        Anomaly::G2 => "G2",
        Anomaly::Stale => "stale",
        Anomaly::Strict => "strict",
        Anomaly::Broken => "broken",
        Anomaly::Guard => "guard",
        Anomaly::FalseConflict => "false conflict",
    }
}

fn one_case(case: &Case, level: Isolation, txns: u64) -> Result<(), String> {
    let mut rng = Rng::new(case.mixed());
    let (settings, seed) = (Settings::random(&mut rng), rng.next());
    let disk = SimDisk::new(seed);
    let mut body = |env: Env| {
        let db = Db::open(Path::new(PATH), settings.options(env.clone())).map_err(|e| e.to_string())?;
        let store = Perigee::new(db.clone(), &settings.family)?;
        // Prepared transactions, also those rolled back later, are reasons that the history does not show.
        let two_phases = case.number % 3 == 1;
        let store = if two_phases { store.in_two_phases(Arc::clone(&env.clock), seed) } else { store };
        let plan = Plan::random(&mut rng, level, txns);
        let (mut found, mut aborts) = examine(
            Box::new(store),
            env,
            plan,
            |h| {
                case.count("transactions", h.records.len() as u64);
                case.count("committed", h.records.iter().filter(|r| r.committed()).count() as u64);
                let refused = h.records.iter().filter(|r| matches!(r.end, End::Refused(_)));
                case.count("conflicts", refused.count() as u64);
            },
            &mut rng,
        )?;
        if two_phases {
            found.retain(|(_, anomaly), _| *anomaly != Anomaly::FalseConflict);
            aborts = Aborts::default();
        }
        db.close().map_err(|e| format!("close: {e}"))?;
        judge(case, level, &found, aborts)
    };
    let done = if case.number % REAL == 0 {
        body(Env { fs: disk, ..Env::real() })
    } else {
        let mut world = World::new(seed);
        world.lock_switch_probability(0.3);
        world.run(disk, body)
    };
    done.map_err(|e| format!("{level:?} {settings:?}: {e}"))
}

/// Makes a history and looks for what is wrong with it.
fn examine(
    store: Box<dyn Store>,
    env: Env,
    plan: Plan,
    look: impl FnOnce(&History),
    rng: &mut Rng,
) -> Result<(Findings, Aborts), String> {
    let run = Arc::new(Run::new(store, env, plan));
    let history = Run::perform(&run, rng)?;
    look(&history);
    Ok(check(&history))
}

fn broken(found: &Findings) -> Option<String> {
    let bad = found.iter().find(|((level, anomaly), _)| forbidden(*level).contains(anomaly));
    bad.map(|((level, anomaly), example)| format!("{anomaly:?} at {level:?}: {example}"))
}

fn judge(case: &Case, level: Isolation, found: &Findings, aborts: Aborts) -> Result<(), String> {
    found.keys().filter(|(of, _)| *of == level).for_each(|(_, anomaly)| case.count(label(*anomaly), 1));
    if matches!(level, Isolation::RepeatableRead | Isolation::Snapshot) {
        // Said also if there is none.
        case.count(label(Anomaly::FalseConflict), 0);
    }
    if level == Isolation::Serializable {
        let Aborts { asked, refused, overwritten, needed, backward } = aborts;
        let counts = [ASKED, REFUSED, OVERWRITTEN, NEEDED, BACKWARD].into_iter();
        counts.zip([asked, refused, overwritten, needed, backward]).for_each(|(what, n)| case.count(what, n));
    }
    broken(found).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::toy::{MISTAKES, Mistake, Toy};
    use super::*;

    /// Whether the toy shows what its level forbids in one of so many histories.
    fn is_caught(mistake: Mistake, level: Isolation, histories: u64) -> bool {
        (0..histories).any(|seed| {
            let mut rng = Rng::new(crate::rng::mix(77, seed));
            let world = World::new(rng.next());
            let found = world.run(SimDisk::new(1), |env| {
                let toy = Toy::new(mistake, Arc::clone(&env.clock));
                let plan = Plan::random(&mut rng, level, 100);
                examine(Box::new(toy), env, plan, |_| {}, &mut rng).map(|(found, _)| broken(&found))
            });
            // A toy that commits what was ended is found out at once.
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
    fn a_toy_without_a_mistake_never_is() {
        for (level, _) in LEVELS {
            assert!(!is_caught(Mistake::None, level, 60), "{level:?}");
        }
    }
}
