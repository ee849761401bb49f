//! `perigee levels`: shows the levels of each column family and their files.

use crate::database_args::DatabaseArg;
use crate::failure::{Failure, Result};
use crate::output::{Output, table};
use crate::size;
use crate::text::{escape, put_json};
use clap::Args;
use perigee::stats::{FamilyStats, FileStats, LevelStats};
use perigee::{FamilyOptions, Options};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  perigee levels ./db
  perigee levels ./db --files        one line per table file
  perigee levels ./db --family tides --json
  perigee levels ./db --html levels.html     a diagram, as one HTML page";

/// Maximum length of a key that the table of files shows in full, in bytes.
const KEY_WIDTH: usize = 24;

/// Show the levels of the tree and their files
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LevelsArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// Show each table file
    #[arg(long)]
    files: bool,
    /// Write a diagram of the levels to this file, as one HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show only this column family
    #[arg(long, value_name = "NAME")]
    family: Option<String>,
}

/// Shows the levels.
pub fn run(args: &LevelsArgs, out: &mut Output) -> Result<u8> {
    let db = args.database.open_read_only()?;
    if let Some(name) = &args.family {
        crate::database_args::FamilyArg { family: name.clone() }.open_family(&db)?;
    }
    let wanted = |name: &str| args.family.as_deref().is_none_or(|f| f == name);
    let families: Vec<FamilyStats> =
        db.admin().stats().families.into_iter().filter(|f| wanted(&f.name)).collect();
    let files: Vec<FileStats> = if args.files || args.html.is_some() {
        db.admin().files().into_iter().filter(|f| wanted(&f.family)).collect()
    } else {
        Vec::new()
    };
    let options = db.admin().options();
    db.close()?;
    if let Some(path) = &args.html {
        let page = super::levels_html::page(&args.database.db.to_string_lossy(), &families, &files);
        std::fs::write(path, page).map_err(|e| Failure::file("write", path, &e))?;
    }
    if out.json {
        let json = families.iter().map(|f| family_json(f, &options)).collect::<Vec<_>>();
        let mut value = json!({"families": json});
        if args.files {
            value["files"] = files.iter().map(file_json).collect();
        }
        out.json_line(&value)?;
    } else {
        levels_table(&families, &options, out)?;
        if args.files {
            out.line("")?;
            files_table(&files, out)?;
        }
    }
    Ok(0)
}

fn levels_table(families: &[FamilyStats], options: &Options, out: &mut Output) -> Result<()> {
    let mut t = table(&[
        "family",
        ">level",
        ">runs",
        ">files",
        ">size",
        ">of capacity",
        ">entries",
        ">tombstones",
    ]);
    for family in families {
        let name = escape(family.name.as_bytes());
        let full: Vec<&LevelStats> = family.levels.iter().filter(|l| l.files > 0).collect();
        if full.is_empty() {
            t.add_row([&name, "-", "0", "0", "0 B", "-", "0", "0"]);
        }
        for l in full {
            t.add_row([
                name.clone(),
                l.level.to_string(),
                l.runs.to_string(),
                l.files.to_string(),
                size::bytes(l.bytes),
                fill_percent(family, &family_options(options, &family.name), l),
                size::count(l.entries),
                size::count(l.tombstones),
            ]);
        }
    }
    out.line(t.trim_fmt())
}

/// Returns the options of a column family.
fn family_options(options: &Options, name: &str) -> FamilyOptions {
    let default = options.default_family.as_ref().filter(|_| name == "default");
    default.or(options.families.get(name)).cloned().unwrap_or_default()
}

/// Returns the fill of a level; a compaction is due at 100 %. Level 0 is measured in runs; the
/// capacities of the other levels derive from the size of the last level.
fn fill_percent(family: &FamilyStats, o: &FamilyOptions, l: &LevelStats) -> String {
    let last = family.levels.last().map_or((0, 0), |l| (l.level, l.bytes));
    let steps = i32::from(last.0) - i32::from(l.level);
    match l.level {
        0 => format!("{:.0} %", l.runs as f64 / 4.0 * 100.0),
        _ if steps <= 0 || last.1 <= o.level1_bytes => "-".to_owned(),
        _ => {
            format!(
                "{:.0} %",
                l.bytes as f64 / last.1 as f64 * f64::from(o.level_ratio).powi(steps) * 100.0
            )
        }
    }
}

fn files_table(files: &[FileStats], out: &mut Output) -> Result<()> {
    let columns = [
        "family",
        ">level",
        ">run",
        "file",
        ">size",
        ">entries",
        ">tombstones",
        ">in vlogs",
        "first key",
        "last key",
    ];
    let mut t = table(&columns);
    for f in files {
        t.add_row([
            escape(f.family.as_bytes()),
            f.level.to_string(),
            f.run.to_string(),
            f.file.clone(),
            size::bytes(f.bytes),
            size::count(f.entries),
            size::count(f.tombstones),
            size::bytes(f.separated_bytes),
            short_key(&f.first_key),
            short_key(&f.last_key),
        ]);
    }
    out.line(t.trim_fmt())
}

fn short_key(key: &[u8]) -> String {
    match key.get(..KEY_WIDTH) {
        Some(start) if key.len() > KEY_WIDTH => format!("{}...", escape(start)),
        _ => escape(key),
    }
}

/// Returns a column family with its levels as JSON; also used by `stats --json`.
pub fn family_json(f: &FamilyStats, options: &Options) -> Value {
    let o = family_options(options, &f.name);
    json!({
        "name": f.name, "id": f.id,
        "memtable": {"bytes": f.memtable.bytes, "entries": f.memtable.entries},
        "immutable_memtables": {"count": f.immutable_memtables.count, "bytes": f.immutable_memtables.bytes},
        "levels": f.levels.iter().map(|l| json!({
            "level": l.level, "runs": l.runs, "files": l.files, "bytes": l.bytes,
            "entries": l.entries, "tombstones": l.tombstones,
        })).collect::<Vec<_>>(),
        "vlogs": {"files": f.vlogs.files, "bytes": f.vlogs.bytes, "referenced_bytes": f.vlogs.referenced_bytes},
        "options": {
            "comparator": o.comparator.name(), "memtable_bytes": o.memtable_bytes, "value_threshold": o.value_threshold,
            "block_bytes": o.block_bytes, "compression": format!("{:?}", o.compression).to_lowercase(),
            "filter_bits": o.filter_bits, "target_file_bytes": o.target_file_bytes,
            "level1_bytes": o.level1_bytes, "level_ratio": o.level_ratio,
        },
    })
}

fn file_json(f: &FileStats) -> Value {
    let mut object = Map::new();
    let fields = [
        ("family", json!(f.family)),
        ("level", json!(f.level)),
        ("run", json!(f.run)),
        ("file", json!(f.file)),
        ("bytes", json!(f.bytes)),
        ("entries", json!(f.entries)),
        ("tombstones", json!(f.tombstones)),
        ("sequences", json!([f.sequences.first, f.sequences.last])),
        ("separated_bytes", json!(f.separated_bytes)),
    ];
    object.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    put_json(&mut object, "first_key", &f.first_key);
    put_json(&mut object, "last_key", &f.last_key);
    Value::Object(object)
}
