//! Imports a database of another engine: the arguments, the stages and the report.

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

/// Arguments that name a database of another engine.
#[derive(Args, Debug)]
#[command(next_help_heading = "Databases of other engines")]
#[group(skip)]
pub struct ForeignArgs {
    /// Read a TidesDB 9 database through the library given by --tidesdb-lib
    #[arg(long, value_name = "DIR", group = "foreign", requires = "tidesdb_lib", value_hint = ValueHint::DirPath)]
    from_tidesdb: Option<PathBuf>,
    /// TidesDB's shared library, such as /usr/local/lib/libtidesdb.so.9
    #[arg(long, value_name = "PATH", requires = "from_tidesdb", value_hint = ValueHint::FilePath)]
    tidesdb_lib: Option<PathBuf>,
    /// Read a RocksDB database (only in builds with the feature `rocksdb`)
    #[arg(long, value_name = "DIR", group = "foreign", value_hint = ValueHint::DirPath)]
    from_rocksdb: Option<PathBuf>,
    /// Read an LMDB environment (only in builds with the feature `lmdb`)
    #[arg(long, value_name = "DIR", group = "foreign", value_hint = ValueHint::DirPath)]
    from_lmdb: Option<PathBuf>,
    /// The new database, which must not exist
    #[arg(long, value_name = "DB", requires = "foreign", required_unless_present = "db")]
    to: Option<PathBuf>,
    /// Open the TidesDB database itself instead of a copy; its library may then replay the log,
    /// flush and compact
    #[arg(long, requires = "from_tidesdb")]
    in_place: bool,
    /// Directory for the temporary copy (default: next to the new database)
    #[arg(long, value_name = "DIR", requires = "foreign")]
    scratch: Option<PathBuf>,
    /// Ignore expiry times: no imported entry expires
    #[arg(long, requires = "from_tidesdb")]
    ignore_ttl: bool,
    /// Built-in comparator equivalent to the custom comparator of a column family: memcmp,
    /// lexicographic, uint64, int64, reverse or case_insensitive; may be repeated
    #[arg(long, value_name = "FAMILY=NAME", requires = "foreign")]
    comparator: Vec<String>,
}

/// Imports the whole database and prints a summary.
pub fn run(args: &ForeignArgs, out: &mut Output) -> Result<u8> {
    let started = Instant::now();
    let to =
        args.to.as_ref().ok_or_else(|| Failure::usage("specify the new database with --to DB"))?;
    let overrides = ComparatorOverrides::parse(&args.comparator)?;
    let target = ImportTarget::new(to)?;
    for from in [&args.from_tidesdb, &args.from_rocksdb, &args.from_lmdb].into_iter().flatten() {
        target.check_outside(from)?;
        args.scratch.iter().try_for_each(|scratch| transfer::check_dir_outside(scratch, from))?;
    }
    let mut source = open_source(args, &overrides, &target)?;
    let transfers = transfer::run_transfer(&mut *source, &target)?;
    let (description, families) = (source.description(), source.families().to_vec());
    drop(source);
    let seconds = started.elapsed().as_secs_f64();
    if out.json {
        out.json_line(&json!({"imported": {
            "source": description, "to": show_path(to), "seconds": seconds,
            "families": families.iter().zip(&transfers)
                .map(|(f, t)| family_json(f, t))
                .collect::<Vec<_>>(),
        }}))?;
    } else {
        out.line(foreign_summary_text(&description, &families, &transfers, seconds))?;
    }
    Ok(0)
}

fn open_source(
    args: &ForeignArgs,
    overrides: &ComparatorOverrides,
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
        return crate::foreign::rocksdb::open(_dir, overrides, scratch);
        #[cfg(not(feature = "rocksdb"))]
        return Err(Failure::missing_feature("read RocksDB databases", "rocksdb-all"));
    }
    if let Some(_dir) = &args.from_lmdb {
        #[cfg(feature = "lmdb")]
        return crate::foreign::lmdb::open(_dir, overrides);
        #[cfg(not(feature = "lmdb"))]
        return Err(Failure::missing_feature("read LMDB databases", "lmdb"));
    }
    let (Some(dir), Some(library)) = (&args.from_tidesdb, &args.tidesdb_lib) else {
        return Err(Failure::usage(
            "specify a database to read: --from-tidesdb, --from-rocksdb or --from-lmdb",
        ));
    };
    let (in_place, ignore_ttl) = (args.in_place, args.ignore_ttl);
    let request = tidesdb::ImportRequest {
        dir,
        library,
        in_place,
        ignore_ttl,
        comparator_overrides: overrides,
    };
    Ok(Box::new(tidesdb::open(&request, scratch)?))
}

fn family_json(family: &SourceFamily, transfer: &FamilyTransfer) -> Value {
    let (mut mapped, mut unmapped) = (Map::new(), Map::new());
    for s in &family.settings {
        match &s.mapped_to {
            Some(ours) => mapped.insert(s.name.into(), json!({"source": s.value, "target": ours})),
            None => unmapped.insert(s.name.into(), json!(s.value)),
        };
    }
    json!({
        "family": family.name, "comparator": family.options.comparator.name(), "entries": transfer.entries,
        "expiring": transfer.ttl_entries, "bytes": transfer.bytes,
        "checksum": format!("{:016x}", transfer.checksum),
        "verified": true, "expired_during_import": transfer.expired,
        "settings": mapped, "unmapped_settings": unmapped,
    })
}

fn foreign_summary_text(
    source: &str,
    families: &[SourceFamily],
    transfers: &[FamilyTransfer],
    seconds: f64,
) -> String {
    let entries: u64 = transfers.iter().map(|t| t.entries).sum();
    let bytes: u64 = transfers.iter().map(|t| t.bytes).sum();
    let mut text = format!(
        "imported {} in {}, {}, in {seconds:.2} s from {source}; both sides were read again and \
         are equal",
        size::plural(entries, "entry", "entries"),
        size::plural(families.len() as u64, "column family", "column families"),
        size::bytes(bytes),
    );
    for (family, t) in families.iter().zip(transfers) {
        text.push_str(&format!(
            "\n  {}: {}, {} of them expire, comparator {}, checksum {:016x}",
            family.name,
            size::plural(t.entries, "entry", "entries"),
            size::count(t.ttl_entries),
            family.options.comparator.name(),
            t.checksum,
        ));
    }
    let unmapped: Vec<&str> = families
        .first()
        .into_iter()
        .flat_map(|f| &f.settings)
        .filter(|s| s.mapped_to.is_none())
        .map(|s| s.name)
        .collect();
    if !unmapped.is_empty() {
        text.push_str(&format!(
            "\nsettings without a counterpart: {} (--json shows their values)",
            unmapped.join(", ")
        ));
    }
    text
}
