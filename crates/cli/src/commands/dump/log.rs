//! Log segments and the manifest, record by record. Format: `docs/format/log.md`.
//!
//! Unlike recovery, a dump does not stop at a bad record: it goes on at the next header that is valid in its place.

use crate::failure::Result;
use perigee_base::codec::Decoder;
use perigee_base::format::{FileKind, HEADER_BYTES};
use perigee_base::{Error, FileId, checksum};
use perigee_file::log::layout::{self, ALIGNMENT, RECORD_HEADER_BYTES, RECORD_MAGIC, RecordHeader, padded};
use perigee_file::log::{Ops, RecordKind, prepare};
use serde_json::json;
use std::ops::Range;

use super::edit;
use super::frames::cut_text;
use super::sink::{Entry, Sink};
use super::source::Source;

/// Bytes searched at once for the next record.
const WINDOW: usize = 1 << 20;

/// Prints every record that can be read.
pub fn dump(source: &Source, kind: FileKind, named: Option<FileId>, sink: &mut Sink<'_>) -> Result<()> {
    let (database, file) = source.header(kind, named, sink)?;
    let seal = layout::seal(database, file);
    let mut offset = HEADER_BYTES as u64;
    let mut expected = None;
    while offset < source.bytes() {
        match read(source, seal, offset)? {
            Ok((header, payload)) => {
                if expected.is_some_and(|lsn| lsn != header.lsn) {
                    let gap = Error::corruption("a record is out of sequence");
                    sink.damage(offset, &gap.expected(expected.unwrap_or_default(), header.lsn))?;
                }
                record(offset, &header, &payload, sink)?;
                expected = Some(header.lsn + u64::from(header.count));
                offset += header.record_bytes();
            }
            Err(e) => {
                let Some(next) = next_record(source, seal, offset)? else {
                    return torn(source, offset, &e, sink);
                };
                sink.damage(offset, &e)?;
                sink.remark(offset, &format!("{} bytes skipped to the next record", next - offset))?;
                expected = None;
                offset = next;
            }
        }
    }
    Ok(())
}

/// Nothing valid follows: a write that a crash cut, or one that is under way.
fn torn(source: &Source, offset: u64, e: &Error, sink: &mut Sink<'_>) -> Result<()> {
    let left = source.bytes() - offset;
    if zeros_to_the_end(source, offset)? {
        return sink.remark(offset, &format!("the last {left} bytes are zeros: space allocated ahead"));
    }
    let text = format!(
        "the last {left} bytes are no whole record, and none follows: {e}. Torn by a crash, being written now, or \
         damaged; recovery tells which"
    );
    sink.remark(offset, &text)
}

fn zeros_to_the_end(source: &Source, mut offset: u64) -> Result<bool> {
    while offset < source.bytes() {
        let window = source.read(offset, WINDOW)?;
        if window.is_empty() || window.iter().any(|b| *b != 0) {
            return Ok(false);
        }
        offset += window.len() as u64;
    }
    Ok(true)
}

/// The record at `offset`, or why there is none.
fn read(
    source: &Source,
    seal: FileId,
    offset: u64,
) -> Result<std::result::Result<(RecordHeader, Vec<u8>), Error>> {
    let head = source.read(offset, RECORD_HEADER_BYTES)?;
    let header = match RecordHeader::decode(&head, seal, offset) {
        Ok((header, _)) => header,
        Err(e) => return Ok(Err(e)),
    };
    let len = padded(header.payload_bytes as usize);
    let mut payload = source.read(offset + RECORD_HEADER_BYTES as u64, len)?;
    if payload.len() < len {
        return Ok(Err(source.too_short("a record")));
    }
    let got = checksum::checksum_placeless(&payload);
    if got != header.payload_checksum {
        let e = Error::corruption("log payload checksum differs")
            .expected(format_args!("{:#018x}", header.payload_checksum), format_args!("{got:#018x}"));
        return Ok(Err(e));
    }
    payload.truncate(header.payload_bytes as usize);
    Ok(Ok((header, payload)))
}

/// The first place behind `offset` where a record header is valid.
fn next_record(source: &Source, seal: FileId, offset: u64) -> Result<Option<u64>> {
    let mut start = offset + ALIGNMENT as u64;
    while start + RECORD_HEADER_BYTES as u64 <= source.bytes() {
        let window = source.read(start, WINDOW + RECORD_HEADER_BYTES)?;
        let last = window.len() - RECORD_HEADER_BYTES;
        for at in (0..=last).step_by(ALIGNMENT) {
            let head = &window[at..at + RECORD_HEADER_BYTES];
            let place = start + at as u64;
            if head[8..12] == RECORD_MAGIC.to_le_bytes() && RecordHeader::decode(head, seal, place).is_ok() {
                return Ok(Some(place));
            }
        }
        start += (last - last % ALIGNMENT + ALIGNMENT) as u64;
    }
    Ok(None)
}

fn record(offset: u64, h: &RecordHeader, payload: &[u8], sink: &mut Sink<'_>) -> Result<()> {
    let what = match h.kind {
        RecordKind::Batch => "batch",
        RecordKind::Edit => "edit",
        RecordKind::Close => "close mark",
        RecordKind::Prepare => "prepare",
        RecordKind::Decision => "decision",
    };
    // Printed only with its entries: a limit on a long log would otherwise leave a list of empty records.
    if h.kind != RecordKind::Batch || sink.wants_entries() {
        let fields = [
            ("lsn", json!(h.lsn)),
            ("count", json!(h.count)),
            ("durable", json!(h.durable)),
            ("edits", json!(h.edits)),
            ("bytes", json!(h.payload_bytes)),
        ];
        sink.part(offset, what, &fields)?;
    }
    match h.kind {
        RecordKind::Batch => batch(offset, h, (payload, 0..payload.len()), sink),
        RecordKind::Prepare => prepare(offset, h, payload, sink),
        RecordKind::Decision => match prepare::decision(payload) {
            Ok((gid, at)) => {
                let verdict = if at.is_empty() { "nothing" } else { "commit" };
                sink.detail("decided", &[("gid", json!(text(gid))), ("what", json!(verdict))])?;
                batch(offset, h, (payload, at), sink)
            }
            Err(e) => sink.damage(offset, &e),
        },
        RecordKind::Edit => match edit::decode(payload) {
            (fields, None) => fields.iter().try_for_each(|f| sink.detail(f.name, &f.values)),
            (fields, Some(e)) => {
                fields.iter().try_for_each(|f| sink.detail(f.name, &f.values))?;
                sink.damage(offset, &e)
            }
        },
        RecordKind::Close => match Decoder::new(payload).u64() {
            Ok(edit) => sink.detail("closed cleanly", &[("after edit", json!(edit))]),
            Err(e) => sink.damage(offset, &e),
        },
    }
}

fn text(gid: &[u8]) -> String {
    gid.escape_ascii().to_string()
}

/// What waits for a decision: its operations have no numbers of their own yet.
fn prepare(offset: u64, h: &RecordHeader, payload: &[u8], sink: &mut Sink<'_>) -> Result<()> {
    let p = match prepare::Prepare::decode(payload) {
        Ok(p) => p,
        Err(e) => return sink.damage(offset, &e),
    };
    let fields = [
        ("gid", json!(text(p.head.gid))),
        ("operations", json!(p.head.operations)),
        ("claims", json!(p.claims.len())),
        ("level", json!(p.head.level)),
        ("at ms", json!(p.head.at_ms)),
    ];
    sink.detail("prepared", &fields)?;
    batch(offset, h, (payload, p.batch), sink)
}

fn batch(
    offset: u64,
    h: &RecordHeader,
    (payload, at): (&[u8], Range<usize>),
    sink: &mut Sink<'_>,
) -> Result<()> {
    for (i, op) in Ops::new(payload, at).enumerate() {
        let op = match op {
            Ok(op) => op,
            Err(e) => return sink.damage(offset, &e),
        };
        if let Some((from, to)) = op.range_in(payload) {
            let (from, to) = (cut_text(from, true), cut_text(to, false));
            let seq = json!(h.lsn + i as u64);
            let fields =
                [("seq", seq), ("family", json!(op.family.0)), ("from", json!(from)), ("to", json!(to))];
            sink.detail("delete range", &fields)?;
            continue;
        }
        let value = match op.value_in(payload) {
            Ok(value) => value,
            Err(e) => return sink.damage(offset, &e),
        };
        let key = &payload[op.key];
        sink.entry(&Entry { seq: h.lsn + i as u64, family: Some(op.family.0), key, value })?;
    }
    Ok(())
}
