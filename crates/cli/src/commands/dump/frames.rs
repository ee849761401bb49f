//! Klogs and vlogs, frame by frame. Formats: `docs/format/block.md`, `klog.md`, `vlog.md`.
//!
//! Frames have no magic. Behind a damaged one, the next is the first place that looks like the head
//! of a frame and whose checksum, seeded with that very place, is right.

use crate::failure::Result;
use perigee_base::checksum::checksum;
use perigee_base::codec::Decoder;
use perigee_base::file_header::{FileKind, HEADER_BYTES};
use perigee_base::key_boundary::KeyBoundaryRef;
use perigee_base::limits::KEY_BYTES_MAX;
use perigee_base::{Error, FileId, KeyComparator};
use perigee_file::RangeTombstones;
use perigee_file::block::TableBlock;
use perigee_file::block::frame::{
    FRAME_HEADER_BYTES, FRAME_OVERHEAD_BYTES, Frame, FrameKind, declared_frame_bytes,
};
use serde_json::{Value, json};

use super::dump_writer::{DumpEntry, DumpWriter};
use super::source::DumpSource;

/// Bytes of the footer of a klog.
const FOOTER_BYTES: usize = 88;
/// The end of the footer.
const FOOTER_MAGIC: &[u8; 8] = b"PERIKLOG";
/// Bytes searched at once for the next frame.
const SEARCH_WINDOW: usize = 1 << 20;

/// A frame in memory, verified.
struct VerifiedFrame {
    kind: FrameKind,
    bytes: Vec<u8>,
}

/// Prints every frame that can be read, and the footer of a klog.
pub fn dump_table(
    source: &DumpSource,
    kind: FileKind,
    named: Option<FileId>,
    sink: &mut DumpWriter<'_>,
) -> Result<()> {
    let (_, id) = source.read_header(kind, named, sink)?;
    let footer = if kind == FileKind::Klog { FOOTER_BYTES as u64 } else { 0 };
    let end = source.bytes().saturating_sub(footer);
    let mut offset = HEADER_BYTES as u64;
    while offset < end {
        match read_frame(source, id, offset, end)? {
            Ok(whole) => {
                let taken = whole.bytes.len() as u64;
                print_frame(id, offset, &whole, sink)?;
                offset += taken;
            }
            Err(e) => {
                sink.write_damage(offset, &e)?;
                let next = next_frame(source, id, offset, end)?.unwrap_or(end);
                sink.write_remark(
                    offset,
                    &format!("{} bytes skipped to the next whole frame", next - offset),
                )?;
                offset = next;
            }
        }
    }
    if kind == FileKind::Klog { print_footer(source, id, sink) } else { Ok(()) }
}

/// The frame at `offset`, or why there is none.
fn read_frame(
    source: &DumpSource,
    id: FileId,
    offset: u64,
    end: u64,
) -> Result<std::result::Result<VerifiedFrame, Error>> {
    let head = source.read_at(offset, FRAME_HEADER_BYTES)?;
    let (kind, len) = match parse_frame_head(&head) {
        Ok(claim) => claim,
        Err(e) => return Ok(Err(e)),
    };
    if offset.saturating_add(len) > end {
        return Ok(Err(source
            .too_short_error("a frame")
            .expected(format_args!("{len} bytes"), end.saturating_sub(offset))));
    }
    let bytes = source.read_at(offset, len as usize)?;
    let whole = Frame::decode(id, offset, &bytes, kind).map(|_| ());
    Ok(whole.map(|()| VerifiedFrame { kind, bytes }))
}

/// What the first bytes of a frame claim to be: type and whole length.
fn parse_frame_head(head: &[u8]) -> perigee_base::Result<(FrameKind, u64)> {
    let kind = match head.get(9) {
        Some(1) => FrameKind::Data,
        Some(2) => FrameKind::Index,
        Some(3) => FrameKind::Filter,
        Some(4) => FrameKind::Properties,
        Some(5) => FrameKind::Chunk,
        Some(6) => FrameKind::Ranges,
        Some(other) => {
            return Err(Error::corruption("unknown type of frame").expected("1 to 6", other));
        }
        None => return Err(Error::corruption("the file ends inside a frame")),
    };
    if head.len() < FRAME_HEADER_BYTES {
        return Err(Error::corruption("the file ends inside the head of a frame"));
    }
    Ok((kind, declared_frame_bytes(head, kind)?))
}

/// The first place behind `offset` where a whole frame lies.
fn next_frame(source: &DumpSource, id: FileId, offset: u64, end: u64) -> Result<Option<u64>> {
    let mut start = offset + 1;
    while start + FRAME_OVERHEAD_BYTES as u64 <= end {
        let window = source.read_at(start, SEARCH_WINDOW + FRAME_HEADER_BYTES)?;
        let last = window.len().saturating_sub(FRAME_HEADER_BYTES);
        for at in 0..=last {
            let place = start + at as u64;
            if is_plausible_head(&window[at..]) && read_frame(source, id, place, end)?.is_ok() {
                return Ok(Some(place));
            }
        }
        start += last as u64 + 1;
    }
    Ok(None)
}

/// A cheap look before a checksum is computed: known codec and type, six zeros.
fn is_plausible_head(bytes: &[u8]) -> bool {
    matches!(bytes, [_, _, _, _, _, _, _, _, 0..=3, 1..=6, 0, 0, 0, 0, 0, 0, ..])
}

fn print_frame(
    id: FileId,
    offset: u64,
    whole: &VerifiedFrame,
    sink: &mut DumpWriter<'_>,
) -> Result<()> {
    let parsed = Frame::decode(id, offset, &whole.bytes, whole.kind);
    let f = match parsed {
        Ok(f) => f,
        Err(e) => return sink.write_damage(offset, &e),
    };
    let blocky = matches!(whole.kind, FrameKind::Data | FrameKind::Index);
    let raw = match f.decompress(if blocky { TableBlock::SLACK } else { 0 }) {
        Ok(raw) => raw,
        Err(e) => return sink.write_damage(offset, &e),
    };
    let fields = [
        ("stored", json!(f.payload.len())),
        ("raw", json!(f.raw_bytes)),
        ("codec", json!(f.codec.name())),
    ];
    match whole.kind {
        FrameKind::Data => print_data_block(offset, raw, &fields, sink),
        FrameKind::Index => print_index_block(offset, raw, &fields, sink),
        FrameKind::Filter => print_filter(offset, &raw, &fields, sink),
        FrameKind::Properties => print_properties(offset, &raw, &fields, sink),
        FrameKind::Ranges => print_range_tombstones(offset, &raw, &fields, sink),
        FrameKind::Chunk => print_chunk(offset, &raw, &fields, sink),
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
    sink: &mut DumpWriter<'_>,
) -> Result<()> {
    let block = match TableBlock::parse(raw) {
        Ok(block) => block,
        Err(e) => return sink.write_damage(offset, &e),
    };
    if sink.wants_entries() {
        sink.write_part(offset, "data block", &with_field(fields, "entries", json!(block.len())))?;
    }
    let mut key = Vec::new();
    for i in 0..block.len() {
        block.copy_key(i, &mut key);
        sink.write_entry(&DumpEntry {
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
    sink: &mut DumpWriter<'_>,
) -> Result<()> {
    let block = match TableBlock::parse(raw) {
        Ok(block) => block,
        Err(e) => return sink.write_damage(offset, &e),
    };
    sink.write_part(offset, "index", &with_field(fields, "blocks", json!(block.len())))?;
    let (mut key, mut at) = (Vec::new(), HEADER_BYTES as u64);
    for i in 0..block.len() {
        block.copy_key(i, &mut key);
        match Decoder::new(block.raw_value(i)).varint() {
            Ok(bytes) => {
                let up_to = json!(crate::text::escape(&key));
                sink.write_detail(
                    "block",
                    &[("at", json!(at)), ("bytes", json!(bytes)), ("up to", up_to)],
                )?;
                at = at.saturating_add(bytes);
            }
            // Where the others lie, nobody knows.
            Err(e) => return sink.write_damage(offset, &e),
        }
    }
    Ok(())
}

fn print_filter(
    offset: u64,
    raw: &[u8],
    fields: &FrameFields<'_>,
    sink: &mut DumpWriter<'_>,
) -> Result<()> {
    match Decoder::new(raw).u32() {
        Ok(blocks) => {
            sink.write_part(offset, "filter", &with_field(fields, "blocks", json!(blocks)))
        }
        Err(e) => sink.write_damage(offset, &e),
    }
}

fn print_range_tombstones(
    offset: u64,
    raw: &[u8],
    fields: &FrameFields<'_>,
    sink: &mut DumpWriter<'_>,
) -> Result<()> {
    // Their order is the family's, which a single frame does not know: byte order is tried, and
    // only printed.
    let fragments = match RangeTombstones::decode(raw, KeyComparator::Bytes) {
        Ok(fragments) => fragments,
        Err(e) => return sink.write_damage(offset, &e),
    };
    sink.write_part(
        offset,
        "range tombstones",
        &with_field(fields, "fragments", json!(fragments.fragments().len())),
    )?;
    for f in fragments.fragments() {
        let seqs: Vec<u64> = f.seqs.iter().map(|s| s.0).collect();
        let (from, to) = (bound_text(f.begin.as_ref(), true), bound_text(f.end.as_ref(), false));
        sink.write_detail(
            "deleted",
            &[("from", json!(from)), ("to", json!(to)), ("seqs", json!(seqs))],
        )?;
    }
    Ok(())
}

/// An end of a range as people write it.
pub fn bound_text(cut: KeyBoundaryRef<'_>, begin: bool) -> String {
    let key = |k: &[u8], inside: bool| {
        format!("{}{}", if inside { "" } else { "excluding " }, crate::text::escape(k))
    };
    match cut {
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
    sink: &mut DumpWriter<'_>,
) -> Result<()> {
    if !sink.wants_entries() {
        return Ok(());
    }
    let text = sink.value_text(raw);
    sink.write_part(offset, "value chunk", &with_field(fields, "content", json!(text)))
}

fn print_properties(
    offset: u64,
    raw: &[u8],
    fields: &FrameFields<'_>,
    sink: &mut DumpWriter<'_>,
) -> Result<()> {
    sink.write_part(offset, "properties", fields)?;
    let mut d = Decoder::new(raw);
    while !d.is_empty() {
        let read = d.varint().and_then(|tag| Ok((tag, d.bytes(raw.len())?)));
        match read.and_then(|(tag, body)| decode_property(tag, body)) {
            Ok((name, value)) => sink.write_detail(name, &[("is", value)])?,
            Err(e) => return sink.write_damage(offset, &e),
        }
    }
    Ok(())
}

/// A property's name and value.
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
        19 => text("key order"),
        21 => number("range tombstones"),
        other => Ok(("unknown", json!({"tag": other, "bytes": body.len()}))),
    }
}

fn print_footer(source: &DumpSource, id: FileId, sink: &mut DumpWriter<'_>) -> Result<()> {
    let offset = source.bytes().saturating_sub(FOOTER_BYTES as u64);
    let bytes = source.read_at(offset, FOOTER_BYTES)?;
    if bytes.len() < FOOTER_BYTES || offset < HEADER_BYTES as u64 {
        return sink.write_damage(offset, &source.too_short_error("the footer"));
    }
    match footer_fields(id, offset, &bytes) {
        Ok(fields) => sink.write_part(offset, "footer", &fields),
        Err(e) => sink.write_damage(offset, &e),
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
    let place = |i: usize| json!({"at": numbers[i], "bytes": numbers[i + 1]});
    Ok(vec![
        ("filter", place(0)),
        ("index", place(2)),
        ("properties", place(4)),
        ("data blocks", json!(numbers[6])),
        ("entries", json!(numbers[7])),
        ("range bytes", json!(numbers[8])),
    ])
}
