//! Repairs and salvages a damaged image, and checks that every loss of an acknowledged operation is
//! reported.
//!
//! Guarantees:
//! 1. Every key that a repaired database answers differently is covered by what the repair lists as
//!    lost: by its file's key range, or by its last operation's sequence number.
//! 2. A salvaging reader answers "not found" for no acknowledged key; an older value is possible
//!    only if the report names a lost part. The only exception is what a strict open may cut:
//!    `cut`.

use crate::engine_target::PATH;
use crate::image::Image;
use crate::ledger::Contents;
use crate::runner::Case;
use perigee::env::Env;
use perigee::recovery::DataLoss;
use perigee::{Db, Family, repair_in};
use perigee_env::fs::memory::SimDisk;
use perigee_env::sim::SimWorld;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

const REPAIRED_PATH: &str = "/repaired";

/// Checks repair and salvage, each on a copy of the disk. `cut` holds the contents that a strict
/// open may show.
pub fn check(
    case: &Case,
    image: &Image,
    disk: &SimDisk,
    cut: Option<&Contents>,
) -> Result<(), String> {
    let run = |f: &(dyn Fn(Env) -> Result<(), String> + Sync)| {
        let copy: Arc<SimDisk> = disk.deep_clone();
        SimWorld::new(case.case_seed()).run(copy, |env| f(image.env(env)))
    };
    run(&|env| check_repair(case, image, cut, env)).map_err(|e| format!("repair: {e}"))?;
    run(&|env| check_salvage(case, image, cut, env)).map_err(|e| format!("salvage: {e}"))
}

/// Values that a key may have: the current one, or the one that an allowed cut leaves.
struct ExpectedValue<'a> {
    now: Option<&'a Vec<u8>>,
    after_cut: Option<Option<&'a Vec<u8>>>,
}

impl ExpectedValue<'_> {
    fn allows(&self, found: Option<&Vec<u8>>) -> bool {
        found == self.now || self.after_cut.is_some_and(|cut| cut == found)
    }
}

fn expected_value<'a>(
    image: &'a Image,
    cut: Option<&'a Contents>,
    family: &str,
    key: &[u8],
) -> ExpectedValue<'a> {
    let of = |c: &'a Contents| c.get(family).and_then(|map| map.get(key));
    ExpectedValue { now: of(&image.contents), after_cut: cut.map(of) }
}

/// Returns every key that was ever written or is there now.
fn all_keys(image: &Image, family: &str, now: &BTreeMap<Vec<u8>, Vec<u8>>) -> BTreeSet<Vec<u8>> {
    let written = image.latest_seqs.keys().filter(|(name, _)| name == family).map(|(_, key)| key);
    written.chain(now.keys()).cloned().collect()
}

fn check_repair(
    case: &Case,
    image: &Image,
    cut: Option<&Contents>,
    env: Env,
) -> Result<(), String> {
    let report = match repair_in(&env, PATH, REPAIRED_PATH, |_, _| {}) {
        Ok(report) => report,
        // Nothing of the database is left.
        Err(e) => {
            return if e.kind() == perigee::ErrorKind::NotFound {
                Ok(())
            } else {
                Err(e.to_string())
            };
        }
    };
    let db = Db::open(REPAIRED_PATH, image.options(env))
        .map_err(|e| format!("the new database: {e}"))?;
    let mut names: BTreeSet<String> = db.families().into_iter().collect();
    names.extend(image.contents.keys().cloned());
    let mut different = 0;
    for name in &names {
        let now = match db.family(name) {
            Ok(family) => read_entries(&family).map_err(|e| e.to_string())?,
            Err(_) => BTreeMap::new(),
        };
        for key in all_keys(image, name, &now) {
            if expected_value(image, cut, name, &key).allows(now.get(&key)) {
                continue;
            }
            different += 1;
            let seq = image.latest_seqs.get(&(name.clone(), key.clone())).copied();
            if !report.lost.iter().any(|loss| may_contain(loss, name, &key, seq)) {
                let (key, lost) = (key.escape_ascii(), &report.lost);
                return Err(format!(
                    "\"{key}\" of {name}, operation {seq:?}, differs, but the reported losses do \
                     not cover it: {lost:?}"
                ));
            }
        }
    }
    case.count(
        if different > 0 { "repairs that lost something" } else { "repairs that lost nothing" },
        1,
    );
    db.close().map_err(|e| e.to_string())
}

fn read_entries(family: &Family) -> perigee::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    family.iter()?.map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect()
}

/// Returns true if the last operation on a key may have been in the lost part.
fn may_contain(loss: &DataLoss, family: &str, key: &[u8], seq: Option<u64>) -> bool {
    loss.entries != Some(0)
        && loss.family.as_ref().is_none_or(|name| name == family)
        && loss.first_key.as_ref().is_none_or(|first| &first[..] <= key)
        && loss.last_key.as_ref().is_none_or(|last| key <= &last[..])
        && match (loss.sequences, seq) {
            (Some(lost), Some(seq)) => {
                lost.first <= seq && lost.last.is_none_or(|last| seq <= last)
            }
            _ => true,
        }
}

fn check_salvage(
    case: &Case,
    image: &Image,
    cut: Option<&Contents>,
    env: Env,
) -> Result<(), String> {
    let db = match Db::open(Path::new(PATH), image.options(env).salvage_readonly(true)) {
        Ok(db) => db,
        Err(_) => {
            case.count("salvages refused", 1);
            return Ok(());
        }
    };
    let recovery = db.admin().stats().recovery;
    let mut refused = 0;
    for name in image.contents.keys() {
        let family = match db.family(name) {
            Ok(family) => family,
            // The manifest edit that created it was lost, which was reported.
            Err(_) if !recovery.reason.is_empty() => continue,
            Err(e) => return Err(e.to_string()),
        };
        let all: Vec<Vec<u8>> = all_keys(image, name, &BTreeMap::new()).into_iter().collect();
        let pinned = family.multi_get(&all);
        for (key, many) in all.iter().zip(pinned) {
            let expected = expected_value(image, cut, name, key);
            let check = |how: &str, found: Option<&Vec<u8>>| {
                let older = found.is_some() && !recovery.reason.is_empty();
                if expected.allows(found) || older {
                    return Ok(());
                }
                let word = if found.is_some() {
                    "another value without an error"
                } else {
                    "\"not found\""
                };
                Err(format!("{how} of \"{}\" of {name}: {word}; {recovery:?}", key.escape_ascii()))
            };
            match family.get(key) {
                Ok(found) => check("get", found.as_ref())?,
                Err(_) => refused += 1,
            }
            many.map_or(Ok(()), |found| check("multi_get", found.map(|v| v.to_vec()).as_ref()))?;
            let timed = family.get_with_ttl(key);
            timed
                .map_or(Ok(()), |t| check("get_with_ttl", t.map(|t| t.value.to_vec()).as_ref()))?;
            if let (Ok(false), Some(_)) = (family.contains(key), expected.now) {
                check("contains", None)?;
            }
        }
        check_scans(&family, image, cut).map_err(|e| format!("{e} of {name}; {recovery:?}"))?;
    }
    case.count(if refused > 0 { "salvages that refused keys" } else { "salvages of all keys" }, 1);
    db.close().map_err(|e| e.to_string())
}

/// Checks in both directions that a scan that ends without an error has left out nothing.
fn check_scans(family: &Family, image: &Image, cut: Option<&Contents>) -> Result<(), String> {
    let name = family.name();
    for backward in [false, true] {
        let iter = family.iter().map_err(|e| e.to_string())?;
        let seen: perigee::Result<BTreeSet<Vec<u8>>> = if backward {
            iter.rev().map(|entry| entry.map(|(k, _)| k.to_vec())).collect()
        } else {
            iter.map(|entry| entry.map(|(k, _)| k.to_vec())).collect()
        };
        let Ok(seen) = seen else { continue };
        for key in image.contents.get(&name).into_iter().flat_map(BTreeMap::keys) {
            if !seen.contains(key) && !expected_value(image, cut, &name, key).allows(None) {
                return Err(format!(
                    "a scan without an error leaves out \"{}\"",
                    key.escape_ascii()
                ));
            }
        }
    }
    Ok(())
}
