//! `perigee manifest`: shows the history of a database, edit by edit. Reads the manifest file
//! directly: takes no lock, opens no engine, writes nothing.

use crate::database_args::{DatabaseArg, check_existing};
use crate::failure::{EXIT_DAMAGED, Failure, Result};
use crate::output::Output;
use clap::Args;
use perigee::env::{DirOpenMode, Env};
use perigee_base::{FileId, FileKind};
use perigee_file::filename::{MANIFEST, file_name};
use perigee_file::log::{LogReader, NextLogRecord, RecordKind};
use serde_json::{Map, Value, json};

use super::dump::manifest_edit::{self, EditField};

const EXAMPLES: &str = "\
Examples:
  perigee manifest ./db                  one line per change, oldest first
  perigee manifest ./db --last 5
  perigee manifest ./db --json           one JSON line per edit

The first edit is the whole state at the time the manifest was rewritten (at every open, and when \
it has grown large); the others are the changes since. `dump DB MANIFEST` shows every field. Works \
while another process has the database open.";

/// Show the history of the database: every edit in its manifest
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ManifestArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// Show only the last N edits
    #[arg(long, value_name = "N")]
    last: Option<usize>,
}

/// Prints the edits.
pub fn run(args: &ManifestArgs, out: &mut Output) -> Result<u8> {
    check_existing(&args.database.db)?;
    let dir = Env::real().fs.open_dir(&args.database.db, DirOpenMode::Existing)?;
    let mut log = LogReader::open(&*dir, MANIFEST, FileKind::Manifest, None, None, None)?;
    let mut edits = Vec::new();
    let bad = loop {
        match log.next_record()? {
            NextLogRecord::Record(r) if r.header.kind == RecordKind::Edit => {
                edits.push((r.header.lsn, r.offset, manifest_edit::decode_edit(&r.payload)));
            }
            NextLogRecord::Record(_) => {}
            NextLogRecord::End => break None,
            NextLogRecord::Bad(bad) => break Some(bad),
        }
    };
    let skip = args.last.map_or(0, |n| edits.len().saturating_sub(n));
    for (number, offset, (fields, damage)) in &edits[skip..] {
        if out.json {
            out.json_line(&edit_json(*number, *offset, fields))?;
        } else {
            let what: Vec<String> = fields.iter().filter_map(describe_field).collect();
            out.line(format!("#{number} @{offset}  {}", what.join("; ")))?;
        }
        if let Some(e) = damage {
            return Err(Failure::from(e.clone()));
        }
    }
    match bad {
        None => Ok(0),
        Some(bad) if bad.is_truncated => {
            eprintln!(
                "perigee: the last record is truncated: by a crash, or because it is being written"
            );
            Ok(0)
        }
        Some(bad) => {
            eprintln!(
                "perigee: {} (`perigee dump DB MANIFEST` skips the damage and continues)",
                bad.error
            );
            Ok(EXIT_DAMAGED)
        }
    }
}

fn edit_json(number: u64, offset: u64, fields: &[EditField]) -> Value {
    let field = |f: &EditField| {
        let values: Map<String, Value> =
            f.values.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect();
        json!({"field": f.name, "values": values})
    };
    json!({"edit": number, "offset": offset, "fields": fields.iter().map(field).collect::<Vec<_>>()})
}

/// Describes a field in words; `None` for mere counters.
fn describe_field(f: &EditField) -> Option<String> {
    let text = |name: &str| match f.values.iter().find(|(n, _)| *n == name).map(|(_, v)| v) {
        Some(Value::String(s)) => s.clone(),
        Some(v) => v.to_string(),
        None => String::new(),
    };
    let number = |name: &str| {
        f.values.iter().find(|(n, _)| *n == name).and_then(|(_, v)| v.as_u64()).unwrap_or(0)
    };
    let file = |kind| file_name(FileId(number("file")), kind);
    Some(match f.name {
        "snapshot" => "the whole state:".into(),
        "counters" | "durable" | "clock" => return None,
        "family added" => format!("family {} {:?}", text("family"), text("name")),
        "family dropped" => format!("family {} dropped", text("family")),
        "klog added" => format!(
            "+{} (family {}, level {}, {} entries, {} bytes)",
            file(FileKind::Klog),
            text("family"),
            text("level"),
            text("entries"),
            text("bytes")
        ),
        "klog removed" => format!("-{} (level {})", file(FileKind::Klog), text("level")),
        "vlog added" => format!("+{} ({} bytes)", file(FileKind::Vlog), text("bytes")),
        "vlog removed" => format!("-{}", file(FileKind::Vlog)),
        "global sequence number" => {
            format!(
                "{} written with sequence number {}",
                file(FileKind::Klog),
                text("seq of all entries")
            )
        }
        "compaction filter" if text("name").is_empty() => {
            format!("family {} no longer has a compaction filter", text("family"))
        }
        "compaction filter" => {
            format!("family {} has the compaction filter {}", text("family"), text("name"))
        }
        "flushed" => {
            format!("family {} flushed up to sequence {}", text("family"), text("up to seq"))
        }
        "log added" => {
            format!("log {} added from sequence {}", file(FileKind::Wal), text("first seq"))
        }
        "log removed" => format!("log {} no longer needed", file(FileKind::Wal)),
        "clean close" => format!("closed cleanly at sequence {}", text("last seq")),
        other => {
            let values: Vec<String> = f.values.iter().map(|(n, v)| format!("{n} {v}")).collect();
            format!("{other}: {}", values.join(", "))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_described() {
        let f = |name, values| describe_field(&EditField { name, values });
        assert_eq!(f("counters", vec![]), None);
        let removed =
            f("klog removed", vec![("family", json!(0)), ("level", json!(1)), ("file", json!(7))]);
        assert_eq!(removed.unwrap(), "-000007.klog (level 1)");
        assert_eq!(f("some later field", vec![("x", json!(1))]).unwrap(), "some later field: x 1");
    }
}
