//! A column family with a compaction filter on a simulated disk: entries visible to a snapshot
//! stay, an entry that the filter dropped never reappears once it was gone, and all other entries
//! are unchanged.

use crate::engine_target::PATH;
use crate::rng::Rng;
use crate::runner::Case;
use crate::settings::Settings;
use perigee::env::Env;
use perigee::{CompactionFilter, Db, Family, FilterDecision, FilterEntry, Snapshot};
use perigee_env::fs::memory::SimDisk;
use perigee_env::sim::SimWorld;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Drops keys that start with `d`.
struct DropPrefixFilter;

impl CompactionFilter for DropPrefixFilter {
    fn name(&self) -> &str {
        "drops"
    }
    fn decide(&self, entry: &FilterEntry<'_>) -> perigee::Result<FilterDecision> {
        let drop = entry.key().starts_with(b"d");
        Ok(if drop { FilterDecision::Drop } else { FilterDecision::Keep })
    }
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Runs one history.
pub fn run_case(case: &Case) -> Result<(), String> {
    let mut rng = Rng::new(case.case_seed());
    let (settings, seed) = (Settings::random(&mut rng), rng.next());
    let disk = SimDisk::new(seed);
    case.keep_disk("filtered", &disk);
    SimWorld::new(seed)
        .run(disk, |env| run_history(case, env, &settings, &mut rng).map_err(|e| e.to_string())?)
        .map_err(|e| format!("filtered {settings:?}: {e}"))
}

fn run_history(
    case: &Case,
    env: Env,
    settings: &Settings,
    rng: &mut Rng,
) -> perigee::Result<Result<(), String>> {
    let options = settings.options(env).compaction_filter("default", Arc::new(DropPrefixFilter));
    let db = Db::open(Path::new(PATH), options)?;
    let family = db.default_family();
    let mut model = Map::new();
    let mut held: Vec<(Snapshot, Map)> = Vec::new();
    for i in 0..400u64 {
        let key = format!("{}{:02}", rng.pick(&["d", "k"]), rng.below(12)).into_bytes();
        match rng.weighted(&[80, 8, 4, 3, 2]) {
            0 => {
                let value = format!("{i}").into_bytes();
                db.put(&key, &value)?;
                model.insert(key, value);
            }
            1 => {
                db.delete(&key)?;
                model.remove(&key);
            }
            2 => db.admin().flush()?,
            3 => db.admin().compact()?,
            _ => {
                // A compaction that is running may still change what a snapshot taken now sees.
                let pause = db.admin().pause_background_work()?;
                held.push((db.snapshot()?, collect_entries(db.iter()?)?));
                drop(pause);
                held.drain(..held.len().saturating_sub(3));
            }
        }
        if let Err(why) = check_reads(&family, &model, &held)? {
            return Ok(Err(format!("after operation {i}: {why}")));
        }
    }
    case.count("operations", 400);
    drop(held);
    db.close()?;
    Ok(Ok(()))
}

fn collect_entries(iter: perigee::Iter) -> perigee::Result<Map> {
    iter.map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect()
}

fn check_reads(
    family: &Family,
    model: &Map,
    held: &[(Snapshot, Map)],
) -> perigee::Result<Result<(), String>> {
    let now = collect_entries(family.iter()?)?;
    let dropped = |k: &Vec<u8>| k.starts_with(b"d") && !now.contains_key(k);
    let expected: Map =
        model.iter().filter(|(k, _)| !dropped(k)).map(|(k, v)| (k.clone(), v.clone())).collect();
    if now != expected {
        return Ok(Err(format!("found {} keys, expected {}", now.len(), expected.len())));
    }
    for (snapshot, then) in held {
        if collect_entries(snapshot.iter(family)?)? != *then {
            return Ok(Err(format!("the snapshot at {} changed", snapshot.sequence())));
        }
    }
    Ok(Ok(()))
}
