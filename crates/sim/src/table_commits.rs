//! Commits that write tables instead of the log: bulk loads, and transactions whose values are
//! written in parts.

use crate::ledger::Put;
use perigee::load::BulkLoad;
use perigee::{Db, Error, Family, Isolation, TxnOptions};

/// Bulk-loads all values with a memory limit, in one commit.
pub fn load<'f>(
    puts: &[Put],
    memory: usize,
    family: impl Fn(&str) -> Result<&'f Family, Error>,
) -> Result<(), Error> {
    let mut names: Vec<&str> = puts.iter().map(|p| &p.family.0[..]).collect();
    names.sort_unstable();
    names.dedup();
    let mut loads = Vec::new();
    for name in names {
        let mut load = family(name)?.bulk_load()?.memory_bytes(memory);
        for put in puts.iter().filter(|p| p.family.0 == name) {
            load.put(&put.key, put.value.as_deref().unwrap_or_default())?;
        }
        loads.push(load);
    }
    BulkLoad::finish_all(&mut loads).map(|_| ())
}

/// Puts all values in one transaction, each in two parts, to a file of its own. Like other commits
/// of the harness it has no conflicts.
pub fn put_in_parts<'f>(
    db: &Db,
    puts: &[Put],
    family: impl Fn(&str) -> Result<&'f Family, Error>,
) -> Result<(), Error> {
    let txn = db.begin(TxnOptions::new().isolation(Isolation::ReadCommitted))?;
    for put in puts {
        let mut writer = txn.writer(family(&put.family.0)?, &put.key)?;
        writer.set_logged_bytes_max(0);
        let value = put.value.as_deref().unwrap_or_default();
        let (left, right) = value.split_at(value.len() / 2);
        writer.append(left)?;
        writer.append(right)?;
        writer.finish()?;
    }
    txn.commit().map(drop)
}
