//! Reads RocksDB databases (feature `rocksdb`) through the crate `rocksdb`. A database is opened
//! read-only, which writes nothing but RocksDB's info log; that is directed to the scratch
//! directory. The options of the column families are read from the newest `OPTIONS` file.

use super::comparators::ComparatorOverrides;
use super::scratch::{self, ScratchDir, SourceLock};
use super::source::{
    EntryVisitor, ForeignSource, MappedSetting, ReadPass, SourceEntry, SourceFamily,
};
use crate::failure::{Failure, Result, show_path};
use perigee::{Compression, FamilyOptions, KeyComparator};
use rocksdb::{ColumnFamilyDescriptor, DB, Options, ReadOptions};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const BYTEWISE: &str = "leveldb.BytewiseComparator";
const REVERSE: &str = "rocksdb.ReverseBytewiseComparator";

/// Options of a column family: names and values.
type StoredOptions = BTreeMap<String, String>;

/// An open RocksDB database.
struct RocksDbSource {
    db: DB,
    families: Vec<SourceFamily>,
    description: String,
    _lock: SourceLock,
    _scratch: ScratchDir,
}

fn to_failure(e: rocksdb::Error) -> Failure {
    Failure::other("RocksDB", format!("RocksDB: {}", e.into_string()))
}

/// Opens a database for reading.
pub fn open(
    dir: &Path,
    overrides: &ComparatorOverrides,
    scratch: impl FnOnce() -> Result<ScratchDir>,
) -> Result<Box<dyn ForeignSource>> {
    if !dir.join("CURRENT").is_file() {
        return Err(Failure::usage(format!(
            "{} is not a RocksDB database: it has no CURRENT",
            show_path(dir)
        ))
        .hint("specify the directory of the database; nothing was changed"));
    }
    let lock = scratch::lock_source(dir, "RocksDB")?;
    let names = DB::list_cf(&Options::default(), dir).map_err(to_failure)?;
    overrides.check_families(names.iter().map(String::as_str))?;
    let stored = read_newest_options(dir)?;
    let mut families = Vec::new();
    for name in &names {
        families.push(map_family(name, stored.get(name).unwrap_or(&StoredOptions::new()))?);
    }
    let scratch = scratch()?;
    let mut options = Options::default();
    options.set_db_log_dir(scratch.dir());
    let all = families
        .iter()
        .map(|f| ColumnFamilyDescriptor::new(&f.name, open_options(f.options.comparator)));
    let db = DB::open_cf_descriptors_read_only(&options, dir, all, false).map_err(to_failure)?;
    let description = format!("RocksDB database {}", show_path(dir));
    for family in &mut families {
        let keys = db.cf_handle(&family.name).and_then(|cf| {
            db.property_int_value_cf(cf, rocksdb::properties::ESTIMATE_NUM_KEYS).ok().flatten()
        });
        family.estimated_entries = keys;
    }
    Ok(Box::new(RocksDbSource { db, families, description, _lock: lock, _scratch: scratch }))
}

/// Returns options with the comparator of a column family. RocksDB checks only its name; its own
/// reverse bytewise comparator is not available through the crate.
fn open_options(comparator: KeyComparator) -> Options {
    let mut options = Options::default();
    if comparator == KeyComparator::Reverse {
        options.set_comparator(REVERSE, Box::new(|a, b| b.cmp(a)));
    }
    options
}

/// Maps a column family and its stored options.
fn map_family(name: &str, stored: &StoredOptions) -> Result<SourceFamily> {
    let stored_name = stored.get("comparator").map_or(BYTEWISE, String::as_str);
    let comparator = match stored_name {
        BYTEWISE => KeyComparator::Bytes,
        REVERSE => KeyComparator::Reverse,
        other => {
            return Err(Failure::usage(format!(
                "the column family {name:?} is sorted by the comparator {other:?}, a function of \
                 the program that wrote it"
            ))
            .hint("only RocksDB's bytewise and reverse bytewise comparators can be imported"));
        }
    };
    let mut options = FamilyOptions::new().comparator(comparator);
    let mut settings = vec![MappedSetting::mapped("comparator", stored_name, comparator.name())];
    if let Some(bytes) = stored.get("write_buffer_size").and_then(|s| s.parse::<u64>().ok()) {
        options = options.memtable_bytes(bytes.clamp(1 << 10, 2 << 30));
        settings.push(MappedSetting::mapped(
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
            Some(c) => MappedSetting::mapped("compression", named, format!("compression {c:?}")),
            None => MappedSetting::unmapped("compression", named),
        });
    }
    if let Some(operator) = stored.get("merge_operator").filter(|m| *m != "nullptr") {
        settings.push(MappedSetting::unmapped("merge_operator", operator));
    }
    settings.push(MappedSetting::unmapped("all other options", "see the OPTIONS file"));
    Ok(SourceFamily {
        name: name.to_owned(),
        options,
        settings,
        c_library_settings: None,
        estimated_entries: None,
    })
}

/// Reads the options of each column family from the newest `OPTIONS` file; empty if there is none.
fn read_newest_options(dir: &Path) -> Result<BTreeMap<String, StoredOptions>> {
    let number = |name: &str| name.strip_prefix("OPTIONS-")?.parse::<u64>().ok();
    let mut newest = None;
    for entry in fs::read_dir(dir).map_err(|e| Failure::file("read", dir, &e))? {
        let entry = entry.map_err(|e| Failure::file("read", dir, &e))?;
        newest =
            newest.max(number(&entry.file_name().to_string_lossy()).map(|n| (n, entry.path())));
    }
    let Some((_, path)) = newest else { return Ok(BTreeMap::new()) };
    Ok(parse_sections(&fs::read_to_string(&path).map_err(|e| Failure::file("read", &path, &e))?))
}

/// Parses the sections `[CFOptions "name"]` of an `OPTIONS` file.
fn parse_sections(text: &str) -> BTreeMap<String, StoredOptions> {
    let mut all: BTreeMap<String, StoredOptions> = BTreeMap::new();
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

impl ForeignSource for RocksDbSource {
    fn description(&self) -> String {
        self.description.clone()
    }
    fn families(&self) -> &[SourceFamily] {
        &self.families
    }
    fn for_each_entry(
        &mut self,
        family: usize,
        pass: ReadPass,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<()> {
        let name = &self.families[family].name;
        let cf = self.db.cf_handle(name).ok_or_else(|| {
            Failure::other("RocksDB", format!("RocksDB has no open column family {name:?}"))
        })?;
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        let mut iter = self.db.raw_iterator_cf_opt(cf, options);
        match pass {
            ReadPass::First => iter.seek_to_first(),
            ReadPass::Second => iter.seek_to_last(),
        }
        while let Some((key, value)) = iter.item() {
            visit(SourceEntry { key, value, expires_at_ms: None })?;
            match pass {
                ReadPass::First => iter.next(),
                ReadPass::Second => iter.prev(),
            }
        }
        iter.status().map_err(to_failure)
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
        let all = parse_sections(text);
        assert_eq!(all.keys().collect::<Vec<_>>(), ["back", "default"]);
        let default = map_family("default", &all["default"]).unwrap();
        assert_eq!(
            (default.options.comparator, default.options.memtable_bytes),
            (KeyComparator::Bytes, 4096)
        );
        let back = map_family("back", &all["back"]).unwrap();
        assert_eq!(
            (back.options.comparator, back.options.compression),
            (KeyComparator::Reverse, Compression::Snappy)
        );
        assert!(
            map_family("mine", &StoredOptions::from([("comparator".into(), "mine".into())]))
                .is_err()
        );
        assert_eq!(
            map_family("old", &StoredOptions::new()).unwrap().options.comparator,
            KeyComparator::Bytes
        );
    }
}
