//! Reads a whole database through every read path and compares the results.

use crate::ledger::{Contents, compare_families};
use perigee::{Db, Error, Family, Iter, Result};
use std::collections::BTreeMap;

/// Returns the contents of the database. Fails with `Internal` if two read paths disagree.
pub fn read_all(db: &Db) -> Result<Contents> {
    let mut out = Contents::new();
    for name in db.families() {
        let family = db.family(&name)?;
        let forward = collect(family.iter()?)?;
        check_read_paths(&family, &forward)?;
        out.insert(name, forward);
    }
    Ok(out)
}

fn collect(iter: Iter) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut out = BTreeMap::new();
    for entry in iter {
        let (key, value) = entry?;
        if out.last_key_value().is_some_and(|(last, _): (&Vec<u8>, _)| last[..] >= key[..]) {
            return Err(Error::internal(format!(
                "keys out of order at \"{}\"",
                key.escape_ascii()
            )));
        }
        out.insert(key.to_vec(), value.to_vec());
    }
    Ok(out)
}

/// Compares a backward scan and point reads of present and absent keys with the forward scan.
fn check_read_paths(family: &Family, forward: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<()> {
    let backward: Result<BTreeMap<_, _>> =
        family.iter()?.rev().map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect();
    compare_families(&family.name(), forward, &backward?)
        .map_err(|e| Error::internal(format!("backwards: {e}")))?;
    for (key, value) in forward {
        if family.get(key)?.as_ref() != Some(value) || !family.contains(key)? {
            return Err(Error::internal(format!(
                "get of \"{}\" differs from the scan",
                key.escape_ascii()
            )));
        }
        let mut after = key.clone();
        after.push(0);
        if !forward.contains_key(&after) && family.contains(&after)? {
            return Err(Error::internal(format!(
                "\"{}\" is found by get, but not by the scan",
                after.escape_ascii()
            )));
        }
    }
    Ok(())
}
