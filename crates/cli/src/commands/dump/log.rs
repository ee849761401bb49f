//! Log segments and the manifest, record by record. Format: `docs/format/log.md`.
//!
//! Unlike recovery, a dump does not stop at a bad record: it goes on at the next header that is
//! valid in its place.

use crate::failure::Result;
use perigee_base::codec::Decoder;
use perigee_base::file_header::{FileKind, HEADER_BYTES};
use perigee_base::{Error, FileId, checksum};
use perigee_file::log::layout::{
    self, ALIGNMENT, RECORD_HEADER_BYTES, RECORD_MAGIC, RecordHeader, padded_len,
};
use perigee_file::log::{BatchOps, RecordKind, prepare};
use serde_json::json;
use std::ops::Range;

use super::dump_writer::{DumpEntry, DumpWriter};
use super::frames::bound_text;
use super::manifest_edit;
use super::source::DumpSource;

/// Bytes searched at once for the next record.
const SEARCH_WINDOW: usize = 1 << 20;

/// Prints every record that can be read.
pub fn dump_log(
    source: &DumpSource,
    kind: FileKind,
    named: Option<FileId>,
    sink: &mut DumpWriter<'_>,
) -> Result<()> {
    let (database, file) = source.read_header(kind, named, sink)?;
    let seal = layout::checksum_seed(database, file);
    let mut offset = HEADER_BYTES as u64;
    let mut expected = None;
    while offset < source.bytes() {
        match read_record(source, seal, offset)? {
            Ok((header, payload)) => {
                if expected.is_some_and(|lsn| lsn != header.lsn) {
                    let gap = Error::corruption("a record is out of sequence");
                    sink.write_damage(
                        offset,
                        &gap.expected(expected.unwrap_or_default(), header.lsn),
                    )?;
                }
                print_record(offset, &header, &payload, sink)?;
                expected = Some(header.lsn + u64::from(header.lsn_count));
                offset += header.record_bytes();
            }
            Err(e) => {
                let Some(next) = next_record(source, seal, offset)? else {
                    return print_torn_tail(source, offset, &e, sink);
                };
                sink.write_damage(offset, &e)?;
                sink.write_remark(
                    offset,
                    &format!("{} bytes skipped to the next record", next - offset),
                )?;
                expected = None;
                offset = next;
            }
        }
    }
    Ok(())
}

/// Nothing valid follows: a write that a crash cut, or one that is under way.
fn print_torn_tail(
    source: &DumpSource,
    offset: u64,
    e: &Error,
    sink: &mut DumpWriter<'_>,
) -> Result<()> {
    let left = source.bytes() - offset;
    if is_zero_to_end(source, offset)? {
        return sink.write_remark(
            offset,
            &format!("the last {left} bytes are zeros: space allocated ahead"),
        );
    }
    let text = format!(
        "the last {left} bytes are no whole record, and none follows: {e}. Torn by a crash, being written now, or \
         damaged; recovery tells which"
    );
    sink.write_remark(offset, &text)
}

fn is_zero_to_end(source: &DumpSource, mut offset: u64) -> Result<bool> {
    while offset < source.bytes() {
        let window = source.read_at(offset, SEARCH_WINDOW)?;
        if window.is_empty() || window.iter().any(|b| *b != 0) {
            return Ok(false);
        }
        offset += window.len() as u64;
    }
    Ok(true)
}

/// The record at `offset`, or why there is none.
fn read_record(
    source: &DumpSource,
    seal: FileId,
    offset: u64,
) -> Result<std::result::Result<(RecordHeader, Vec<u8>), Error>> {
    let head = source.read_at(offset, RECORD_HEADER_BYTES)?;
    let header = match RecordHeader::decode(&head, seal, offset) {
        Ok((header, _)) => header,
        Err(e) => return Ok(Err(e)),
    };
    let len = padded_len(header.payload_bytes as usize);
    let mut payload = source.read_at(offset + RECORD_HEADER_BYTES as u64, len)?;
    if payload.len() < len {
        return Ok(Err(source.too_short_error("a record")));
    }
    let got = checksum::payload_checksum(&payload);
    if got != header.payload_checksum {
        let e = Error::corruption("log payload checksum differs").expected(
            format_args!("{:#018x}", header.payload_checksum),
            format_args!("{got:#018x}"),
        );
        return Ok(Err(e));
    }
    payload.truncate(header.payload_bytes as usize);
    Ok(Ok((header, payload)))
}

/// The first place behind `offset` where a record header is valid.
fn next_record(source: &DumpSource, seal: FileId, offset: u64) -> Result<Option<u64>> {
    let mut start = offset + ALIGNMENT as u64;
    while start + RECORD_HEADER_BYTES as u64 <= source.bytes() {
        let window = source.read_at(start, SEARCH_WINDOW + RECORD_HEADER_BYTES)?;
        let last = window.len() - RECORD_HEADER_BYTES;
        for at in (0..=last).step_by(ALIGNMENT) {
            let head = &window[at..at + RECORD_HEADER_BYTES];
            let place = start + at as u64;
            if head[8..12] == RECORD_MAGIC.to_le_bytes()
                && RecordHeader::decode(head, seal, place).is_ok()
            {
                return Ok(Some(place));
            }
        }
        start += (last - last % ALIGNMENT + ALIGNMENT) as u64;
    }
    Ok(None)
}

fn print_record(
    offset: u64,
    h: &RecordHeader,
    payload: &[u8],
    sink: &mut DumpWriter<'_>,
) -> Result<()> {
    let what = match h.kind {
        RecordKind::Batch => "batch",
        RecordKind::Edit => "edit",
        RecordKind::Close => "close mark",
        RecordKind::Prepare => "prepare",
        RecordKind::Decision => "decision",
    };
    // Printed only with its entries: a limit on a long log would otherwise leave a list of empty
    // records.
    if h.kind != RecordKind::Batch || sink.wants_entries() {
        let fields = [
            ("lsn", json!(h.lsn)),
            ("count", json!(h.lsn_count)),
            ("durable", json!(h.durable_lsn)),
            ("edits", json!(h.manifest_edits)),
            ("bytes", json!(h.payload_bytes)),
        ];
        sink.write_part(offset, what, &fields)?;
    }
    match h.kind {
        RecordKind::Batch => print_batch(offset, h, (payload, 0..payload.len()), sink),
        RecordKind::Prepare => print_prepare(offset, h, payload, sink),
        RecordKind::Decision => match prepare::decode_decision(payload) {
            Ok((gid, at)) => {
                let verdict = if at.is_empty() { "nothing" } else { "commit" };
                sink.write_detail(
                    "decided",
                    &[("gid", json!(gid_text(gid))), ("what", json!(verdict))],
                )?;
                print_batch(offset, h, (payload, at), sink)
            }
            Err(e) => sink.write_damage(offset, &e),
        },
        RecordKind::Edit => match manifest_edit::decode_edit(payload) {
            (fields, None) => fields.iter().try_for_each(|f| sink.write_detail(f.name, &f.values)),
            (fields, Some(e)) => {
                fields.iter().try_for_each(|f| sink.write_detail(f.name, &f.values))?;
                sink.write_damage(offset, &e)
            }
        },
        RecordKind::Close => match Decoder::new(payload).u64() {
            Ok(edit) => sink.write_detail("closed cleanly", &[("after edit", json!(edit))]),
            Err(e) => sink.write_damage(offset, &e),
        },
    }
}

fn gid_text(gid: &[u8]) -> String {
    gid.escape_ascii().to_string()
}

/// What waits for a decision: its operations have no numbers of their own yet.
fn print_prepare(
    offset: u64,
    h: &RecordHeader,
    payload: &[u8],
    sink: &mut DumpWriter<'_>,
) -> Result<()> {
    let p = match prepare::PrepareRecord::decode(payload) {
        Ok(p) => p,
        Err(e) => return sink.write_damage(offset, &e),
    };
    let fields = [
        ("gid", json!(gid_text(p.header.gid))),
        ("operations", json!(p.header.op_count)),
        ("claims", json!(p.claims.len())),
        ("level", json!(p.header.isolation_level)),
        ("at ms", json!(p.header.prepared_at_ms)),
    ];
    sink.write_detail("prepared", &fields)?;
    print_batch(offset, h, (payload, p.ops_range), sink)
}

fn print_batch(
    offset: u64,
    h: &RecordHeader,
    (payload, at): (&[u8], Range<usize>),
    sink: &mut DumpWriter<'_>,
) -> Result<()> {
    for (i, op) in BatchOps::new(payload, at).enumerate() {
        let op = match op {
            Ok(op) => op,
            Err(e) => return sink.write_damage(offset, &e),
        };
        if let Some((from, to)) = op.deleted_range_in(payload) {
            let (from, to) = (bound_text(from, true), bound_text(to, false));
            let seq = json!(h.lsn + i as u64);
            let fields = [
                ("seq", seq),
                ("family", json!(op.family.0)),
                ("from", json!(from)),
                ("to", json!(to)),
            ];
            sink.write_detail("delete range", &fields)?;
            continue;
        }
        let value = match op.value_in(payload) {
            Ok(value) => value,
            Err(e) => return sink.write_damage(offset, &e),
        };
        let key = &payload[op.key];
        sink.write_entry(&DumpEntry {
            seq: h.lsn + i as u64,
            family: Some(op.family.0),
            key,
            value,
        })?;
    }
    Ok(())
}
