//! Names and options of tables that a column family cannot hold itself: names longer than the
//! engine's limit, and times to live. They are stored in a reserved column family.
//!
//! A name of more than 255 bytes is replaced by a short name: its first bytes and a hash of the
//! whole. All short names have the same length, and names of that length are always replaced, so a
//! short name is never the name of another table.
//!
//! Records: `n` and a short name -> the name; `t` and the id of a column family -> its time to live
//! in seconds. A record is written before the column family gets the name, and deleted after it
//! lost it: a crash in between leaves a record that nothing refers to, which a later table of that
//! name replaces. Ids are never reused.

use crate::status::{Result, Status};
use perigee::limits::FAMILY_NAME_BYTES_MAX;
use perigee::{Db, Family, FamilyOptions};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Name of the reserved column family. Tables have a slash in their names.
const FAMILY_NAME: &str = "perigee-mariadb";
/// Number of bytes of a name that its short name begins with, filled up with `~`.
const PREFIX_BYTES: usize = 200;
/// Length of a short name: the prefix, `~`, and the hash as 32 hexadecimal digits.
const SHORT_NAME_BYTES: usize = PREFIX_BYTES + 33;

const _: () = assert!(SHORT_NAME_BYTES <= FAMILY_NAME_BYTES_MAX);

/// Time to live of a table in seconds; 0: its entries do not expire.
pub type SharedTtl = Arc<AtomicU64>;

/// Names and options of tables.
#[derive(Debug)]
pub struct Registry {
    family: Family,
    /// Times to live by id of the column family. Held while tables are created, dropped and
    /// renamed.
    ttls: Mutex<HashMap<u32, SharedTtl>>,
}

/// Returns the FNV-1a hash of these bytes.
fn hash(bytes: &[u8]) -> u128 {
    let step = |h: u128, b: &u8| (h ^ u128::from(*b)).wrapping_mul((1 << 88) + 0x13b);
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, step)
}

/// Returns the name of the column family of a table.
pub fn family_name(table: &str) -> Cow<'_, str> {
    if table.len() <= FAMILY_NAME_BYTES_MAX && table.len() != SHORT_NAME_BYTES {
        return Cow::Borrowed(table);
    }
    // Cut between characters: one has at most four bytes.
    let end = (PREFIX_BYTES - 3..=PREFIX_BYTES).rfind(|at| table.is_char_boundary(*at));
    let prefix = &table[..end.unwrap_or(0)];
    let fill = "~".repeat(PREFIX_BYTES - prefix.len());
    Cow::Owned(format!("{prefix}{fill}~{:032x}", hash(table.as_bytes())))
}

fn name_key(short: &str) -> Vec<u8> {
    [b"n", short.as_bytes()].concat()
}

fn ttl_key(family: u32) -> Vec<u8> {
    [&b"t"[..], &family.to_be_bytes()].concat()
}

fn decode_ttl(value: &[u8]) -> Result<u64> {
    let seconds = value.try_into().map(u64::from_be_bytes);
    seconds.map_err(|_| Status::CORRUPTION.with_message("the time to live of a table is damaged"))
}

impl Registry {
    /// Opens the reserved column family, and creates it in a new database.
    pub fn open(db: &Db) -> Result<Registry> {
        let options = FamilyOptions::new().memtable_bytes(1 << 20);
        let family = db.family_or_create(FAMILY_NAME, options)?;
        let mut ttls = HashMap::new();
        for entry in family.prefix(b"t")? {
            let (key, value) = entry?;
            let id = key.get(1..).and_then(|id| id.try_into().ok()).map(u32::from_be_bytes);
            let id = id.ok_or_else(|| {
                Status::CORRUPTION.with_message("the record of a table's time to live is damaged")
            })?;
            ttls.insert(id, Arc::new(AtomicU64::new(decode_ttl(&value)?)));
        }
        Ok(Registry { family, ttls: Mutex::new(ttls) })
    }
    fn ttls(&self) -> MutexGuard<'_, HashMap<u32, SharedTtl>> {
        self.ttls.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Returns the time to live of a column family, which follows later changes.
    pub fn ttl(&self, family: &Family) -> SharedTtl {
        Arc::clone(self.ttls().entry(family.id()).or_default())
    }
    /// Changes the time to live of a column family, durably.
    pub fn set_ttl(&self, family: &Family, seconds: u64) -> Result<()> {
        let mut ttls = self.ttls();
        let ttl = ttls.entry(family.id()).or_default();
        if ttl.load(Relaxed) != seconds {
            match seconds {
                0 => self.family.delete(ttl_key(family.id()))?,
                _ => self.family.put(ttl_key(family.id()), seconds.to_be_bytes())?,
            }
            ttl.store(seconds, Relaxed);
        }
        Ok(())
    }
    /// Returns the name of the table in a column family; `None` for column families that are no
    /// tables.
    pub fn table_name(&self, family: String) -> Result<Option<String>> {
        if family == FAMILY_NAME || family == "default" {
            return Ok(None);
        }
        if family.len() != SHORT_NAME_BYTES {
            return Ok(Some(family));
        }
        let record = self.family.get(name_key(&family))?;
        let name = record.and_then(|name| String::from_utf8(name).ok());
        name.map(Some).ok_or_else(|| {
            Status::CORRUPTION.with_text(format!("the name of the table {family:?} is missing"))
        })
    }
    /// Opens the column family of a table.
    pub fn open_table(&self, db: &Db, table: &str) -> Result<Family> {
        let short = family_name(table);
        let family = db.family(&short)?;
        self.check_name(table, &short)?;
        Ok(family)
    }
    /// Fails if a short name belongs to another table.
    fn check_name(&self, table: &str, short: &str) -> Result<()> {
        if short == table {
            return Ok(());
        }
        match self.family.get(name_key(short))? {
            Some(name) if name != table.as_bytes() => Err(Status::TABLE_MISSING
                .with_text(format!("the table {table:?} does not exist (another has its hash)"))),
            _ => Ok(()),
        }
    }
    /// Records that a short name belongs to a table, unless another table has it.
    fn record_name(&self, db: &Db, table: &str, short: &str) -> Result<()> {
        if short == table {
            return Ok(());
        }
        if db.family(short).is_ok() {
            return Err(Status::TABLE_EXISTS
                .with_text(format!("the table {table:?}, or one with its hash, exists")));
        }
        Ok(self.family.put(name_key(short), table)?)
    }
    fn forget_name(&self, table: &str, short: &str) -> Result<()> {
        if short == table {
            return Ok(());
        }
        Ok(self.family.delete(name_key(short))?)
    }
    /// Creates the column family of a table.
    pub fn create_table(&self, db: &Db, table: &str, options: FamilyOptions) -> Result<Family> {
        let _ddl = self.ttls();
        let short = family_name(table);
        self.record_name(db, table, &short)?;
        Ok(db.create_family(&short, options)?)
    }
    /// Drops the column family of a table with its records.
    pub fn drop_table(&self, db: &Db, table: &str) -> Result<()> {
        let mut ttls = self.ttls();
        let short = family_name(table);
        let family = self.open_table(db, table)?;
        db.drop_family(&short)?;
        if ttls.remove(&family.id()).is_some_and(|ttl| ttl.load(Relaxed) != 0) {
            self.family.delete(ttl_key(family.id()))?;
        }
        self.forget_name(table, &short)
    }
    /// Renames the column family of a table.
    pub fn rename_table(&self, db: &Db, from: &str, to: &str) -> Result<()> {
        let _ddl = self.ttls();
        let (short_from, short_to) = (family_name(from), family_name(to));
        self.check_name(from, &short_from)?;
        if from == to {
            return Ok(());
        }
        self.record_name(db, to, &short_to)?;
        db.admin().rename_family(&short_from, &short_to)?;
        self.forget_name(from, &short_from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_get_distinct_short_names() {
        let long = "d/".to_owned() + &"@00e4".repeat(60);
        let short = family_name(&long);
        assert_eq!(short.len(), SHORT_NAME_BYTES);
        assert!(short.starts_with(&long[..PREFIX_BYTES]));
        assert_ne!(family_name(&(long.clone() + "#P#p0")), short);
        // A name that looks like a short name is replaced too.
        assert_ne!(family_name(&short), short);
        assert_eq!(family_name("d/t"), "d/t");
        // Cut between characters.
        let umlauts = "ä".repeat(128);
        assert_eq!(family_name(&umlauts).len(), SHORT_NAME_BYTES);
        let odd = "a".to_owned() + &"ä".repeat(128);
        assert_eq!(family_name(&odd).len(), SHORT_NAME_BYTES);
    }

    #[test]
    fn hash_is_fnv_1a() {
        assert_eq!(hash(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(hash(b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }
}
