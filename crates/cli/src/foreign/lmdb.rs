//! The door to LMDB (feature `lmdb`), through heed: `unsafe` because mapping a file is, and heed
//! says so.
//!
//! An environment is opened read-only, and in place: LMDB changes nothing of it then but its entry
//! in the table of readers, and a reader sees one moment whatever writers do. One read transaction
//! serves the whole import. The flags of a database are not in heed's interface: those of a named
//! one lie in its entry of the main one, those of the main one in the first page.

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

/// Named databases, at most.
const NAMED_MAX: u32 = 4096;
/// The size of the description of a database, and where its flags are in it.
const DB_RECORD_BYTES: usize = 48;
const FLAGS_OFFSET: usize = 4;
/// In the first page: where LMDB's number is, and the description of the main database.
const MAGIC_OFFSET: usize = 16;
const MAGIC: u32 = 0xBEEF_C0DE;
const MAIN_DB_OFFSET: usize = 88;

const REVERSE_KEY: u16 = 0x02;
const DUP_SORT: u16 = 0x04;
const INTEGER_KEY: u16 = 0x08;

type Table = Database<'static, Bytes, Bytes>;

/// The databases of a transaction, which may be used by others once it has been committed.
struct OpenDatabases<'t>(Vec<(Option<String>, u16, Database<'t, Bytes, Bytes>)>);

impl OnCommit for OpenDatabases<'_> {
    type Committed = Vec<(Option<String>, u16, Table)>;
    fn on_commit(self, token: &CommitToken) -> Self::Committed {
        self.0.into_iter().map(|(name, flags, t)| (name, flags, t.on_commit(token))).collect()
    }
}

/// An environment, open.
struct LmdbSource {
    /// By family; the main one's entries that are names of others are left out.
    tables: Vec<(bool, Table)>,
    families: Vec<SourceFamily>,
    names: BTreeMap<Vec<u8>, ()>,
    txn: RoTxn<'static, WithTls>,
    description: String,
}

fn to_failure(e: heed::Error) -> Failure {
    Failure::other("LMDB", format!("LMDB: {e}"))
}

/// Opens an environment to read: a directory with `data.mdb`, or the file itself.
pub fn open(dir: &Path, said: &ComparatorOverrides) -> Result<Box<dyn ForeignSource>> {
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
    // Whoever has it open keeps a lock file; where there is none, none is made.
    flags.set(EnvFlags::NO_LOCK, !lock.exists());
    let mut options = EnvOpenOptions::new();
    options.max_dbs(NAMED_MAX);
    // SAFETY: nothing is written; without a lock file nobody has the environment open, with one
    // LMDB's own locks keep what this process reads from being overwritten by others.
    let env = unsafe { options.flags(flags).open(dir) }.map_err(to_failure)?;
    let opened = open_all(&env, main_flags)?;
    let txn = env.static_read_txn().map_err(to_failure)?;
    said.check_families(opened.iter().map(|(name, ..)| name.as_deref().unwrap_or("default")))?;
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
        lmdb.add_family(name, flags, table, said)?;
    }
    Ok(Box::new(lmdb))
}

/// Refuses what is not LMDB's; the flags of the main database.
fn check_first_page(data: &Path) -> Result<u16> {
    let mut page = [0; MAIN_DB_OFFSET + DB_RECORD_BYTES];
    let file = File::open(data).map_err(|e| Failure::file("open", data, &e))?;
    let read = file.read_exact_at(&mut page, 0);
    let magic = u32::from_le_bytes(std::array::from_fn(|i| page[MAGIC_OFFSET + i]));
    if read.is_err() || magic != MAGIC {
        return Err(Failure::usage(format!("{} is no LMDB database", show_path(data)))
            .hint("give the directory that holds data.mdb; nothing was changed"));
    }
    Ok(flags(&page[MAIN_DB_OFFSET..]))
}

fn flags(description: &[u8]) -> u16 {
    u16::from_le_bytes(std::array::from_fn(|i| description[FLAGS_OFFSET + i]))
}

/// The main database and all named ones, with their flags.
fn open_all(env: &Env, main_flags: u16) -> Result<Vec<(Option<String>, u16, Table)>> {
    let rtxn = env.read_txn().map_err(to_failure)?;
    let opened = env.open_databases_and_commit(rtxn, |opener, txn| {
        let mut all = Vec::new();
        let Some(main) = opener.open_database::<Bytes, Bytes>(txn, None)? else {
            return Ok(CommitOrAbort::<_, ()>::Commit(OpenDatabases(all)));
        };
        for entry in main.iter(txn)? {
            let (key, value) = entry?;
            // An entry like any other, or the description of a database: opening tells.
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
    /// Adds a database as a family; the main one as `default`, if it holds more than names.
    fn add_family(
        &mut self,
        name: Option<String>,
        flags: u16,
        table: Table,
        said: &ComparatorOverrides,
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
                "the environment has entries of its own and a named database \"default\": both would be the family \"default\"",
            ));
        }
        let order = comparator_of(&name, flags, said, || {
            let first = table.first(&self.txn).map_err(to_failure)?;
            Ok(first.map_or(8, |(key, _)| key.len()))
        })?;
        let settings = vec![MappedSetting::mapped(
            "flags",
            format!("{flags:#04x}"),
            format!("order {}", order.name()),
        )];
        let options = FamilyOptions::new().order(order);
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

/// The order of a database with these flags.
fn comparator_of(
    name: &str,
    flags: u16,
    said: &ComparatorOverrides,
    first_key_bytes: impl FnOnce() -> Result<usize>,
) -> Result<KeyComparator> {
    let refuse = |why: &str, hint: String| {
        Err(Failure::usage(format!("the LMDB database {name:?} {why}")).hint(hint))
    };
    if flags & DUP_SORT != 0 {
        return refuse(
            "holds several values for a key (DUPSORT), which families do not",
            "copy it into a database without duplicates first, with the value as a part of the key"
                .into(),
        );
    }
    let say = format!("say which order they shall have: --order {name}=memcmp");
    match (said.get(name), flags & INTEGER_KEY != 0, flags & REVERSE_KEY != 0) {
        (Some(order), ..) => Ok(order),
        (None, false, false) => Ok(KeyComparator::Bytes),
        (None, true, _) if first_key_bytes()? == 8 => Ok(KeyComparator::U64),
        (None, true, _) => refuse("has integer keys of other than 8 bytes (INTEGERKEY)", say),
        (None, false, true) => refuse("compares keys from their ends (REVERSEKEY)", say),
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
        _look: ReadPass,
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
        let said = ComparatorOverrides::parse(&["other=reverse".into()]).unwrap();
        let of = |name: &str, flags, bytes| comparator_of(name, flags, &said, || Ok(bytes));
        assert_eq!(of("a", 0, 1).unwrap(), KeyComparator::Bytes);
        assert_eq!(of("a", INTEGER_KEY, 8).unwrap(), KeyComparator::U64);
        assert!(of("a", INTEGER_KEY, 4).is_err());
        assert!(of("a", REVERSE_KEY, 4).is_err());
        assert_eq!(of("other", REVERSE_KEY, 4).unwrap(), KeyComparator::Reverse);
        assert!(of("other", DUP_SORT, 4).is_err());
    }
}
