//! The door to RocksDB (feature `rocksdb`), through the crate of that name. A database is opened read-only, which writes nothing
//! but RocksDB's own log of what happens: that goes to the scratch directory. What the program that made it chose stands in the
//! newest `OPTIONS` file.

use super::entry::{Entry, Family, Look, Setting, Source, Visit};
use super::orders::Said;
use super::scratch::{self, Held, Scratch};
use crate::failure::{Failure, Result, show_path};
use perigee::{Compression, FamilyOptions, KeyOrder};
use rocksdb::{ColumnFamilyDescriptor, DB, Options, ReadOptions};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const BYTEWISE: &str = "leveldb.BytewiseComparator";
const REVERSE: &str = "rocksdb.ReverseBytewiseComparator";

/// What is said of a column family: names and values.
type Stored = BTreeMap<String, String>;

/// A database of RocksDB, open.
struct Rocks {
    db: DB,
    families: Vec<Family>,
    told: String,
    _held: Held,
    _scratch: Scratch,
}

fn wrong(e: rocksdb::Error) -> Failure {
    Failure::other("RocksDB", format!("RocksDB: {}", e.into_string()))
}

/// Opens a database to read.
pub fn open(dir: &Path, said: &Said, scratch: impl FnOnce() -> Result<Scratch>) -> Result<Box<dyn Source>> {
    if !dir.join("CURRENT").is_file() {
        return Err(Failure::usage(format!("{} is no RocksDB database: it has no CURRENT", show_path(dir)))
            .hint("give the directory of the database; nothing was changed"));
    }
    let held = scratch::hold(dir, "RocksDB")?;
    let names = DB::list_cf(&Options::default(), dir).map_err(wrong)?;
    said.check(names.iter().map(String::as_str))?;
    let stored = newest_options(dir)?;
    let mut families = Vec::new();
    for name in &names {
        families.push(family(name, stored.get(name).unwrap_or(&Stored::new()))?);
    }
    let scratch = scratch()?;
    let mut options = Options::default();
    options.set_db_log_dir(scratch.dir());
    let all = families.iter().map(|f| ColumnFamilyDescriptor::new(&f.name, opened_as(f.options.order)));
    let db = DB::open_cf_descriptors_read_only(&options, dir, all, false).map_err(wrong)?;
    let told = format!("RocksDB database {}", show_path(dir));
    for family in &mut families {
        let keys = db.cf_handle(&family.name).and_then(|cf| {
            db.property_int_value_cf(cf, rocksdb::properties::ESTIMATE_NUM_KEYS).ok().flatten()
        });
        family.estimate = keys;
    }
    Ok(Box::new(Rocks { db, families, told, _held: held, _scratch: scratch }))
}

/// RocksDB checks the name of a comparator, and there is none of its own for the reverse order in this interface.
fn opened_as(order: KeyOrder) -> Options {
    let mut options = Options::default();
    if order == KeyOrder::Reverse {
        options.set_comparator(REVERSE, Box::new(|a, b| b.cmp(a)));
    }
    options
}

/// A family, by what is stored of it.
fn family(name: &str, stored: &Stored) -> Result<Family> {
    let comparator = stored.get("comparator").map_or(BYTEWISE, String::as_str);
    let order = match comparator {
        BYTEWISE => KeyOrder::Bytes,
        REVERSE => KeyOrder::Reverse,
        other => {
            return Err(Failure::usage(format!(
                "the column family {name:?} is sorted by the comparator {other:?}, a function of the program that wrote it"
            ))
            .hint("only RocksDB's bytewise and reverse bytewise comparators can be imported"));
        }
    };
    let mut options = FamilyOptions::new().order(order);
    let mut settings = vec![Setting::kept("comparator", comparator, order.name())];
    if let Some(bytes) = stored.get("write_buffer_size").and_then(|s| s.parse::<u64>().ok()) {
        options = options.memtable_bytes(bytes.clamp(1 << 10, 2 << 30));
        settings.push(Setting::kept(
            "write_buffer_size",
            bytes,
            format!("memtable_bytes {}", options.memtable_bytes),
        ));
    }
    if let Some(named) = stored.get("compression") {
        let ours = match named.as_str() {
            "kNoCompression" => Some(Compression::None),
            "kSnappyCompression" => Some(Compression::Snappy),
            "kLZ4Compression" | "kLZ4HCCompression" => Some(Compression::Lz4),
            "kZSTD" => Some(Compression::Zstd(3)),
            _ => None,
        };
        options = ours.map_or(options.clone(), |c| options.compression(c));
        settings.push(match ours {
            Some(c) => Setting::kept("compression", named, format!("compression {c:?}")),
            None => Setting::none("compression", named),
        });
    }
    if let Some(operator) = stored.get("merge_operator").filter(|m| *m != "nullptr") {
        settings.push(Setting::none("merge_operator", operator));
    }
    settings.push(Setting::none("all other options", "see the OPTIONS file"));
    Ok(Family { name: name.to_owned(), options, settings, for_c: None, estimate: None })
}

/// What the newest `OPTIONS` file says of each column family; nothing where there is none.
fn newest_options(dir: &Path) -> Result<BTreeMap<String, Stored>> {
    let number = |name: &str| name.strip_prefix("OPTIONS-")?.parse::<u64>().ok();
    let mut newest = None;
    for entry in fs::read_dir(dir).map_err(|e| Failure::file("read", dir, &e))? {
        let entry = entry.map_err(|e| Failure::file("read", dir, &e))?;
        newest = newest.max(number(&entry.file_name().to_string_lossy()).map(|n| (n, entry.path())));
    }
    let Some((_, path)) = newest else { return Ok(BTreeMap::new()) };
    Ok(sections(&fs::read_to_string(&path).map_err(|e| Failure::file("read", &path, &e))?))
}

/// The sections `[CFOptions "name"]` of such a file.
fn sections(text: &str) -> BTreeMap<String, Stored> {
    let mut all: BTreeMap<String, Stored> = BTreeMap::new();
    let mut current = None;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            let name = line.strip_prefix("[CFOptions \"").and_then(|rest| rest.strip_suffix("\"]"));
            current = name.map(|n| all.entry(n.to_owned()).or_default());
        } else if let (Some(section), Some((name, value))) = (&mut current, line.split_once('=')) {
            section.insert(name.trim().to_owned(), value.trim().to_owned());
        }
    }
    all
}

impl Source for Rocks {
    fn told(&self) -> String {
        self.told.clone()
    }
    fn families(&self) -> &[Family] {
        &self.families
    }
    fn walk(&mut self, family: usize, look: Look, visit: &mut Visit<'_>) -> Result<()> {
        let name = &self.families[family].name;
        let cf = self.db.cf_handle(name).ok_or_else(|| {
            Failure::other("RocksDB", format!("RocksDB does not find the column family {name:?}"))
        })?;
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        let mut iter = self.db.raw_iterator_cf_opt(cf, options);
        match look {
            Look::First => iter.seek_to_first(),
            Look::Second => iter.seek_to_last(),
        }
        while let Some((key, value)) = iter.item() {
            visit(Entry { key, value, expires_at_ms: None })?;
            match look {
                Look::First => iter.next(),
                Look::Second => iter.prev(),
            }
        }
        iter.status().map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_read_from_the_options_file() {
        let text = "[Version]\n  a=b\n[DBOptions]\n  compression=kZSTD\n[CFOptions \"default\"]\n  \
                    comparator=leveldb.BytewiseComparator\n  write_buffer_size=4096\n  merge_operator=nullptr\n\
                    [TableOptions/BlockBasedTable \"default\"]\n  write_buffer_size=1\n[CFOptions \"back\"]\n  \
                    comparator=rocksdb.ReverseBytewiseComparator\n  compression=kSnappyCompression\n";
        let all = sections(text);
        assert_eq!(all.keys().collect::<Vec<_>>(), ["back", "default"]);
        let default = family("default", &all["default"]).unwrap();
        assert_eq!((default.options.order, default.options.memtable_bytes), (KeyOrder::Bytes, 4096));
        let back = family("back", &all["back"]).unwrap();
        assert_eq!((back.options.order, back.options.compression), (KeyOrder::Reverse, Compression::Snappy));
        assert!(family("mine", &Stored::from([("comparator".into(), "mine".into())])).is_err());
        assert_eq!(family("old", &Stored::new()).unwrap().options.order, KeyOrder::Bytes);
    }
}
