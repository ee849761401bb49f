//! Dumps log segments and the manifest, record by record. Format: `docs/format/log.md`.
//!
//! Unlike recovery, a dump does not stop at a bad record: it continues at the next record header
//! that is valid at its offset.

use crate::failure::Result;
use perigee_base::codec::Decoder;
use perigee_base::{Error, FileId, FileKind, HEADER_BYTES, checksum};
use perigee_file::log::{
    ALIGNMENT, BatchOps, PrepareRecord, RECORD_HEADER_BYTES, RECORD_MAGIC, RecordHeader,
    RecordKind, checksum_seed, decode_decision, padded_len,
};
use serde_json::json;
use std::ops::Range;

use super::dump_writer::{DumpEntry, DumpWriter};
use super::frames::bound_text;
use super::manifest_edit;
use super::source::DumpSource;

/// Bytes read per step when searching for the next record.
const SEARCH_WINDOW: usize = 1 << 20;

/// Prints every readable record.
pub fn dump_log(
    source: &DumpSource,
    kind: FileKind,
    named: Option<FileId>,
    writer: &mut DumpWriter<'_>,
) -> Result<()> {
    let (database, file) = source.read_header(kind, named, writer)?;
    let seed = checksum_seed(database, file);
    let mut offset = HEADER_BYTES as u64;
    let mut expected = None;
    while offset < source.bytes() {
        match read_record(source, seed, offset)? {
            Ok((header, payload)) => {
                if expected.is_some_and(|lsn| lsn != header.lsn) {
                    let gap = Error::corruption("a record is out of sequence");
                    writer.write_damage(
                        offset,
                        &gap.expected(expected.unwrap_or_default(), header.lsn),
                    )?;
                }
                print_record(offset, &header, &payload, writer)?;
                expected = Some(header.lsn + u64::from(header.lsn_count));
                offset += header.record_bytes();
            }
            Err(e) => {
                let Some(next) = next_record(source, seed, offset)? else {
                    return print_torn_tail(source, offset, &e, writer);
                };
                writer.write_damage(offset, &e)?;
                writer.write_remark(
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

/// Prints a remark about a tail without a valid record: preallocated space, a record torn by a
/// crash, or a write in progress.
fn print_torn_tail(
    source: &DumpSource,
    offset: u64,
    e: &Error,
    writer: &mut DumpWriter<'_>,
) -> Result<()> {
    let left = source.bytes() - offset;
    if is_zero_to_end(source, offset)? {
        return writer
            .write_remark(offset, &format!("the last {left} bytes are zeros: preallocated space"));
    }
    let text = format!(
        "the last {left} bytes contain no complete record: {e}. Torn by a crash, being written, or \
         damaged; only recovery can tell"
    );
    writer.write_remark(offset, &text)
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

/// Reads the record at `offset`; the inner error tells why it is invalid.
fn read_record(
    source: &DumpSource,
    seed: FileId,
    offset: u64,
) -> Result<std::result::Result<(RecordHeader, Vec<u8>), Error>> {
    let head = source.read_at(offset, RECORD_HEADER_BYTES)?;
    let header = match RecordHeader::decode(&head, seed, offset) {
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

/// Returns the first offset after `offset` with a valid record header.
fn next_record(source: &DumpSource, seed: FileId, offset: u64) -> Result<Option<u64>> {
    let mut start = offset + ALIGNMENT as u64;
    while start + RECORD_HEADER_BYTES as u64 <= source.bytes() {
        let window = source.read_at(start, SEARCH_WINDOW + RECORD_HEADER_BYTES)?;
        let last = window.len() - RECORD_HEADER_BYTES;
        for at in (0..=last).step_by(ALIGNMENT) {
            let head = &window[at..at + RECORD_HEADER_BYTES];
            let candidate = start + at as u64;
            if head[8..12] == RECORD_MAGIC.to_le_bytes()
                && RecordHeader::decode(head, seed, candidate).is_ok()
            {
                return Ok(Some(candidate));
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
    writer: &mut DumpWriter<'_>,
) -> Result<()> {
    let what = match h.kind {
        RecordKind::Batch => "batch",
        RecordKind::Edit => "edit",
        RecordKind::Close => "clean close",
        RecordKind::Prepare => "prepare",
        RecordKind::Decision => "decision",
    };
    // A batch is printed only together with its entries: otherwise a dump with a limit would end
    // in a long list of empty batches.
    if h.kind != RecordKind::Batch || writer.wants_entries() {
        let fields = [
            ("lsn", json!(h.lsn)),
            ("count", json!(h.lsn_count)),
            ("durable", json!(h.durable_lsn)),
            ("edits", json!(h.manifest_edits)),
            ("bytes", json!(h.payload_bytes)),
        ];
        writer.write_part(offset, what, &fields)?;
    }
    match h.kind {
        RecordKind::Batch => print_batch(offset, h, (payload, 0..payload.len()), writer),
        RecordKind::Prepare => print_prepare(offset, h, payload, writer),
        RecordKind::Decision => match decode_decision(payload) {
            Ok((gid, at)) => {
                let verdict = if at.is_empty() { "rollback" } else { "commit" };
                writer.write_detail(
                    "decided",
                    &[("gid", json!(gid_text(gid))), ("decision", json!(verdict))],
                )?;
                print_batch(offset, h, (payload, at), writer)
            }
            Err(e) => writer.write_damage(offset, &e),
        },
        RecordKind::Edit => match manifest_edit::decode_edit(payload) {
            (fields, None) => {
                fields.iter().try_for_each(|f| writer.write_detail(f.name, &f.values))
            }
            (fields, Some(e)) => {
                fields.iter().try_for_each(|f| writer.write_detail(f.name, &f.values))?;
                writer.write_damage(offset, &e)
            }
        },
        RecordKind::Close => match Decoder::new(payload).u64() {
            Ok(edit) => writer.write_detail("closed cleanly", &[("after edit", json!(edit))]),
            Err(e) => writer.write_damage(offset, &e),
        },
    }
}

fn gid_text(gid: &[u8]) -> String {
    gid.escape_ascii().to_string()
}

/// Prints a prepare record. Its operations have no sequence numbers yet.
fn print_prepare(
    offset: u64,
    h: &RecordHeader,
    payload: &[u8],
    writer: &mut DumpWriter<'_>,
) -> Result<()> {
    let p = match PrepareRecord::decode(payload) {
        Ok(p) => p,
        Err(e) => return writer.write_damage(offset, &e),
    };
    let fields = [
        ("gid", json!(gid_text(p.header.gid))),
        ("operations", json!(p.header.op_count)),
        ("claims", json!(p.claims.len())),
        ("level", json!(p.header.isolation_level)),
        ("at ms", json!(p.header.prepared_at_ms)),
    ];
    writer.write_detail("prepared", &fields)?;
    print_batch(offset, h, (payload, p.ops_range), writer)
}

fn print_batch(
    offset: u64,
    h: &RecordHeader,
    (payload, at): (&[u8], Range<usize>),
    writer: &mut DumpWriter<'_>,
) -> Result<()> {
    for (i, op) in BatchOps::new(payload, at).enumerate() {
        let op = match op {
            Ok(op) => op,
            Err(e) => return writer.write_damage(offset, &e),
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
            writer.write_detail("delete range", &fields)?;
            continue;
        }
        let value = match op.value_in(payload) {
            Ok(value) => value,
            Err(e) => return writer.write_damage(offset, &e),
        };
        let key = &payload[op.key];
        writer.write_entry(&DumpEntry {
            seq: h.lsn + i as u64,
            family: Some(op.family.0),
            key,
            value,
        })?;
    }
    Ok(())
}
