//! The door to LMDB (feature `lmdb`), through heed: `unsafe` because mapping a file is, and heed says so.
//!
//! An environment is opened read-only, and in place: LMDB changes nothing of it then but its entry in the table of readers, and a
//! reader sees one moment whatever writers do. One read transaction serves the whole import. The flags of a database are not
//! in heed's interface: those of a named one lie in its entry of the main one, those of the main one in the first page.

use super::entry::{Entry, Family, Look, Setting, Source, Visit};
use super::orders::Said;
use crate::failure::{Failure, Result, show_path};
use heed::types::Bytes;
use heed::{CommitOrAbort, CommitToken, Database, Env, EnvFlags, EnvOpenOptions, OnCommit, RoTxn, WithTls};
use perigee::{FamilyOptions, KeyOrder};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Named databases, at most.
const NAMED_MAX: u32 = 4096;
/// The size of the description of a database, and where its flags are in it.
const DESCRIPTION: usize = 48;
const FLAGS: usize = 4;
/// In the first page: where LMDB's number is, and the description of the main database.
const MAGIC_AT: usize = 16;
const MAGIC: u32 = 0xBEEF_C0DE;
const MAIN_AT: usize = 88;

const REVERSE_KEY: u16 = 0x02;
const DUP_SORT: u16 = 0x04;
const INTEGER_KEY: u16 = 0x08;

type Table = Database<'static, Bytes, Bytes>;

/// The databases of a transaction, which may be used by others once it has been committed.
struct Opened<'t>(Vec<(Option<String>, u16, Database<'t, Bytes, Bytes>)>);

impl OnCommit for Opened<'_> {
    type Committed = Vec<(Option<String>, u16, Table)>;
    fn on_commit(self, token: &CommitToken) -> Self::Committed {
        self.0.into_iter().map(|(name, flags, t)| (name, flags, t.on_commit(token))).collect()
    }
}

/// An environment, open.
struct Lmdb {
    /// By family; the main one's entries that are names of others are left out.
    tables: Vec<(bool, Table)>,
    families: Vec<Family>,
    names: BTreeMap<Vec<u8>, ()>,
    txn: RoTxn<'static, WithTls>,
    told: String,
}

fn wrong(e: heed::Error) -> Failure {
    Failure::other("LMDB", format!("LMDB: {e}"))
}

/// Opens an environment to read: a directory with `data.mdb`, or the file itself.
pub fn open(dir: &Path, said: &Said) -> Result<Box<dyn Source>> {
    let single = dir.is_file();
    let (data, lock) = if single {
        let mut lock = dir.as_os_str().to_owned();
        lock.push("-lock");
        (dir.to_owned(), lock.into())
    } else {
        (dir.join("data.mdb"), dir.join("lock.mdb"))
    };
    let main_flags = first_page(&data)?;
    let mut flags = EnvFlags::READ_ONLY;
    flags.set(EnvFlags::NO_SUB_DIR, single);
    // Whoever has it open keeps a lock file; where there is none, none is made.
    flags.set(EnvFlags::NO_LOCK, !lock.exists());
    let mut options = EnvOpenOptions::new();
    options.max_dbs(NAMED_MAX);
    // SAFETY: nothing is written; without a lock file nobody has the environment open, with one LMDB's own locks keep
    // what this process reads from being overwritten by others.
    let env = unsafe { options.flags(flags).open(dir) }.map_err(wrong)?;
    let opened = open_all(&env, main_flags)?;
    let txn = env.static_read_txn().map_err(wrong)?;
    said.check(opened.iter().map(|(name, ..)| name.as_deref().unwrap_or("default")))?;
    let names = opened.iter().filter_map(|(name, ..)| Some((name.clone()?.into_bytes(), ()))).collect();
    let mut lmdb = Lmdb {
        tables: Vec::new(),
        families: Vec::new(),
        names,
        txn,
        told: format!("LMDB environment {}", show_path(dir)),
    };
    for (name, flags, table) in opened {
        lmdb.add(name, flags, table, said)?;
    }
    Ok(Box::new(lmdb))
}

/// Refuses what is not LMDB's; the flags of the main database.
fn first_page(data: &Path) -> Result<u16> {
    let mut page = [0; MAIN_AT + DESCRIPTION];
    let file = File::open(data).map_err(|e| Failure::file("open", data, &e))?;
    let read = file.read_exact_at(&mut page, 0);
    let magic = u32::from_le_bytes(std::array::from_fn(|i| page[MAGIC_AT + i]));
    if read.is_err() || magic != MAGIC {
        return Err(Failure::usage(format!("{} is no LMDB database", show_path(data)))
            .hint("give the directory that holds data.mdb; nothing was changed"));
    }
    Ok(flags(&page[MAIN_AT..]))
}

fn flags(description: &[u8]) -> u16 {
    u16::from_le_bytes(std::array::from_fn(|i| description[FLAGS + i]))
}

/// The main database and all named ones, with their flags.
fn open_all(env: &Env, main_flags: u16) -> Result<Vec<(Option<String>, u16, Table)>> {
    let rtxn = env.read_txn().map_err(wrong)?;
    let opened = env.open_databases_and_commit(rtxn, |opener, txn| {
        let mut all = Vec::new();
        let Some(main) = opener.open_database::<Bytes, Bytes>(txn, None)? else {
            return Ok(CommitOrAbort::<_, ()>::Commit(Opened(all)));
        };
        for entry in main.iter(txn)? {
            let (key, value) = entry?;
            // An entry like any other, or the description of a database: opening tells.
            let name =
                std::str::from_utf8(key).ok().filter(|n| value.len() == DESCRIPTION && !n.contains('\0'));
            let Some(name) = name else { continue };
            match opener.open_database::<Bytes, Bytes>(txn, Some(name)) {
                Ok(Some(table)) => all.push((Some(name.to_owned()), flags(value), table)),
                Ok(None) | Err(heed::Error::Mdb(heed::MdbError::Incompatible)) => {}
                Err(e) => return Err(e),
            }
        }
        all.push((None, main_flags, main));
        Ok::<_, heed::Error>(CommitOrAbort::Commit(Opened(all)))
    });
    Ok(opened.map_err(wrong)?.unwrap_commit())
}

impl Lmdb {
    /// Adds a database as a family; the main one as `default`, if it holds more than names.
    fn add(&mut self, name: Option<String>, flags: u16, table: Table, said: &Said) -> Result<()> {
        let is_main = name.is_none();
        let keys = table.len(&self.txn).map_err(wrong)?;
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
        let order = order(&name, flags, said, || {
            let first = table.first(&self.txn).map_err(wrong)?;
            Ok(first.map_or(8, |(key, _)| key.len()))
        })?;
        let settings =
            vec![Setting::kept("flags", format!("{flags:#04x}"), format!("order {}", order.name()))];
        let options = FamilyOptions::new().order(order);
        self.families.push(Family { name, options, settings, for_c: None, estimate: Some(keys) });
        self.tables.push((is_main, table));
        Ok(())
    }
}

/// The order of a database with these flags.
fn order(
    name: &str,
    flags: u16,
    said: &Said,
    first_key_bytes: impl FnOnce() -> Result<usize>,
) -> Result<KeyOrder> {
    let refuse =
        |why: &str, hint: String| Err(Failure::usage(format!("the LMDB database {name:?} {why}")).hint(hint));
    if flags & DUP_SORT != 0 {
        return refuse(
            "holds several values for a key (DUPSORT), which families do not",
            "copy it into a database without duplicates first, with the value as a part of the key".into(),
        );
    }
    let say = format!("say which order they shall have: --order {name}=memcmp");
    match (said.of(name), flags & INTEGER_KEY != 0, flags & REVERSE_KEY != 0) {
        (Some(order), ..) => Ok(order),
        (None, false, false) => Ok(KeyOrder::Bytes),
        (None, true, _) if first_key_bytes()? == 8 => Ok(KeyOrder::U64),
        (None, true, _) => refuse("has integer keys of other than 8 bytes (INTEGERKEY)", say),
        (None, false, true) => refuse("compares keys from their ends (REVERSEKEY)", say),
    }
}

impl Source for Lmdb {
    fn told(&self) -> String {
        self.told.clone()
    }
    fn families(&self) -> &[Family] {
        &self.families
    }
    fn walk(&mut self, family: usize, _look: Look, visit: &mut Visit<'_>) -> Result<()> {
        let (is_main, table) = &self.tables[family];
        for entry in table.iter(&self.txn).map_err(wrong)? {
            let (key, value) = entry.map_err(wrong)?;
            if *is_main && self.names.contains_key(key) {
                continue;
            }
            visit(Entry { key, value, expires_at_ms: None })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_decide_the_order() {
        let said = Said::read(&["other=reverse".into()]).unwrap();
        let of = |name: &str, flags, bytes| order(name, flags, &said, || Ok(bytes));
        assert_eq!(of("a", 0, 1).unwrap(), KeyOrder::Bytes);
        assert_eq!(of("a", INTEGER_KEY, 8).unwrap(), KeyOrder::U64);
        assert!(of("a", INTEGER_KEY, 4).is_err());
        assert!(of("a", REVERSE_KEY, 4).is_err());
        assert_eq!(of("other", REVERSE_KEY, 4).unwrap(), KeyOrder::Reverse);
        assert!(of("other", DUP_SORT, 4).is_err());
    }
}
