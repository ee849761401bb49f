//! `perigee sst`: shows the properties of one klog or vlog. Reads the file directly: takes no lock,
//! opens no engine, writes nothing.

use crate::failure::{Failure, Result, show_path};
use crate::output::{Output, table};
use crate::size::{bytes, count};
use crate::text::escape;
use clap::Args;
use perigee::env::{Dir, DirOpenMode, Env};
use perigee_base::{Bytes, FamilyId, FileHeader, FileId, FileKind, HEADER_BYTES};
use perigee_file::{
    BlockCache, FRAME_HEADER_BYTES, FrameKind, KlogReader, VlogReader, declared_frame_bytes,
    filename,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  perigee sst ./db/000007.klog          header, properties, index, filter, versions per key
  perigee sst ./db/000007.klog --quick  without reading its entries
  perigee sst ./db/000008.vlog --json

To print the contents of a file, use `dump`. Works while another process has the database open.";

/// Lookups of absent keys that measure the filter's false positive rate.
const FILTER_PROBES: u64 = 100_000;

/// Show the properties of one klog or vlog
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SstArgs {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Do not read the entries: no histogram of versions
    #[arg(long)]
    quick: bool,
}

/// One property: its name, its JSON value, its text for humans.
type PropertyLine = (&'static str, Value, String);

/// Prints the properties.
pub fn run(args: &SstArgs, out: &mut Output) -> Result<u8> {
    let shown = show_path(&args.file);
    let text = args.file.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let table_file = filename::parse_file_name(text)
        .filter(|(_, k)| matches!(k, FileKind::Klog | FileKind::Vlog));
    let Some((id, kind)) = table_file else {
        return Err(Failure::usage(format!("{shown} does not have the name of a klog or vlog"))
            .hint("specify a file such as ./db/000007.klog; `perigee dump DB` lists them"));
    };
    let parent = args.file.parent().filter(|p| !p.as_os_str().is_empty());
    let dir = Env::real()
        .fs
        .open_dir(parent.unwrap_or(std::path::Path::new(".")), DirOpenMode::Existing)?;
    let file = dir.open(text)?;
    let length = file.len()?;
    let mut head = [0; HEADER_BYTES];
    file.read_exact_at(&mut head, 0).map_err(|e| e.in_file(text))?;
    let header = FileHeader::decode(&head, kind, Some(id), None).map_err(|e| e.at(text, 0))?;
    let mut lines: Vec<PropertyLine> = vec![
        ("file", json!(text), text.to_owned()),
        ("bytes", json!(length), bytes(length)),
        (
            "database",
            json!(format!("{:#018x}", header.database)),
            format!("{:#018x}", header.database),
        ),
    ];
    match kind {
        FileKind::Klog => klog_lines(&*dir, id, &header, length, args.quick, &mut lines)?,
        _ => vlog_lines(&*dir, id, &header, length, &mut lines)?,
    }
    print_lines(&lines, out)?;
    Ok(0)
}

fn print_lines(lines: &[PropertyLine], out: &mut Output) -> Result<()> {
    if out.json {
        let object: Map<String, Value> =
            lines.iter().map(|(n, v, _)| (n.replace(' ', "_"), v.clone())).collect();
        return out.json_line(&Value::Object(object));
    }
    let mut t = table(&["property", "value"]);
    for (name, _, text) in lines {
        t.add_row([*name, text]);
    }
    out.line(t.trim_fmt())
}

fn number_line(name: &'static str, n: u64) -> PropertyLine {
    (name, json!(n), count(n))
}

fn klog_lines(
    dir: &dyn Dir,
    id: FileId,
    header: &FileHeader,
    length: u64,
    quick: bool,
    lines: &mut Vec<PropertyLine>,
) -> Result<()> {
    let family = FamilyId(u32::try_from(header.a).unwrap_or(u32::MAX));
    let cache = Arc::new(BlockCache::new(0));
    let reader =
        Arc::new(KlogReader::open(dir, id, header.database, Bytes(length), cache, Arc::default())?);
    let s = reader.read_summary()?;
    lines.extend([
        number_line("family", u64::from(family.0)),
        ("comparator", json!(reader.comparator().name()), reader.comparator().name().to_owned()),
        number_line("entries", s.entries),
        number_line("tombstones", s.tombstones),
        (
            "sequences",
            json!([s.smallest_seq.0, s.largest_seq.0]),
            format!("{} to {}", s.smallest_seq.0, s.largest_seq.0),
        ),
        ("first key", json!(escape(&s.first_key)), escape(&s.first_key)),
        ("last key", json!(escape(&s.last_key)), escape(&s.last_key)),
        ("key bytes", json!(s.raw_key_bytes), bytes(s.raw_key_bytes)),
        ("value bytes", json!(s.raw_value_bytes), bytes(s.raw_value_bytes)),
    ]);
    let vlogs: Vec<Value> =
        s.vlogs.iter().map(|(id, n)| json!({"file": id.0, "bytes": n})).collect();
    let text: Vec<String> =
        s.vlogs.iter().map(|(id, n)| format!("{}: {}", id.0, bytes(*n))).collect();
    lines.push(("vlogs", json!(vlogs), text.join(", ")));
    index_lines(&reader, lines)?;
    filter_lines(&reader, s.entries, lines);
    if !quick {
        version_lines(&reader, lines)?;
    }
    Ok(())
}

fn index_lines(reader: &KlogReader, lines: &mut Vec<PropertyLine>) -> Result<()> {
    let blocks = reader.list_blocks()?;
    let sizes = || blocks.iter().map(|(_, length, _)| *length);
    let total: u64 = sizes().sum();
    let average = total / (blocks.len() as u64).max(1);
    lines.extend([
        number_line("blocks", blocks.len() as u64),
        ("block bytes", json!(total), bytes(total)),
        ("average block", json!(average), bytes(average)),
        ("smallest block", json!(sizes().min()), bytes(sizes().min().unwrap_or(0))),
        ("largest block", json!(sizes().max()), bytes(sizes().max().unwrap_or(0))),
        (
            "memory",
            json!(reader.memory_bytes()),
            format!("{} while open", bytes(reader.memory_bytes())),
        ),
    ]);
    Ok(())
}

/// Adds the properties of the filter. The false positive rate is measured, not computed, with
/// hashes of random keys.
fn filter_lines(reader: &KlogReader, entries: u64, lines: &mut Vec<PropertyLine>) {
    let memory = reader.filter_bytes();
    if memory == 0 {
        lines.push(("filter", json!(null), "none".into()));
        return;
    }
    let hash =
        |i: u64| perigee_base::checksum::key_hash(&(i ^ 0x5bd1_e995_9d1b_54a5).to_le_bytes());
    let passed = (0..FILTER_PROBES).filter(|i| reader.may_contain(hash(*i))).count() as f64;
    let rate = passed / FILTER_PROBES as f64;
    let bits = memory as f64 * 8.0 / entries.max(1) as f64;
    lines.extend([
        ("filter bytes", json!(memory), bytes(memory)),
        ("filter bits per entry", json!(bits), format!("{bits:.1}")),
        (
            "false positive rate",
            json!(rate),
            format!("{:.2} % of {} random keys", rate * 100.0, count(FILTER_PROBES)),
        ),
    ]);
}

/// Adds the number of distinct keys and a histogram of versions per key.
fn version_lines(reader: &Arc<KlogReader>, lines: &mut Vec<PropertyLine>) -> Result<()> {
    let mut cursor = reader.cursor(false);
    let (mut keys, mut last, mut run) = (BTreeMap::<u64, u64>::new(), Vec::new(), 0);
    cursor.seek_first()?;
    while cursor.valid() {
        let key = cursor.entry().key;
        if run > 0 && reader.comparator().keys_equal(key, &last) {
            run += 1;
        } else {
            if run > 0 {
                *keys.entry(run).or_default() += 1;
            }
            last = key.to_vec();
            run = 1;
        }
        cursor.next()?;
    }
    if run > 0 {
        *keys.entry(run).or_default() += 1;
    }
    lines.push(number_line("distinct keys", keys.values().sum()));
    let pairs: Vec<Value> = keys.iter().map(|(v, k)| json!({"versions": v, "keys": k})).collect();
    let text: Vec<String> =
        keys.iter().map(|(v, k)| format!("{}: {} keys", v, count(*k))).collect();
    lines.push(("versions per key", json!(pairs), text.join(", ")));
    Ok(())
}

fn vlog_lines(
    dir: &dyn Dir,
    id: FileId,
    header: &FileHeader,
    length: u64,
    lines: &mut Vec<PropertyLine>,
) -> Result<()> {
    VlogReader::open(dir, id, header.database, Bytes(length), Arc::default())?;
    let file_name = filename::file_name(id, FileKind::Vlog);
    let file = dir.open(&file_name)?;
    let (mut offset, mut chunks, mut largest) = (HEADER_BYTES as u64, 0u64, 0u64);
    while offset < length {
        let mut head = [0; FRAME_HEADER_BYTES];
        file.read_exact_at(&mut head, offset).map_err(|e| e.at(&file_name, offset))?;
        let claimed =
            declared_frame_bytes(&head, FrameKind::Chunk).map_err(|e| e.at(&file_name, offset))?;
        if claimed == 0 || offset + claimed > length {
            let e = perigee_base::Error::corruption("a chunk extends beyond the end of its file");
            return Err(e.at(&file_name, offset).into());
        }
        (offset, chunks, largest) = (offset + claimed, chunks + 1, largest.max(claimed));
    }
    let average = (length - HEADER_BYTES as u64) / chunks.max(1);
    lines.extend([
        number_line("chunks", chunks),
        ("average chunk", json!(average), bytes(average)),
        ("largest chunk", json!(largest), bytes(largest)),
    ]);
    Ok(())
}
