//! Reads LMDB environments (feature `lmdb`) through the crate heed. `unsafe` because opening an
//! environment maps a file into memory.
//!
//! An environment is opened read-only and in place: LMDB then changes nothing but its entry in the
//! reader table. One read transaction, a consistent snapshot, is used for the whole import. heed
//! does not expose the flags of a database: those of a named database are read from its record in
//! the main database, those of the main database from the first page.

use super::comparators::ComparatorOverrides;
use super::source::{
    EntryVisitor, ForeignSource, MappedSetting, ReadPass, SourceEntry, SourceFamily,
};
use crate::failure::{Failure, Result, show_path};
use heed::types::Bytes;
use heed::{
    CommitOrAbort, CommitToken, Database, Env, EnvFlags, EnvOpenOptions, OnCommit, RoTxn, WithTls,
};
use perigee::{FamilyOptions, KeyComparator};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Maximum number of named databases.
const NAMED_MAX: u32 = 4096;
/// Size of a database record, and the offset of the flags in it.
const DB_RECORD_BYTES: usize = 48;
const FLAGS_OFFSET: usize = 4;
/// Offsets in the first page: LMDB's magic number, and the record of the main database.
const MAGIC_OFFSET: usize = 16;
const MAGIC: u32 = 0xBEEF_C0DE;
const MAIN_DB_OFFSET: usize = 88;

const REVERSE_KEY: u16 = 0x02;
const DUP_SORT: u16 = 0x04;
const INTEGER_KEY: u16 = 0x08;

type Table = Database<'static, Bytes, Bytes>;

/// Databases opened in a transaction; usable in other transactions once it is committed.
struct OpenDatabases<'t>(Vec<(Option<String>, u16, Database<'t, Bytes, Bytes>)>);

impl OnCommit for OpenDatabases<'_> {
    type Committed = Vec<(Option<String>, u16, Table)>;
    fn on_commit(self, token: &CommitToken) -> Self::Committed {
        self.0.into_iter().map(|(name, flags, t)| (name, flags, t.on_commit(token))).collect()
    }
}

/// An open environment.
struct LmdbSource {
    /// Databases by column family, with true for the main one. Its entries that are records of
    /// named databases are skipped.
    tables: Vec<(bool, Table)>,
    families: Vec<SourceFamily>,
    names: BTreeMap<Vec<u8>, ()>,
    txn: RoTxn<'static, WithTls>,
    description: String,
}

fn to_failure(e: heed::Error) -> Failure {
    Failure::other("LMDB", format!("LMDB: {e}"))
}

/// Opens an environment for reading: a directory with `data.mdb`, or a single file.
pub fn open(dir: &Path, overrides: &ComparatorOverrides) -> Result<Box<dyn ForeignSource>> {
    let single = dir.is_file();
    let (data, lock) = if single {
        let mut lock = dir.as_os_str().to_owned();
        lock.push("-lock");
        (dir.to_owned(), lock.into())
    } else {
        (dir.join("data.mdb"), dir.join("lock.mdb"))
    };
    let main_flags = check_first_page(&data)?;
    let mut flags = EnvFlags::READ_ONLY;
    flags.set(EnvFlags::NO_SUB_DIR, single);
    // A process that has the environment open keeps a lock file; if there is none, do not create
    // one.
    flags.set(EnvFlags::NO_LOCK, !lock.exists());
    let mut options = EnvOpenOptions::new();
    options.max_dbs(NAMED_MAX);
    // SAFETY: nothing is written. Without a lock file no process has the environment open; with
    // one, LMDB's own locks prevent others from overwriting the pages that this process reads.
    let env = unsafe { options.flags(flags).open(dir) }.map_err(to_failure)?;
    let opened = open_all(&env, main_flags)?;
    let txn = env.static_read_txn().map_err(to_failure)?;
    overrides
        .check_families(opened.iter().map(|(name, ..)| name.as_deref().unwrap_or("default")))?;
    let names =
        opened.iter().filter_map(|(name, ..)| Some((name.clone()?.into_bytes(), ()))).collect();
    let mut lmdb = LmdbSource {
        tables: Vec::new(),
        families: Vec::new(),
        names,
        txn,
        description: format!("LMDB environment {}", show_path(dir)),
    };
    for (name, flags, table) in opened {
        lmdb.add_family(name, flags, table, overrides)?;
    }
    Ok(Box::new(lmdb))
}

/// Returns the flags of the main database; an error if the file is not an LMDB database.
fn check_first_page(data: &Path) -> Result<u16> {
    let mut page = [0; MAIN_DB_OFFSET + DB_RECORD_BYTES];
    let file = File::open(data).map_err(|e| Failure::file("open", data, &e))?;
    let read = file.read_exact_at(&mut page, 0);
    let magic = u32::from_le_bytes(std::array::from_fn(|i| page[MAGIC_OFFSET + i]));
    if read.is_err() || magic != MAGIC {
        return Err(Failure::usage(format!("{} is not an LMDB database", show_path(data)))
            .hint("specify the directory that holds data.mdb; nothing was changed"));
    }
    Ok(flags(&page[MAIN_DB_OFFSET..]))
}

fn flags(record: &[u8]) -> u16 {
    u16::from_le_bytes(std::array::from_fn(|i| record[FLAGS_OFFSET + i]))
}

/// Opens the main database and all named ones; returns them with their flags.
fn open_all(env: &Env, main_flags: u16) -> Result<Vec<(Option<String>, u16, Table)>> {
    let rtxn = env.read_txn().map_err(to_failure)?;
    let opened = env.open_databases_and_commit(rtxn, |opener, txn| {
        let mut all = Vec::new();
        let Some(main) = opener.open_database::<Bytes, Bytes>(txn, None)? else {
            return Ok(CommitOrAbort::<_, ()>::Commit(OpenDatabases(all)));
        };
        for entry in main.iter(txn)? {
            let (key, value) = entry?;
            // Either an ordinary entry or the record of a named database: only opening it shows
            // which.
            let name = std::str::from_utf8(key)
                .ok()
                .filter(|n| value.len() == DB_RECORD_BYTES && !n.contains('\0'));
            let Some(name) = name else { continue };
            match opener.open_database::<Bytes, Bytes>(txn, Some(name)) {
                Ok(Some(table)) => all.push((Some(name.to_owned()), flags(value), table)),
                Ok(None) | Err(heed::Error::Mdb(heed::MdbError::Incompatible)) => {}
                Err(e) => return Err(e),
            }
        }
        all.push((None, main_flags, main));
        Ok::<_, heed::Error>(CommitOrAbort::Commit(OpenDatabases(all)))
    });
    Ok(opened.map_err(to_failure)?.unwrap_commit())
}

impl LmdbSource {
    /// Adds a database as a column family. The main one becomes `default`, if it holds entries
    /// other than records of named databases.
    fn add_family(
        &mut self,
        name: Option<String>,
        flags: u16,
        table: Table,
        overrides: &ComparatorOverrides,
    ) -> Result<()> {
        let is_main = name.is_none();
        let keys = table.len(&self.txn).map_err(to_failure)?;
        let keys = if is_main { keys.saturating_sub(self.names.len() as u64) } else { keys };
        if is_main && keys == 0 {
            return Ok(());
        }
        let name = name.unwrap_or_else(|| "default".to_owned());
        if is_main && self.families.iter().any(|f| f.name == name) {
            return Err(Failure::usage(
                "the environment has entries in its main database and a named database \
                 \"default\": both would become the column family \"default\"",
            ));
        }
        let comparator = comparator_of(&name, flags, overrides, || {
            let first = table.first(&self.txn).map_err(to_failure)?;
            Ok(first.map_or(8, |(key, _)| key.len()))
        })?;
        let settings = vec![MappedSetting::mapped(
            "flags",
            format!("{flags:#04x}"),
            format!("comparator {}", comparator.name()),
        )];
        let options = FamilyOptions::new().comparator(comparator);
        self.families.push(SourceFamily {
            name,
            options,
            settings,
            c_library_settings: None,
            estimated_entries: Some(keys),
        });
        self.tables.push((is_main, table));
        Ok(())
    }
}

/// Returns the comparator of a database with these flags.
fn comparator_of(
    name: &str,
    flags: u16,
    overrides: &ComparatorOverrides,
    first_key_bytes: impl FnOnce() -> Result<usize>,
) -> Result<KeyComparator> {
    let refuse = |reason: &str, hint: String| {
        Err(Failure::usage(format!("the LMDB database {name:?} {reason}")).hint(hint))
    };
    if flags & DUP_SORT != 0 {
        return refuse(
            "holds several values per key (DUPSORT), which column families do not support",
            "first copy it into a database without duplicates, with the value as a part of the key"
                .into(),
        );
    }
    let hint = format!("specify the comparator of the imported keys: --comparator {name}=memcmp");
    match (overrides.get(name), flags & INTEGER_KEY != 0, flags & REVERSE_KEY != 0) {
        (Some(comparator), ..) => Ok(comparator),
        (None, false, false) => Ok(KeyComparator::Bytes),
        (None, true, _) if first_key_bytes()? == 8 => Ok(KeyComparator::U64),
        (None, true, _) => refuse("has integer keys that are not 8 bytes long (INTEGERKEY)", hint),
        (None, false, true) => refuse("compares keys from their ends (REVERSEKEY)", hint),
    }
}

impl ForeignSource for LmdbSource {
    fn description(&self) -> String {
        self.description.clone()
    }
    fn families(&self) -> &[SourceFamily] {
        &self.families
    }
    fn for_each_entry(
        &mut self,
        family: usize,
        _pass: ReadPass,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<()> {
        let (is_main, table) = &self.tables[family];
        for entry in table.iter(&self.txn).map_err(to_failure)? {
            let (key, value) = entry.map_err(to_failure)?;
            if *is_main && self.names.contains_key(key) {
                continue;
            }
            visit(SourceEntry { key, value, expires_at_ms: None })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_select_the_comparator() {
        let overrides = ComparatorOverrides::parse(&["other=reverse".into()]).unwrap();
        let of = |name: &str, flags, bytes| comparator_of(name, flags, &overrides, || Ok(bytes));
        assert_eq!(of("a", 0, 1).unwrap(), KeyComparator::Bytes);
        assert_eq!(of("a", INTEGER_KEY, 8).unwrap(), KeyComparator::U64);
        assert!(of("a", INTEGER_KEY, 4).is_err());
        assert!(of("a", REVERSE_KEY, 4).is_err());
        assert_eq!(of("other", REVERSE_KEY, 4).unwrap(), KeyComparator::Reverse);
        assert!(of("other", DUP_SORT, 4).is_err());
    }
}
