//! The point read: sources newest first, the first answer wins.
//!
//! "Not found" is an assertion: it is given only when every source that could hold the key was read; an error of
//! any source is the answer.

use crate::{Version, View};
use perigee_base::bug::{self, Bug};
use perigee_base::key::VlogPointer;
use perigee_base::{Error, Result, SeqNo, Shared, checksum};
use perigee_file::Found;

/// The newest version of `key` that a reader at `at` sees, tombstones included.
pub fn lookup(view: &View, key: &[u8], at: SeqNo) -> Result<Option<(SeqNo, Found)>> {
    for memtable in view.memtables() {
        if let Some(found) = memtable.get(key, at) {
            return Ok(Some(found));
        }
    }
    let hash = checksum::key_hash(key);
    let order = view.version.order;
    for run in view.version.runs() {
        let Some(table) = run.covering(order, key) else { continue };
        match table.reader.get(key, hash, at) {
            Ok(None) => {}
            Err(_) if bug::on(Bug::ErrorIsNotFound) => {}
            answer => return answer,
        }
    }
    Ok(None)
}

/// The value of `key` for a reader at `at`, fetched from the value log if it is separated.
pub fn get(view: &View, key: &[u8], at: SeqNo) -> Result<Option<Shared>> {
    match lookup(view, key, at)? {
        None | Some((_, Found::Tombstone)) => Ok(None),
        Some((_, Found::Value(v))) => Ok(Some(v)),
        Some((_, Found::Pointer(p))) => fetch(&view.version, &p).map(Some),
    }
}

/// Whether a reader at `at` sees a value under `key`.
pub fn contains(view: &View, key: &[u8], at: SeqNo) -> Result<bool> {
    Ok(!matches!(lookup(view, key, at)?, None | Some((_, Found::Tombstone))))
}

/// Reads a separated value.
pub fn fetch(version: &Version, p: &VlogPointer) -> Result<Shared> {
    match version.vlogs.get(&p.file) {
        Some(vlog) => vlog.reader.read(p),
        None => {
            Err(Error::corruption(format!("a table references value log {}, which is not there", p.file)))
        }
    }
}
