//! Dumps klogs and vlogs, frame by frame. Formats: `docs/format/block.md`, `klog.md`, `vlog.md`.
//!
//! Frames have no magic number. After a damaged frame, the next one is at the first offset that has
//! a plausible frame header and a correct checksum, which is seeded with the offset.

use crate::failure::Result;
use perigee_base::checksum::checksum;
use perigee_base::codec::Decoder;
use perigee_base::limits::KEY_BYTES_MAX;
use perigee_base::{Error, FileId, FileKind, HEADER_BYTES, KeyBoundaryRef, KeyComparator};
use perigee_file::{
    FRAME_HEADER_BYTES, FRAME_OVERHEAD_BYTES, Frame, FrameKind, RangeTombstones, TableBlock,
    declared_frame_bytes,
};
use serde_json::{Value, json};

use super::dump_writer::{DumpEntry, DumpWriter};
use super::source::DumpSource;

/// Bytes of the footer of a klog.
const FOOTER_BYTES: usize = 88;
/// The last bytes of the footer.
const FOOTER_MAGIC: &[u8; 8] = b"PERIKLOG";
/// Bytes read per step when searching for the next frame.
const SEARCH_WINDOW: usize = 1 << 20;

/// A frame in memory, verified.
struct VerifiedFrame {
    kind: FrameKind,
    bytes: Vec<u8>,
}

/// Prints every readable frame, and the footer of a klog.
pub fn dump_table(
    source: &DumpSource,
    kind: FileKind,
    named: Option<FileId>,
    writer: &mut DumpWriter<'_>,
) -> Result<()> {
    let (_, id) = source.read_header(kind, named, writer)?;
    let footer = if kind == FileKind::Klog { FOOTER_BYTES as u64 } else { 0 };
    let end = source.bytes().saturating_sub(footer);
    let mut offset = HEADER_BYTES as u64;
    while offset < end {
        match read_frame(source, id, offset, end)? {
            Ok(frame) => {
                print_frame(id, offset, &frame, writer)?;
                offset += frame.bytes.len() as u64;
            }
            Err(e) => {
                writer.write_damage(offset, &e)?;
                let next = next_frame(source, id, offset, end)?.unwrap_or(end);
                writer.write_remark(
                    offset,
                    &format!("{} bytes skipped to the next intact frame", next - offset),
                )?;
                offset = next;
            }
        }
    }
    if kind == FileKind::Klog { print_footer(source, id, writer) } else { Ok(()) }
}

/// Reads the frame at `offset`; the inner error tells why it is invalid.
fn read_frame(
    source: &DumpSource,
    id: FileId,
    offset: u64,
    end: u64,
) -> Result<std::result::Result<VerifiedFrame, Error>> {
    let head = source.read_at(offset, FRAME_HEADER_BYTES)?;
    let (kind, len) = match parse_frame_head(&head) {
        Ok(declared) => declared,
        Err(e) => return Ok(Err(e)),
    };
    if offset.saturating_add(len) > end {
        return Ok(Err(source
            .too_short_error("a frame")
            .expected(format_args!("{len} bytes"), end.saturating_sub(offset))));
    }
    let bytes = source.read_at(offset, len as usize)?;
    let verified = Frame::decode(id, offset, &bytes, kind).map(|_| ());
    Ok(verified.map(|()| VerifiedFrame { kind, bytes }))
}

/// Returns the type and the total length that a frame header declares.
fn parse_frame_head(head: &[u8]) -> perigee_base::Result<(FrameKind, u64)> {
    let kind = match head.get(9) {
        Some(1) => FrameKind::Data,
        Some(2) => FrameKind::Index,
        Some(3) => FrameKind::Filter,
        Some(4) => FrameKind::Properties,
        Some(5) => FrameKind::Chunk,
        Some(6) => FrameKind::Ranges,
        Some(other) => {
            return Err(Error::corruption("unknown frame type").expected("1 to 6", other));
        }
        None => return Err(Error::corruption("the file ends inside a frame")),
    };
    if head.len() < FRAME_HEADER_BYTES {
        return Err(Error::corruption("the file ends inside a frame header"));
    }
    Ok((kind, declared_frame_bytes(head, kind)?))
}

/// Returns the first offset after `offset` with an intact frame.
fn next_frame(source: &DumpSource, id: FileId, offset: u64, end: u64) -> Result<Option<u64>> {
    let mut start = offset + 1;
    while start + FRAME_OVERHEAD_BYTES as u64 <= end {
        let window = source.read_at(start, SEARCH_WINDOW + FRAME_HEADER_BYTES)?;
        let last = window.len().saturating_sub(FRAME_HEADER_BYTES);
        for at in 0..=last {
            let candidate = start + at as u64;
            if is_plausible_head(&window[at..]) && read_frame(source, id, candidate, end)?.is_ok() {
                return Ok(Some(candidate));
            }
        }
        start += last as u64 + 1;
    }
    Ok(None)
}

/// Checks a frame header cheaply, before its checksum is computed: known codec and type, six zeros.
fn is_plausible_head(bytes: &[u8]) -> bool {
    matches!(bytes, [_, _, _, _, _, _, _, _, 0..=3, 1..=6, 0, 0, 0, 0, 0, 0, ..])
}

fn print_frame(
    id: FileId,
    offset: u64,
    frame: &VerifiedFrame,
    writer: &mut DumpWriter<'_>,
) -> Result<()> {
    let parsed = Frame::decode(id, offset, &frame.bytes, frame.kind);
    let f = match parsed {
        Ok(f) => f,
        Err(e) => return writer.write_damage(offset, &e),
    };
    let is_block = matches!(frame.kind, FrameKind::Data | FrameKind::Index);
    let raw = match f.decompress(if is_block { TableBlock::SLACK } else { 0 }) {
        Ok(raw) => raw,
        Err(e) => return writer.write_damage(offset, &e),
    };
    let fields = [
        ("stored", json!(f.payload.len())),
        ("raw", json!(f.raw_bytes)),
        ("codec", json!(f.codec.name())),
    ];
    match frame.kind {
        FrameKind::Data => print_data_block(offset, raw, &fields, writer),
        FrameKind::Index => print_index_block(offset, raw, &fields, writer),
        FrameKind::Filter => print_filter(offset, &raw, &fields, writer),
        FrameKind::Properties => print_properties(offset, &raw, &fields, writer),
        FrameKind::Ranges => print_range_tombstones(offset, &raw, &fields, writer),
        FrameKind::Chunk => print_chunk(offset, &raw, &fields, writer),
    }
}

type FrameFields<'a> = [(&'a str, Value); 3];

fn with_field<'a>(fields: &FrameFields<'a>, name: &'a str, value: Value) -> Vec<(&'a str, Value)> {
    let mut all = fields.to_vec();
    all.push((name, value));
    all
}

fn print_data_block(
    offset: u64,
    raw: Vec<u8>,
    fields: &FrameFields<'_>,
    writer: &mut DumpWriter<'_>,
) -> Result<()> {
    let block = match TableBlock::parse(raw) {
        Ok(block) => block,
        Err(e) => return writer.write_damage(offset, &e),
    };
    if writer.wants_entries() {
        writer.write_part(
            offset,
            "data block",
            &with_field(fields, "entries", json!(block.len())),
        )?;
    }
    let mut key = Vec::new();
    for i in 0..block.len() {
        block.copy_key(i, &mut key);
        writer.write_entry(&DumpEntry {
            seq: block.seq(i).0,
            family: None,
            key: &key,
            value: block.value(i),
        })?;
    }
    Ok(())
}

fn print_index_block(
    offset: u64,
    raw: Vec<u8>,
    fields: &FrameFields<'_>,
    writer: &mut DumpWriter<'_>,
) -> Result<()> {
    let block = match TableBlock::parse(raw) {
        Ok(block) => block,
        Err(e) => return writer.write_damage(offset, &e),
    };
    writer.write_part(offset, "index", &with_field(fields, "blocks", json!(block.len())))?;
    let (mut key, mut at) = (Vec::new(), HEADER_BYTES as u64);
    for i in 0..block.len() {
        block.copy_key(i, &mut key);
        match Decoder::new(block.raw_value(i)).varint() {
            Ok(bytes) => {
                let up_to = json!(crate::text::escape(&key));
                writer.write_detail(
                    "block",
                    &[("at", json!(at)), ("bytes", json!(bytes)), ("up to", up_to)],
                )?;
                at = at.saturating_add(bytes);
            }
            // The offsets of the following blocks are unknown.
            Err(e) => return writer.write_damage(offset, &e),
        }
    }
    Ok(())
}

fn print_filter(
    offset: u64,
    raw: &[u8],
    fields: &FrameFields<'_>,
    writer: &mut DumpWriter<'_>,
) -> Result<()> {
    match Decoder::new(raw).u32() {
        Ok(blocks) => {
            writer.write_part(offset, "filter", &with_field(fields, "blocks", json!(blocks)))
        }
        Err(e) => writer.write_damage(offset, &e),
    }
}

fn print_range_tombstones(
    offset: u64,
    raw: &[u8],
    fields: &FrameFields<'_>,
    writer: &mut DumpWriter<'_>,
) -> Result<()> {
    // The comparator of the column family is not stored in the frame, so the fragments are decoded
    // under the bytewise comparator; they are only printed.
    let fragments = match RangeTombstones::decode(raw, KeyComparator::Bytes) {
        Ok(fragments) => fragments,
        Err(e) => return writer.write_damage(offset, &e),
    };
    writer.write_part(
        offset,
        "range tombstones",
        &with_field(fields, "fragments", json!(fragments.fragments().len())),
    )?;
    for f in fragments.fragments() {
        let seqs: Vec<u64> = f.seqs.iter().map(|s| s.0).collect();
        let (from, to) = (bound_text(f.begin.as_ref(), true), bound_text(f.end.as_ref(), false));
        writer.write_detail(
            "deleted",
            &[("from", json!(from)), ("to", json!(to)), ("seqs", json!(seqs))],
        )?;
    }
    Ok(())
}

/// Formats a bound of a range; `begin` is true for the lower bound.
pub fn bound_text(bound: KeyBoundaryRef<'_>, begin: bool) -> String {
    let key = |k: &[u8], included: bool| {
        format!("{}{}", if included { "" } else { "excluding " }, crate::text::escape(k))
    };
    match bound {
        KeyBoundaryRef::First => "the first key".into(),
        KeyBoundaryRef::Last => "the last key".into(),
        KeyBoundaryRef::Before(k) => key(k, begin),
        KeyBoundaryRef::After(k) => key(k, !begin),
    }
}

fn print_chunk(
    offset: u64,
    raw: &[u8],
    fields: &FrameFields<'_>,
    writer: &mut DumpWriter<'_>,
) -> Result<()> {
    if !writer.wants_entries() {
        return Ok(());
    }
    let text = writer.value_text(raw);
    writer.write_part(offset, "value chunk", &with_field(fields, "content", json!(text)))
}

fn print_properties(
    offset: u64,
    raw: &[u8],
    fields: &FrameFields<'_>,
    writer: &mut DumpWriter<'_>,
) -> Result<()> {
    writer.write_part(offset, "properties", fields)?;
    let mut d = Decoder::new(raw);
    while !d.is_empty() {
        let read = d.varint().and_then(|tag| Ok((tag, d.bytes(raw.len())?)));
        match read.and_then(|(tag, body)| decode_property(tag, body)) {
            Ok((name, value)) => writer.write_detail(name, &[("is", value)])?,
            Err(e) => return writer.write_damage(offset, &e),
        }
    }
    Ok(())
}

/// Returns the name and value of a property.
fn decode_property(tag: u64, body: &[u8]) -> perigee_base::Result<(&'static str, Value)> {
    let number = |name| Ok((name, json!(Decoder::new(body).varint()?)));
    let text =
        |name| Ok((name, json!(crate::text::escape(&body[..body.len().min(KEY_BYTES_MAX)]))));
    match tag {
        1 => number("entries"),
        3 => number("tombstones"),
        5 => number("smallest seq"),
        7 => number("largest seq"),
        9 => text("first key"),
        11 => text("last key"),
        13 => number("key bytes"),
        15 => number("value bytes"),
        17 => {
            let mut d = Decoder::new(body);
            let mut vlogs = Vec::new();
            while !d.is_empty() {
                vlogs.push(json!({"file": d.varint()?, "bytes": d.varint()?}));
            }
            Ok(("vlogs", Value::Array(vlogs)))
        }
        19 => text("comparator"),
        21 => number("range tombstones"),
        other => Ok(("unknown", json!({"tag": other, "bytes": body.len()}))),
    }
}

fn print_footer(source: &DumpSource, id: FileId, writer: &mut DumpWriter<'_>) -> Result<()> {
    let offset = source.bytes().saturating_sub(FOOTER_BYTES as u64);
    let bytes = source.read_at(offset, FOOTER_BYTES)?;
    if bytes.len() < FOOTER_BYTES || offset < HEADER_BYTES as u64 {
        return writer.write_damage(offset, &source.too_short_error("the footer"));
    }
    match footer_fields(id, offset, &bytes) {
        Ok(fields) => writer.write_part(offset, "footer", &fields),
        Err(e) => writer.write_damage(offset, &e),
    }
}

fn footer_fields(
    id: FileId,
    offset: u64,
    bytes: &[u8],
) -> perigee_base::Result<Vec<(&'static str, Value)>> {
    let mut d = Decoder::new(bytes);
    let mut numbers = [0; 9];
    for n in &mut numbers {
        *n = d.u64()?;
    }
    let sum = d.u64()?;
    let got = checksum(id, offset, &bytes[..72]);
    if d.take(8)? != FOOTER_MAGIC {
        return Err(Error::corruption("the footer's magic is missing"));
    }
    if sum != got {
        return Err(Error::corruption("the footer's checksum differs")
            .expected(format_args!("{sum:#018x}"), format_args!("{got:#018x}")));
    }
    let location = |i: usize| json!({"at": numbers[i], "bytes": numbers[i + 1]});
    Ok(vec![
        ("filter", location(0)),
        ("index", location(2)),
        ("properties", location(4)),
        ("data blocks", json!(numbers[6])),
        ("entries", json!(numbers[7])),
        ("range bytes", json!(numbers[8])),
    ])
}
