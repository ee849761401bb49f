//! Decoding of packed write operations, and their application to a batch or a transaction.
//!
//! | code | operation | arguments |
//! |---|---|---|
//! | 1 | put | key, value |
//! | 2 | delete | key |
//! | 3 | put with a time to live | `f64` milliseconds, key, value |
//! | 4 | put with an expiry time | `f64` milliseconds since the Unix epoch, key, value |
//! | 5 | merge | key, operand |
//! | 6 | delete a key range | range |
//! | 7 | delete the keys with a prefix | prefix |

use crate::options::milliseconds;
use crate::packed::{Decoder, KeyRange};
use crate::state::Shared;
use perigee::{Error, ErrorKind, Family, Result, Txn, WriteBatch, WriteOptions};
use std::time::Duration;

/// A write operation.
enum Operation<'a> {
    Put(&'a [u8], &'a [u8]),
    Delete(&'a [u8]),
    PutWithTtl(&'a [u8], &'a [u8], Duration),
    PutUntil(&'a [u8], &'a [u8], u64),
    Merge(&'a [u8], &'a [u8]),
    DeleteRange(KeyRange),
    DeletePrefix(&'a [u8]),
}

impl<'a> Operation<'a> {
    /// Reads the id of the column family and the operation.
    fn decode(decoder: &mut Decoder<'a>) -> Result<(u32, Operation<'a>)> {
        let (code, family) = (decoder.u8()?, decoder.u32()?);
        let operation = match code {
            1 => Operation::Put(decoder.bytes()?, decoder.bytes()?),
            2 => Operation::Delete(decoder.bytes()?),
            3 => {
                let ttl = milliseconds("ttl", decoder.f64()?)?;
                Operation::PutWithTtl(decoder.bytes()?, decoder.bytes()?, ttl)
            }
            4 => {
                let at = expiry(decoder.f64()?)?;
                Operation::PutUntil(decoder.bytes()?, decoder.bytes()?, at)
            }
            5 => Operation::Merge(decoder.bytes()?, decoder.bytes()?),
            6 => Operation::DeleteRange(decoder.range()?),
            7 => Operation::DeletePrefix(decoder.bytes()?),
            _ => return Err(Error::internal(format!("unknown operation code {code}"))),
        };
        Ok((family, operation))
    }

    fn add_to_batch(&self, batch: &mut WriteBatch, family: &Family) -> Result<()> {
        match self {
            Operation::Put(key, value) => batch.put(family, key, value),
            Operation::Delete(key) => batch.delete(family, key),
            Operation::PutWithTtl(key, value, ttl) => batch.put_with_ttl(family, key, value, *ttl),
            Operation::PutUntil(key, value, at) => batch.put_until(family, key, value, *at),
            Operation::Merge(key, operand) => batch.merge(family, key, operand),
            Operation::DeleteRange(range) => batch.delete_range::<&[u8]>(family, range.bounds()),
            Operation::DeletePrefix(prefix) => batch.delete_prefix(family, prefix),
        }
    }

    fn apply_to_txn(&self, txn: &Txn, family: &Family) -> Result<()> {
        match self {
            Operation::Put(key, value) => txn.put(family, key, value),
            Operation::Delete(key) => txn.delete(family, key),
            Operation::PutWithTtl(key, value, ttl) => txn.put_with_ttl(family, key, value, *ttl),
            Operation::PutUntil(key, value, at) => txn.put_until(family, key, value, *at),
            Operation::Merge(key, operand) => txn.merge(family, key, operand),
            Operation::DeleteRange(range) => txn.delete_range::<&[u8]>(family, range.bounds()),
            Operation::DeletePrefix(prefix) => txn.delete_prefix(family, prefix),
        }
    }
}

fn expiry(ms: f64) -> Result<u64> {
    if (0.0..9.0e15).contains(&ms) {
        return Ok(ms as u64);
    }
    let text = "expiresAt must be a Date or milliseconds since the Unix epoch";
    Err(Error::invalid(format!("{text}, not {ms}")))
}

/// Calls `apply` with each operation of a packed list and its column family.
fn for_each(
    shared: &Shared,
    packed: &[u8],
    mut apply: impl FnMut(&Operation<'_>, &Family) -> Result<()>,
) -> Result<()> {
    let mut decoder = Decoder::new(packed);
    let mut last: Option<(u32, Family)> = None;
    while !decoder.is_empty() {
        let (id, operation) = Operation::decode(&mut decoder)?;
        let family = match &last {
            Some((last_id, family)) if *last_id == id => family,
            _ => &last.insert((id, shared.family(id)?)).1,
        };
        apply(&operation, family)?;
    }
    Ok(())
}

/// Applies packed operations to a transaction, in order, up to the first that fails.
pub fn apply_to_txn(shared: &Shared, txn: &Txn, packed: &[u8]) -> Result<()> {
    for_each(shared, packed, |operation, family| operation.apply_to_txn(txn, family))
}

fn write_group(shared: &Shared, packed: &[u8], options: WriteOptions) -> Result<()> {
    let mut batch = WriteBatch::new();
    for_each(shared, packed, |operation, family| operation.add_to_batch(&mut batch, family))?;
    shared.db().write_with(batch, options).map(drop)
}

/// Commits groups of packed operations in order, each atomically. `ends` contains the end of each
/// group in `packed`. All groups are committed together, with one sync, unless that fails without
/// an effect; then each is committed alone, so that only those fail that have to.
///
/// Returns the error of each group that failed, or an empty list if none did.
pub fn write_groups(
    shared: &Shared,
    packed: &[u8],
    ends: &[u32],
    options: WriteOptions,
) -> Result<Vec<Option<Error>>> {
    let error = match write_group(shared, packed, options) {
        Ok(()) => return Ok(Vec::new()),
        Err(e) => e,
    };
    use ErrorKind::{Closed, OutcomeUnknown, Poisoned, ReadOnly};
    let concerns_all = matches!(error.kind(), Closed | OutcomeUnknown | Poisoned | ReadOnly);
    if ends.len() < 2 || concerns_all {
        return Err(error);
    }
    let mut errors = Vec::with_capacity(ends.len());
    let mut start = 0;
    for end in ends {
        let end = *end as usize;
        let group = packed.get(start..end).ok_or_else(|| Error::internal("bad group bounds"))?;
        errors.push(write_group(shared, group, options).err());
        start = end;
    }
    Ok(errors)
}
