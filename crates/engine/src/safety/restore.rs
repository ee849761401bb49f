//! The way back: a generation as a database directory of its own, and the check that it would work.

use super::build::Building;
use super::copy;
use super::record::Generation;
use super::store::{Store, plain_name, stored_name};
use perigee_base::{Error, ErrorKind, Result};
use perigee_env::Env;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What was restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The generation.
    pub generation: u64,
    /// The last operation in it.
    pub sequence: u64,
    /// Files copied.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What was checked, and everything wrong.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Generations looked at.
    pub generations: u64,
    /// Files read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// One error for each damaged or missing file, with the generations that need it.
    pub errors: Vec<(Error, Vec<u64>)>,
}

/// Restores a generation (`None`: the newest) into `target`, which must not exist or be empty.
pub fn restore(
    env: &Env,
    backup: &Path,
    generation: Option<u64>,
    target: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Restored> {
    let store = Store::open(env, backup)?;
    let number = match generation {
        Some(number) => number,
        None => newest(&store, backup)?,
    };
    let g = store.read(number)?;
    let mut out = Restored { generation: g.number, sequence: g.sequence, files: 0, bytes: 0 };
    let total = g.bytes();
    Building::begin(env, target)?.fill(|dir| {
        for f in &g.files {
            let stored = stored_name(g.database, f);
            copy::copy((&*store.dir, &stored), (&**dir, &plain_name(f)), f.id, (f.bytes, f.checksum))
                .map_err(|e| explain(&store, e, &stored, number))?;
            out.files += 1;
            out.bytes += f.bytes;
            progress(out.bytes, total);
        }
        dir.sync()
    })?;
    Ok(out)
}

/// The newest generation, if there can be no doubt which database is meant.
fn newest(store: &Store, backup: &Path) -> Result<u64> {
    let numbers = store.numbers()?;
    let newest = *numbers.last().ok_or_else(|| no_generation(backup))?;
    let databases: BTreeSet<u64> =
        numbers.iter().filter_map(|n| store.read(*n).ok()).map(|g| g.database).collect();
    if databases.len() > 1 {
        let (shown, count) = (backup.display(), databases.len());
        return Err(Error::invalid(format!(
            "{shown} holds generations of {count} databases: say the number of the one to restore"
        )));
    }
    Ok(newest)
}

fn no_generation(backup: &Path) -> Error {
    Error::new(ErrorKind::NotFound, format!("{} holds no generation", backup.display()))
}

/// A missing file of a generation is damage, and the error says what is left to do.
fn explain(store: &Store, e: Error, file: &str, number: u64) -> Error {
    match e.kind() {
        // Its record goes before its files.
        ErrorKind::NotFound if !matches!(store.numbers(), Ok(n) if n.contains(&number)) => Error::new(
            ErrorKind::NotFound,
            format!("generation {number} was pruned meanwhile: choose another one"),
        ),
        ErrorKind::NotFound => {
            Error::corruption(format!("a file of generation {number} is missing: restore another generation"))
                .in_file(file)
        }
        ErrorKind::Corruption => e.wrap(
            ErrorKind::Corruption,
            &format!("generation {number} is damaged, restore another generation"),
        ),
        _ => e,
    }
}

/// All generations that can be read, oldest first, and the errors of the others.
pub fn list(env: &Env, backup: &Path) -> Result<(Vec<Generation>, Vec<Error>)> {
    let store = Store::open(env, backup)?;
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for number in store.numbers()? {
        match store.read(number) {
            Ok(g) => good.push(g),
            Err(e) => bad.push(e),
        }
    }
    Ok((good, bad))
}

/// Reads every file of a generation (`None`: of all), each once, and compares it with its record.
pub fn verify(
    env: &Env,
    backup: &Path,
    generation: Option<u64>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Checked> {
    let store = Store::open(env, backup)?;
    let numbers = match generation {
        Some(n) => vec![n],
        None => store.numbers()?,
    };
    let mut out = Checked::default();
    let mut files = BTreeMap::new();
    for number in numbers {
        out.generations += 1;
        match store.read(number) {
            Ok(g) => {
                for f in &g.files {
                    let entry = files.entry(stored_name(g.database, f)).or_insert((*f, Vec::new()));
                    entry.1.push(number);
                }
            }
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(e),
            Err(e) => out.errors.push((e, vec![number])),
        }
    }
    let total = files.values().map(|(f, _)| f.bytes).sum();
    for (name, (f, needed)) in files {
        let checked = copy::check_whole(&*store.dir, &name, f.id, (f.bytes, f.checksum), |_| Ok(()));
        out.files += 1;
        out.bytes += f.bytes;
        progress(out.bytes, total);
        if let Err(e) = checked {
            out.errors.push((explain(&store, e, &name, needed[0]), needed));
        }
    }
    Ok(out)
}
