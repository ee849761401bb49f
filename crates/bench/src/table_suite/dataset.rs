//! Keys and values of the rows: both follow from the number of a row, so that every row read can be
//! checked.

use crate::keys::mix;
use crate::settings::{RowKeys, RowSettings};
use perigee_tables::{FullKey, KeyPrefix, Row, Uuid};
use rusqlite::types::ValueRef;

/// Odd multiplier that makes consecutive words of a value independent.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// Milliseconds since 1970 of the first UUIDv7.
const UUID_EPOCH_MS: u64 = 1_700_000_000_000;

/// Primary key of the rows.
pub trait RowKey:
    Copy
    + Ord
    + Send
    + Sync
    + std::fmt::Debug
    + FullKey<<Self::Row as Row>::Key>
    + KeyPrefix<<Self::Row as Row>::Key>
    + 'static
{
    /// The row type of `perigeedb-tables` with this key.
    type Row: StoredRow<Self>;
    /// Column type of SQLite.
    const SQL_TYPE: &'static str;
    /// True if a table `WITHOUT ROWID` is faster in SQLite with such keys.
    const WITHOUT_ROWID: bool;
    /// Returns the key of row `i`. With `missing` it is the key of no row, but close to that of
    /// row `i`.
    fn new(kind: RowKeys, i: u64, missing: bool) -> Self;
    /// Key type of redb.
    type RedbKey: redb::Key + 'static;
    /// Name of the key type of redb.
    const REDB_TYPE: &'static str;
    fn to_sql(&self) -> ValueRef<'_>;
    fn from_sql(value: ValueRef<'_>) -> Option<Self>;
    fn to_redb(&self) -> <Self::RedbKey as redb::Value>::SelfType<'_>;
    fn from_redb(key: <Self::RedbKey as redb::Value>::SelfType<'_>) -> Self;
    /// Appends the key as `perigeedb-tables` stores it.
    fn encode(&self, out: &mut Vec<u8>);
}

/// Row type with a key and a value.
pub trait StoredRow<K>: Row {
    fn new(key: K, value: Vec<u8>) -> Self;
    fn key(&self) -> K;
    fn value(&self) -> &[u8];
    /// Replaces the row without an allocation.
    fn set(&mut self, key: K, value: &[u8]);
}

/// A row with a number as its key.
#[derive(Row, Debug)]
pub struct NumberRow {
    #[key]
    id: u64,
    value: Vec<u8>,
}

/// A row with a UUID as its key.
#[derive(Row, Debug)]
pub struct UuidRow {
    #[key]
    id: Uuid,
    value: Vec<u8>,
}

macro_rules! stored_row {
    ($row:ty, $key:ty) => {
        impl StoredRow<$key> for $row {
            fn new(id: $key, value: Vec<u8>) -> Self {
                Self { id, value }
            }
            fn key(&self) -> $key {
                self.id
            }
            fn value(&self) -> &[u8] {
                &self.value
            }
            fn set(&mut self, key: $key, value: &[u8]) {
                self.id = key;
                self.value.clear();
                self.value.extend_from_slice(value);
            }
        }
    };
}
stored_row!(NumberRow, u64);
stored_row!(UuidRow, Uuid);

impl RowKey for u64 {
    type Row = NumberRow;
    const SQL_TYPE: &'static str = "INTEGER";
    const WITHOUT_ROWID: bool = false;
    type RedbKey = u64;
    const REDB_TYPE: &'static str = "u64";
    fn new(kind: RowKeys, i: u64, missing: bool) -> u64 {
        match kind {
            RowKeys::Random => mix(i + 1) >> 2 << 1 | u64::from(missing),
            _ => (i + 1) << 1 | u64::from(missing),
        }
    }
    fn to_sql(&self) -> ValueRef<'_> {
        // Below 2^63: SQLite's integers are signed.
        ValueRef::Integer(*self as i64)
    }
    fn from_sql(value: ValueRef<'_>) -> Option<u64> {
        value.as_i64().ok().map(|id| id as u64)
    }
    fn to_redb(&self) -> u64 {
        *self
    }
    fn from_redb(key: u64) -> u64 {
        key
    }
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
}

impl RowKey for Uuid {
    type Row = UuidRow;
    const SQL_TYPE: &'static str = "BLOB";
    const WITHOUT_ROWID: bool = true;
    type RedbKey = &'static [u8; 16];
    const REDB_TYPE: &'static str = "&[u8; 16]";
    fn new(kind: RowKeys, i: u64, missing: bool) -> Uuid {
        let (high, low) = (mix(i + 1), mix(!i));
        let high = match kind {
            // Two rows per millisecond, in ascending order within it.
            RowKeys::Uuid7 => (UUID_EPOCH_MS + i / 2) << 16 | 0x7000 | (i & 1) << 11 | high & 0x7ff,
            _ => high & !0xf000 | 0x4000,
        };
        let low = low >> 2 & !1 | 1 << 63 | u64::from(missing);
        Uuid((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
    }
    fn to_sql(&self) -> ValueRef<'_> {
        ValueRef::Blob(&self.0)
    }
    fn from_sql(value: ValueRef<'_>) -> Option<Uuid> {
        value.as_blob().ok()?.try_into().ok().map(Uuid)
    }
    fn to_redb(&self) -> &[u8; 16] {
        &self.0
    }
    fn from_redb(key: &[u8; 16]) -> Uuid {
        Uuid(*key)
    }
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}

/// Keys and values of a run.
#[derive(Clone, Debug)]
pub struct Dataset<K> {
    kind: RowKeys,
    /// Number of rows.
    pub n: u64,
    pub value_bytes: usize,
    seed: u64,
    /// Row numbers in the order of their keys.
    sorted: Vec<u32>,
    key: std::marker::PhantomData<fn() -> K>,
}

impl<K: RowKey> Dataset<K> {
    pub fn new(settings: &RowSettings, n: u64, value_bytes: usize, seed: u64) -> Dataset<K> {
        let kind = settings.row_keys;
        let mut sorted: Vec<u32> = (0..n as u32).collect();
        if matches!(kind, RowKeys::Random | RowKeys::Uuid4) {
            sorted.sort_by_cached_key(|i| K::new(kind, u64::from(*i), false));
        }
        let key = std::marker::PhantomData;
        Dataset { kind, n, value_bytes: value_bytes.max(8), seed, sorted, key }
    }
    /// Returns the key of row `i`; rows from `n` on are not in the initial data.
    pub fn key(&self, i: u64) -> K {
        K::new(self.kind, i, false)
    }
    /// Returns a key that no row has.
    pub fn missing_key(&self, i: u64) -> K {
        K::new(self.kind, i, true)
    }
    /// Returns the number of the row at a position in key order.
    pub fn row_at(&self, position: u64) -> u64 {
        u64::from(self.sorted[position as usize])
    }
    /// Returns the numbers of the rows in the order of a load: in key order, or in a random one.
    pub fn load_order(&self, sorted: bool) -> impl Iterator<Item = u64> {
        (0..self.n).map(move |at| if sorted { self.row_at(at) } else { self.shuffled(at) })
    }
    /// Returns the number of the `at`-th row in a random order of all rows, the same for all
    /// engines.
    pub fn shuffled(&self, at: u64) -> u64 {
        // A permutation of the numbers below the next power of four, restricted to those below n.
        let half_bits = (64 - self.n.max(2).leading_zeros()).div_ceil(2);
        let mask = (1u64 << half_bits) - 1;
        let mut x = at;
        loop {
            let (mut left, mut right) = (x >> half_bits, x & mask);
            for round in 0..4 {
                let scrambled = mix(right ^ mix(self.seed ^ round << 56));
                (left, right) = (right, left ^ (scrambled & mask));
            }
            x = left << half_bits | right;
            if x < self.n {
                return x;
            }
        }
    }
    fn word(i: u64, version: u16, k: u64) -> u64 {
        mix((i << 16 | u64::from(version)).wrapping_add(k.wrapping_mul(GOLDEN)) ^ GOLDEN)
    }
    /// Returns the number of random bytes of a value: half of them, in whole words.
    fn random_bytes(&self) -> usize {
        (self.value_bytes / 2).max(8) & !7
    }
    /// Writes the value of row `i` at `version`: random bytes, then a constant.
    pub fn write_value(&self, i: u64, version: u16, out: &mut Vec<u8>) {
        out.clear();
        for k in 0..self.random_bytes() as u64 / 8 {
            out.extend_from_slice(&Self::word(i, version, k).to_le_bytes());
        }
        out.resize(self.value_bytes, b'v');
    }
    pub fn value(&self, i: u64, version: u16) -> Vec<u8> {
        let mut value = Vec::with_capacity(self.value_bytes);
        self.write_value(i, version, &mut value);
        value
    }
    /// Returns true if `got` is the value of row `i` at `version`.
    #[inline]
    pub fn matches(&self, got: &[u8], i: u64, version: u16) -> bool {
        if got.len() != self.value_bytes {
            return false;
        }
        let (random, rest) = got.split_at(self.random_bytes());
        let words = random.chunks_exact(8).enumerate();
        let same = words.fold(true, |same, (k, bytes)| {
            same & (bytes == Self::word(i, version, k as u64).to_le_bytes())
        });
        same & rest.iter().fold(true, |same, b| same & (*b == b'v'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn check_keys<K: RowKey>(kind: RowKeys) {
        let settings = RowSettings { row_keys: kind, ..RowSettings::default() };
        let data = Dataset::<K>::new(&settings, 1000, 16, 1);
        let keys: BTreeSet<K> = (0..1000).map(|i| data.key(i)).collect();
        assert_eq!(keys.len(), 1000);
        assert!((0..1000).all(|i| !keys.contains(&data.missing_key(i))));
        let sorted: Vec<K> = (0..1000).map(|p| data.key(data.row_at(p))).collect();
        assert!(sorted.is_sorted() && sorted.iter().eq(keys.iter()));
        let shuffled: BTreeSet<u64> = (0..1000).map(|at| data.shuffled(at)).collect();
        assert_eq!(shuffled.len(), 1000);
    }

    #[test]
    fn keys_are_distinct_and_shuffled() {
        check_keys::<u64>(RowKeys::Ascending);
        check_keys::<u64>(RowKeys::Random);
        check_keys::<Uuid>(RowKeys::Uuid4);
        check_keys::<Uuid>(RowKeys::Uuid7);
    }

    #[test]
    fn value_matches_only_its_row_and_version() {
        for bytes in [8, 16, 200] {
            let data = Dataset::<u64>::new(&RowSettings::default(), 10, bytes, 1);
            let mut value = data.value(7, 3);
            assert_eq!(value.len(), bytes);
            assert!(data.matches(&value, 7, 3));
            assert!(!data.matches(&value, 7, 2) && !data.matches(&value, 8, 3));
            assert!(!data.matches(&value[1..], 7, 3));
            value[bytes - 1] ^= 1;
            assert!(!data.matches(&value, 7, 3));
        }
    }
}
