//! Encodes and decodes manifest edits. The decoder accepts arbitrary input without panicking.

use super::edit::{
    CleanClose, FamilyEvent, FamilyEventKind, ManifestEdit, NextIdsEdit, PreparedFiles,
    PreparedTables,
};
use crate::catalog::retained_logs::LogSpan;
use crate::settings::FamilySettings;
use crate::settings::isolation::Isolation;
use perigee_base::codec::{Decoder, put_bytes, put_varint};
use perigee_base::{
    Error, ErrorKind, FamilyId, FileId, KeyComparator, LevelNo, MergeRule, Result, RunId, SeqNo,
    limits,
};
use perigee_file::log::PrepareRecord;
use perigee_file::{Codec, Compression, KlogSummary, RangeTombstoneSummary};
use perigee_tree::{AddedTable, TableMeta, VersionEdit, VlogMeta};
use std::sync::Arc;

const SNAPSHOT: u64 = 1;
const NEXT_IDS: u64 = 3;
const FAMILY: u64 = 5;
const FAMILY_DROPPED: u64 = 7;
const KLOG: u64 = 9;
const KLOG_REMOVED: u64 = 11;
const VLOG: u64 = 13;
const VLOG_REMOVED: u64 = 15;
const FLUSHED: u64 = 17;
const LOG: u64 = 19;
const LOG_REMOVED: u64 = 21;
const DURABLE: u64 = 25;
const CLEAN_CLOSE: u64 = 27;
const EXPIRY_CLOCK: u64 = 29;
const STAMP: u64 = 31;
const FILTER: u64 = 33;
const LOG_RETAINED: u64 = 51;
const RETAINED_REMOVED: u64 = 53;
const FAMILY_EVENT: u64 = 55;
const CONTENTS_START: u64 = 57;
const OLDEST_READABLE: u64 = 59;
const NAMED_SNAPSHOT: u64 = 61;
const NAMED_SNAPSHOT_DROPPED: u64 = 63;
const EVENTS_DISCARDED: u64 = 65;
const PREPARED: u64 = 67;
const PREPARED_DECIDED: u64 = 69;

fn put_field(out: &mut Vec<u8>, tag: u64, body: impl Fn(&mut Vec<u8>)) {
    let mut b = Vec::new();
    body(&mut b);
    put_varint(out, tag);
    put_bytes(out, &b);
}

fn put_numbers(out: &mut Vec<u8>, tag: u64, ns: &[u64]) {
    put_field(out, tag, |b| ns.iter().for_each(|n| put_varint(b, *n)));
}

/// Encodes an edit.
pub fn encode_edit(e: &ManifestEdit) -> Vec<u8> {
    let mut out = Vec::new();
    if e.snapshot {
        put_numbers(&mut out, SNAPSHOT, &[]);
    }
    if let Some(next) = e.next_ids {
        // 0 stands for an identifier that is unchanged.
        let file = next.file.unwrap_or_default().0;
        let family = u64::from(next.family.unwrap_or_default().0);
        put_numbers(&mut out, NEXT_IDS, &[file, family, next.run.unwrap_or_default().0]);
    }
    for (id, name, settings) in &e.families {
        put_field(&mut out, FAMILY, |b| {
            put_varint(b, u64::from(id.0));
            put_bytes(b, name.as_bytes());
            put_settings(b, settings);
        });
    }
    for (id, name) in &e.filters {
        put_field(&mut out, FILTER, |b| {
            put_varint(b, u64::from(id.0));
            put_bytes(b, name.as_bytes());
        });
    }
    e.dropped.iter().for_each(|id| put_numbers(&mut out, FAMILY_DROPPED, &[u64::from(id.0)]));
    for (family, v) in &e.versions {
        put_version(&mut out, u64::from(family.0), v);
    }
    e.prepared.iter().for_each(|p| put_field(&mut out, PREPARED, |b| put_prepared(b, p)));
    e.decided.iter().for_each(|gid| put_field(&mut out, PREPARED_DECIDED, |b| put_bytes(b, gid)));
    e.logs_added.iter().for_each(|(id, lsn)| put_numbers(&mut out, LOG, &[id.0, lsn.0]));
    e.logs_removed.iter().for_each(|id| put_numbers(&mut out, LOG_REMOVED, &[id.0]));
    put_history(&mut out, e);
    if let Some(seq) = e.durable_seq {
        put_numbers(&mut out, DURABLE, &[seq.0]);
    }
    if let Some(ms) = e.expiry_clock_ms {
        put_numbers(&mut out, EXPIRY_CLOCK, &[ms]);
    }
    if let Some(c) = e.clean_close {
        put_numbers(&mut out, CLEAN_CLOSE, &[c.log.0, c.bytes, c.last_seq.0]);
    }
    out
}

/// Encodes the fields that change feeds and historical reads need.
fn put_history(out: &mut Vec<u8>, e: &ManifestEdit) {
    for s in &e.logs_retained {
        put_numbers(out, LOG_RETAINED, &[s.id.0, s.first_lsn.0, s.end_lsn.0, s.bytes]);
    }
    e.retained_removed.iter().for_each(|id| put_numbers(out, RETAINED_REMOVED, &[id.0]));
    e.events.iter().for_each(|event| put_field(out, FAMILY_EVENT, |b| put_event(b, event)));
    e.events_discarded.iter().for_each(|seq| put_numbers(out, EVENTS_DISCARDED, &[seq.0]));
    e.contents_start
        .iter()
        .for_each(|(id, seq)| put_numbers(out, CONTENTS_START, &[u64::from(id.0), seq.0]));
    e.oldest_readable.iter().for_each(|seq| put_numbers(out, OLDEST_READABLE, &[seq.0]));
    for (name, seq) in &e.snapshots {
        put_field(out, NAMED_SNAPSHOT, |b| {
            put_varint(b, seq.0);
            put_bytes(b, name.as_bytes());
        });
    }
    e.snapshots_dropped
        .iter()
        .for_each(|name| put_field(out, NAMED_SNAPSHOT_DROPPED, |b| put_bytes(b, name.as_bytes())));
}

fn put_event(b: &mut Vec<u8>, e: &FamilyEvent) {
    let (code, texts): (u64, &[&String]) = match &e.kind {
        FamilyEventKind::Created { name } => (1, &[name]),
        FamilyEventKind::Dropped { name } => (2, &[name]),
        FamilyEventKind::Renamed { from, to } => (3, &[from, to]),
        FamilyEventKind::Cleared => (4, &[]),
        FamilyEventKind::Cloned { name, .. } => (5, &[name]),
        FamilyEventKind::Loaded => (6, &[]),
    };
    [e.seq.0, u64::from(e.family.0), code].iter().for_each(|n| put_varint(b, *n));
    texts.iter().for_each(|text| put_bytes(b, text.as_bytes()));
    if let FamilyEventKind::Cloned { source, .. } = &e.kind {
        put_varint(b, u64::from(source.0));
    }
}

fn put_settings(out: &mut Vec<u8>, s: &FamilySettings) {
    // Without `..`: a new option needs a tag.
    let FamilySettings {
        comparator,
        memtable_bytes,
        value_threshold,
        block_bytes,
        compression,
        filter_bits,
        target_file_bytes,
        level1_bytes,
        level_ratio,
        isolation,
        merge_operator,
    } = s;
    put_varint(out, 1);
    put_bytes(out, comparator.name().as_bytes());
    let fields = [
        (3, *memtable_bytes),
        (5, *value_threshold as u64),
        (7, *block_bytes as u64),
        (9, u64::from(compression.codec().code())),
        (11, u64::from(*filter_bits)),
        (13, *target_file_bytes),
        (15, *level1_bytes),
        (17, u64::from(*level_ratio)),
    ];
    fields.iter().for_each(|(tag, n)| put_numbers(out, *tag, &[*n]));
    match compression.level() {
        0 => {}
        effort => put_numbers(out, 19, &[zigzag(effort)]),
    }
    if let Some(level) = isolation {
        put_numbers(out, 25, &[u64::from(level.code())]);
    }
    if let Some(fingerprint) = comparator.fingerprint() {
        put_field(out, 21, |b| b.extend_from_slice(&fingerprint.to_le_bytes()));
    }
    if let Some(rule) = merge_operator {
        put_field(out, 23, |b| b.extend_from_slice(rule.stored_name().as_bytes()));
    }
}

fn put_version(out: &mut Vec<u8>, family: u64, v: &VersionEdit) {
    for t in &v.added {
        put_field(out, KLOG, |b| put_table(b, family, t));
    }
    for t in &v.added {
        if let Some(seq) = t.meta.global_seq {
            put_numbers(out, STAMP, &[family, t.meta.id.0, seq.0]);
        }
    }
    v.removed.iter().for_each(|(level, id)| {
        put_numbers(out, KLOG_REMOVED, &[family, u64::from(level.0), id.0])
    });
    for l in &v.vlogs_added {
        put_field(out, VLOG, |b| {
            put_varint(b, family);
            put_vlog_meta(b, l);
        });
    }
    v.vlogs_removed.iter().for_each(|id| put_numbers(out, VLOG_REMOVED, &[family, id.0]));
    if let Some(seq) = v.flushed_up_to {
        put_numbers(out, FLUSHED, &[family, seq.0]);
    }
}

fn put_vlog_meta(b: &mut Vec<u8>, l: &VlogMeta) {
    [l.id.0, l.bytes].iter().for_each(|n| put_varint(b, *n));
    b.extend_from_slice(&l.checksum.to_le_bytes());
}

fn put_prepared(b: &mut Vec<u8>, p: &PreparedTables) {
    put_varint(b, p.operations);
    put_bytes(b, &p.record);
    put_varint(b, p.files.len() as u64);
    for f in &p.files {
        [u64::from(f.family.0), f.tables.len() as u64, f.vlogs.len() as u64]
            .iter()
            .for_each(|n| put_varint(b, *n));
        f.tables.iter().for_each(|t| put_table_meta(b, t));
        f.vlogs.iter().for_each(|v| put_vlog_meta(b, v));
    }
}

fn put_table(b: &mut Vec<u8>, family: u64, t: &AddedTable) {
    [family, u64::from(t.level.0), t.run.0].iter().for_each(|n| put_varint(b, *n));
    put_table_meta(b, &t.meta);
}

fn put_table_meta(b: &mut Vec<u8>, meta: &TableMeta) {
    let s = &meta.summary;
    [meta.id.0, s.bytes].iter().for_each(|n| put_varint(b, *n));
    b.extend_from_slice(&s.checksum.to_le_bytes());
    [s.entries, s.tombstones, s.smallest_seq.0, s.largest_seq.0]
        .iter()
        .for_each(|n| put_varint(b, *n));
    put_bytes(b, &s.first_key);
    put_bytes(b, &s.last_key);
    [s.raw_key_bytes, s.raw_value_bytes, s.vlogs.len() as u64]
        .iter()
        .for_each(|n| put_varint(b, *n));
    for (id, bytes) in &s.vlogs {
        put_varint(b, id.0);
        put_varint(b, *bytes);
    }
    RangeTombstoneSummary::encode(s.ranges.as_deref(), b);
}

/// Decodes an edit that fills `bytes`.
pub fn decode_edit(bytes: &[u8]) -> Result<ManifestEdit> {
    let mut d = Decoder::new(bytes);
    let mut e = ManifestEdit::default();
    while !d.is_empty() {
        let tag = d.varint()?;
        let mut b = Decoder::new(d.bytes(limits::EDIT_BYTES_MAX)?);
        if !take_field(&mut e, tag, &mut b)? {
            check_unknown_tag(tag, "a manifest edit")?;
            continue;
        }
        if !b.is_empty() {
            return Err(Error::corruption(format!("bytes after field {tag} of a manifest edit")));
        }
    }
    Ok(e)
}

/// Skips unknown even fields; fails for unknown odd ones.
fn check_unknown_tag(tag: u64, context: &str) -> Result<()> {
    if tag.is_multiple_of(2) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::FormatTooNew,
        format!(
            "{context} has field {tag}, which this version does not know: open it with a newer \
             Perigee"
        ),
    ))
}

/// Decodes one field; returns false if the tag is unknown.
fn take_field(e: &mut ManifestEdit, tag: u64, b: &mut Decoder<'_>) -> Result<bool> {
    match tag {
        SNAPSHOT => e.snapshot = true,
        NEXT_IDS => {
            e.next_ids = Some(NextIdsEdit {
                file: Some(FileId(b.varint()?)).filter(|id| id.0 > 0),
                family: Some(FamilyId(b.varint32()?)).filter(|id| id.0 > 0),
                run: Some(RunId(b.varint()?)).filter(|id| id.0 > 0),
            })
        }
        FAMILY => {
            let id = FamilyId(b.varint32()?);
            let name = std::str::from_utf8(b.bytes(limits::FAMILY_NAME_BYTES_MAX)?)
                .map_err(|_| Error::corruption("the name of a column family is not UTF-8"))?;
            e.families.push((id, name.to_owned(), take_settings(b)?));
        }
        FILTER => {
            let id = FamilyId(b.varint32()?);
            let name = std::str::from_utf8(b.bytes(limits::FAMILY_NAME_BYTES_MAX)?)
                .map_err(|_| Error::corruption("the name of a compaction filter is not UTF-8"))?;
            e.filters.push((id, name.to_owned()));
        }
        FAMILY_DROPPED => e.dropped.push(FamilyId(b.varint32()?)),
        KLOG => {
            let (family, table) = take_table(b)?;
            version_of(e, family).added.push(table);
        }
        STAMP => {
            let family = FamilyId(b.varint32()?);
            let (id, seq) = (FileId(b.varint()?), SeqNo(b.varint()?));
            let mut added = version_of(e, family).added.iter_mut();
            match added.find(|t| t.meta.id == id) {
                Some(t) if seq > SeqNo::ZERO => t.meta.global_seq = Some(seq),
                _ => {
                    return Err(Error::corruption(format!(
                        "a sequence number for klog {id}, which the edit does not add"
                    )));
                }
            }
        }
        KLOG_REMOVED => {
            let family = FamilyId(b.varint32()?);
            let gone = (take_level(b)?, FileId(b.varint()?));
            version_of(e, family).removed.push(gone);
        }
        VLOG => {
            let family = FamilyId(b.varint32()?);
            let meta = take_vlog_meta(b)?;
            version_of(e, family).vlogs_added.push(meta);
        }
        VLOG_REMOVED => {
            let family = FamilyId(b.varint32()?);
            let id = FileId(b.varint()?);
            version_of(e, family).vlogs_removed.push(id);
        }
        FLUSHED => {
            let family = FamilyId(b.varint32()?);
            let seq = SeqNo(b.varint()?);
            version_of(e, family).flushed_up_to = Some(seq);
        }
        PREPARED => e.prepared.push(Arc::new(take_prepared(b)?)),
        PREPARED_DECIDED => e.decided.push(b.bytes(limits::GID_BYTES_MAX)?.to_vec()),
        LOG => e.logs_added.push((FileId(b.varint()?), SeqNo(b.varint()?))),
        LOG_REMOVED => e.logs_removed.push(FileId(b.varint()?)),
        EXPIRY_CLOCK => e.expiry_clock_ms = Some(b.varint()?),
        DURABLE => e.durable_seq = Some(SeqNo(b.varint()?)),
        CLEAN_CLOSE => {
            e.clean_close = Some(CleanClose {
                log: FileId(b.varint()?),
                bytes: b.varint()?,
                last_seq: SeqNo(b.varint()?),
            })
        }
        _ => return take_history(e, tag, b),
    }
    Ok(true)
}

fn take_history(e: &mut ManifestEdit, tag: u64, b: &mut Decoder<'_>) -> Result<bool> {
    match tag {
        LOG_RETAINED => e.logs_retained.push(LogSpan {
            id: FileId(b.varint()?),
            first_lsn: SeqNo(b.varint()?),
            end_lsn: SeqNo(b.varint()?),
            bytes: b.varint()?,
        }),
        RETAINED_REMOVED => e.retained_removed.push(FileId(b.varint()?)),
        FAMILY_EVENT => e.events.push(take_event(b)?),
        EVENTS_DISCARDED => e.events_discarded = Some(SeqNo(b.varint()?)),
        CONTENTS_START => e.contents_start.push((FamilyId(b.varint32()?), SeqNo(b.varint()?))),
        OLDEST_READABLE => e.oldest_readable = Some(SeqNo(b.varint()?)),
        NAMED_SNAPSHOT => {
            let seq = SeqNo(b.varint()?);
            e.snapshots.push((take_name(b)?, seq));
        }
        NAMED_SNAPSHOT_DROPPED => e.snapshots_dropped.push(take_name(b)?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn take_name(b: &mut Decoder<'_>) -> Result<String> {
    let name = std::str::from_utf8(b.bytes(limits::FAMILY_NAME_BYTES_MAX)?);
    Ok(name.map_err(|_| Error::corruption("a name in the manifest is not UTF-8"))?.to_owned())
}

fn take_event(b: &mut Decoder<'_>) -> Result<FamilyEvent> {
    let (at, family) = (SeqNo(b.varint()?), FamilyId(b.varint32()?));
    let what = match b.varint()? {
        1 => FamilyEventKind::Created { name: take_name(b)? },
        2 => FamilyEventKind::Dropped { name: take_name(b)? },
        3 => FamilyEventKind::Renamed { from: take_name(b)?, to: take_name(b)? },
        4 => FamilyEventKind::Cleared,
        5 => FamilyEventKind::Cloned { name: take_name(b)?, source: FamilyId(b.varint32()?) },
        6 => FamilyEventKind::Loaded,
        other => {
            return Err(Error::new(
                ErrorKind::FormatTooNew,
                format!(
                    "a column-family event has kind {other}, which this version does not know: \
                     open it with a newer Perigee"
                ),
            ));
        }
    };
    Ok(FamilyEvent { seq: at, family, kind: what })
}

fn version_of(e: &mut ManifestEdit, family: FamilyId) -> &mut VersionEdit {
    let at = match e.versions.iter().rposition(|(id, _)| *id == family) {
        Some(at) => at,
        None => {
            e.versions.push((family, VersionEdit::default()));
            e.versions.len() - 1
        }
    };
    &mut e.versions[at].1
}

fn take_level(b: &mut Decoder<'_>) -> Result<LevelNo> {
    let n = b.varint()?;
    if n >= limits::LEVELS as u64 {
        return Err(Error::corruption("invalid level")
            .expected(format_args!("less than {}", limits::LEVELS), n));
    }
    Ok(LevelNo(n as u8))
}

fn take_vlog_meta(b: &mut Decoder<'_>) -> Result<VlogMeta> {
    Ok(VlogMeta { id: FileId(b.varint()?), bytes: b.varint()?, checksum: b.u64()? })
}

fn take_prepared(b: &mut Decoder<'_>) -> Result<PreparedTables> {
    let operations = b.varint()?;
    let record = Arc::new(b.bytes(limits::EDIT_BYTES_MAX)?.to_vec());
    let decoded = PrepareRecord::decode(&record)?;
    if decoded.header.op_count > 0 || !decoded.ops_range.is_empty() {
        return Err(Error::corruption(
            "the record of a prepared transaction in the manifest has operations",
        ));
    }
    let gid = decoded.header.gid.to_vec();
    // A column family, table or value log takes several bytes, so an excessive count fails at the
    // end of the field.
    let mut files = Vec::new();
    for _ in 0..b.varint()? {
        let (family, tables, vlogs) = (FamilyId(b.varint32()?), b.varint()?, b.varint()?);
        files.push(PreparedFiles {
            family,
            tables: take_all(tables, b, take_table_meta)?,
            vlogs: take_all(vlogs, b, take_vlog_meta)?,
        });
    }
    Ok(PreparedTables { gid, record, operations, files })
}

/// Decodes `count` values.
fn take_all<T>(
    count: u64,
    b: &mut Decoder<'_>,
    take: fn(&mut Decoder<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(take(b)?);
    }
    Ok(all)
}

fn take_table(b: &mut Decoder<'_>) -> Result<(FamilyId, AddedTable)> {
    let family = FamilyId(b.varint32()?);
    let (level, run) = (take_level(b)?, RunId(b.varint()?));
    Ok((family, AddedTable { level, run, meta: take_table_meta(b)? }))
}

fn take_table_meta(b: &mut Decoder<'_>) -> Result<TableMeta> {
    let id = FileId(b.varint()?);
    let (bytes, checksum) = (b.varint()?, b.u64()?);
    let (entries, tombstones) = (b.varint()?, b.varint()?);
    let (smallest, largest) = (SeqNo(b.varint()?), SeqNo(b.varint()?));
    let first_key = b.bytes(limits::KEY_BYTES_MAX)?.to_vec();
    let last_key = b.bytes(limits::KEY_BYTES_MAX)?.to_vec();
    let (raw_key_bytes, raw_value_bytes, n) = (b.varint()?, b.varint()?, b.varint()?);
    if n > b.remaining() as u64 {
        return Err(Error::corruption(
            "a table references more value logs than the edit has bytes",
        ));
    }
    let vlogs = (0..n).map(|_| Ok((FileId(b.varint()?), b.varint()?))).collect::<Result<_>>()?;
    let summary = KlogSummary {
        bytes,
        checksum,
        entries,
        tombstones,
        smallest_seq: smallest,
        largest_seq: largest,
        first_key,
        last_key,
        raw_key_bytes,
        raw_value_bytes,
        vlogs,
        ranges: RangeTombstoneSummary::decode(b)?.map(Box::new),
    };
    Ok(TableMeta { id, summary: summary.into(), global_seq: None })
}

/// Maps small negative numbers to small unsigned ones: 0, -1, 1, -2, ...
fn zigzag(n: i32) -> u64 {
    u64::from(((n << 1) ^ (n >> 31)) as u32)
}

fn unzigzag(n: u32) -> i32 {
    (n >> 1) as i32 ^ -((n & 1) as i32)
}

fn take_settings(d: &mut Decoder<'_>) -> Result<FamilySettings> {
    let mut s = FamilySettings::default();
    let (mut codec, mut effort, mut fingerprint) = (Codec::Lz4, 0, None);
    while !d.is_empty() {
        let tag = d.varint()?;
        let body = d.bytes(limits::EDIT_BYTES_MAX)?;
        let mut b = Decoder::new(body);
        match tag {
            1 => {
                let name = std::str::from_utf8(body)
                    .map_err(|_| Error::corruption("the name of a comparator is not UTF-8"))?;
                s.comparator = KeyComparator::by_name(name)?;
                continue;
            }
            23 => {
                let word = std::str::from_utf8(body)
                    .map_err(|_| Error::corruption("the name of a merge operator is not UTF-8"))?;
                s.merge_operator = Some(MergeRule::from_stored_name(word)?);
                continue;
            }
            3 => s.memtable_bytes = b.varint()?,
            5 => s.value_threshold = usize::try_from(b.varint()?).unwrap_or(usize::MAX),
            7 => s.block_bytes = usize::try_from(b.varint()?).unwrap_or(usize::MAX),
            9 => codec = Codec::decode(u8::try_from(b.varint()?).unwrap_or(u8::MAX))?,
            11 => s.filter_bits = u8::try_from(b.varint()?).unwrap_or(u8::MAX),
            13 => s.target_file_bytes = b.varint()?,
            15 => s.level1_bytes = b.varint()?,
            17 => s.level_ratio = b.varint32()?,
            21 => fingerprint = Some(b.u64()?),
            19 => effort = unzigzag(b.varint32()?),
            25 => {
                let level = u8::try_from(b.varint()?).ok().and_then(Isolation::decode);
                s.isolation = Some(level.ok_or_else(|| {
                    Error::corruption("the isolation level of a column family is unknown")
                })?);
            }
            other => {
                check_unknown_tag(other, "the settings of a column family")?;
                continue;
            }
        }
        if !b.is_empty() {
            return Err(Error::corruption(format!("bytes after setting {tag} of a column family")));
        }
    }
    s.comparator.check_fingerprint(fingerprint)?;
    let damaged = |e: Error| {
        e.wrap(ErrorKind::Corruption, "the stored settings of a column family are damaged")
    };
    if !codec.is_available() {
        return Err(codec.missing());
    }
    s.compression = Compression::new(codec, effort).map_err(damaged)?;
    s.check().map_err(damaged)?;
    Ok(s)
}
