//! `import` from a database of another engine: the arguments, the stages, the report.

use crate::failure::{Failure, Result, show_path};
use crate::foreign::comparators::ComparatorOverrides;
use crate::foreign::scratch::ScratchDir;
use crate::foreign::source::{ForeignSource, SourceFamily};
use crate::foreign::tidesdb;
use crate::foreign::transfer::{self, FamilyTransfer, ImportTarget};
use crate::output::Output;
use crate::size;
use clap::{Args, ValueHint};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Instant;

/// Another engine's database.
#[derive(Args, Debug)]
#[command(next_help_heading = "Databases of other engines")]
#[group(skip)]
pub struct ForeignArgs {
    /// Read a TidesDB 9 database, through the library that --tidesdb-lib names
    #[arg(long, value_name = "DIR", group = "foreign", requires = "tidesdb_lib", value_hint = ValueHint::DirPath)]
    from_tidesdb: Option<PathBuf>,
    /// TidesDB's shared library, such as /usr/local/lib/libtidesdb.so.9
    #[arg(long, value_name = "PATH", requires = "from_tidesdb", value_hint = ValueHint::FilePath)]
    tidesdb_lib: Option<PathBuf>,
    /// Read a RocksDB database (in builds with the feature `rocksdb`)
    #[arg(long, value_name = "DIR", group = "foreign", value_hint = ValueHint::DirPath)]
    from_rocksdb: Option<PathBuf>,
    /// Read an LMDB environment (in builds with the feature `lmdb`)
    #[arg(long, value_name = "DIR", group = "foreign", value_hint = ValueHint::DirPath)]
    from_lmdb: Option<PathBuf>,
    /// The new database, which must not exist
    #[arg(long, value_name = "DB", requires = "foreign", required_unless_present = "db")]
    to: Option<PathBuf>,
    /// Open the TidesDB database itself instead of a copy: its library replays the log, and may
    /// flush and compact
    #[arg(long, requires = "from_tidesdb")]
    in_place: bool,
    /// Where the copy is made, and removed again (default: next to the new database)
    #[arg(long, value_name = "DIR", requires = "foreign")]
    scratch: Option<PathBuf>,
    /// Import entries that expire as entries that never do
    #[arg(long, requires = "from_tidesdb")]
    ignore_ttl: bool,
    /// A family with a comparator of the user's is sorted as this one: memcmp, lexicographic,
    /// uint64, int64, reverse or case_insensitive; may be repeated
    #[arg(long, value_name = "FAMILY=ORDER", requires = "foreign")]
    order: Vec<String>,
}

/// Imports everything, tells what was done.
pub fn run(args: &ForeignArgs, out: &mut Output) -> Result<u8> {
    let started = Instant::now();
    let to =
        args.to.as_ref().ok_or_else(|| Failure::usage("name the new database with --to DB"))?;
    let said = ComparatorOverrides::parse(&args.order)?;
    let target = ImportTarget::new(to)?;
    for from in [&args.from_tidesdb, &args.from_rocksdb, &args.from_lmdb].into_iter().flatten() {
        target.check_outside(from)?;
        args.scratch.iter().try_for_each(|scratch| transfer::check_dir_outside(scratch, from))?;
    }
    let mut source = open_source(args, &said, &target)?;
    let done = transfer::run_transfer(&mut *source, &target)?;
    let (told, families) = (source.description(), source.families().to_vec());
    drop(source);
    let seconds = started.elapsed().as_secs_f64();
    if out.json {
        out.json_line(&json!({"imported": {
            "source": told, "to": show_path(to), "seconds": seconds,
            "families": families.iter().zip(&done).map(|(f, d)| family_json(f, d)).collect::<Vec<_>>(),
        }}))?;
    } else {
        out.line(foreign_summary_text(&told, &families, &done, seconds))?;
    }
    Ok(0)
}

fn open_source(
    args: &ForeignArgs,
    said: &ComparatorOverrides,
    target: &ImportTarget,
) -> Result<Box<dyn ForeignSource>> {
    let scratch = || {
        ScratchDir::create(match &args.scratch {
            Some(dir) => dir.join(format!("perigee-import-{}", std::process::id())),
            None => target.sibling_path(".importing-source"),
        })
    };
    if let Some(_dir) = &args.from_rocksdb {
        #[cfg(feature = "rocksdb")]
        return crate::foreign::rocksdb::open(_dir, said, scratch);
        #[cfg(not(feature = "rocksdb"))]
        return Err(missing_feature("RocksDB", "rocksdb-all"));
    }
    if let Some(_dir) = &args.from_lmdb {
        #[cfg(feature = "lmdb")]
        return crate::foreign::lmdb::open(_dir, said);
        #[cfg(not(feature = "lmdb"))]
        return Err(missing_feature("LMDB", "lmdb"));
    }
    let (Some(dir), Some(library)) = (&args.from_tidesdb, &args.tidesdb_lib) else {
        return Err(Failure::usage(
            "name a database to read: --from-tidesdb, --from-rocksdb or --from-lmdb",
        ));
    };
    let (in_place, ignore_ttl) = (args.in_place, args.ignore_ttl);
    let wanted =
        tidesdb::ImportRequest { dir, library, in_place, ignore_ttl, comparator_overrides: said };
    Ok(Box::new(tidesdb::open(&wanted, scratch)?))
}

/// Why a door is not in this build.
fn missing_feature(engine: &str, feature: &str) -> Failure {
    Failure::usage(format!("this build of the tool has no door to {engine}"))
        .hint(format!("build it with `cargo build --release -p perigee-cli --features {feature}`"))
}

fn family_json(family: &SourceFamily, done: &FamilyTransfer) -> Value {
    let (mut kept, mut none) = (Map::new(), Map::new());
    for s in &family.settings {
        match &s.mapped_to {
            Some(ours) => kept.insert(s.name.into(), json!({"was": s.value, "is": ours})),
            None => none.insert(s.name.into(), json!(s.value)),
        };
    }
    json!({
        "family": family.name, "order": family.options.order.name(), "entries": done.entries,
        "expiring": done.ttl_entries, "bytes": done.bytes, "checksum": format!("{:016x}", done.checksum),
        "verified": true, "expired_meanwhile": done.expired, "settings": kept, "without_counterpart": none,
    })
}

fn foreign_summary_text(
    told: &str,
    families: &[SourceFamily],
    done: &[FamilyTransfer],
    seconds: f64,
) -> String {
    let entries: u64 = done.iter().map(|d| d.entries).sum();
    let bytes: u64 = done.iter().map(|d| d.bytes).sum();
    let mut text = format!(
        "imported {} in {}, {}, in {seconds:.2} s from {told}; both sides read again and equal",
        size::plural(entries, "entry", "entries"),
        size::plural(families.len() as u64, "family", "families"),
        size::bytes(bytes),
    );
    for (family, d) in families.iter().zip(done) {
        text.push_str(&format!(
            "\n  {}: {}, {} of them expire, order {}, checksum {:016x}",
            family.name,
            size::plural(d.entries, "entry", "entries"),
            size::count(d.ttl_entries),
            family.options.order.name(),
            d.checksum,
        ));
    }
    let none: Vec<&str> = families
        .first()
        .into_iter()
        .flat_map(|f| &f.settings)
        .filter(|s| s.mapped_to.is_none())
        .map(|s| s.name)
        .collect();
    if !none.is_empty() {
        text.push_str(&format!(
            "\nsettings without a counterpart: {} (values: --json)",
            none.join(", ")
        ));
    }
    text
}
