//! Edits to bytes and back. The decoder is total.

use super::edit::{Befell, CleanClose, Edit, FamilyEvent};
use crate::isolation::Isolation;
use crate::settings::FamilySettings;
use crate::wal::LogSpan;
use perigee_base::codec::{Decoder, put_bytes, put_varint};
use perigee_base::{
    Error, ErrorKind, FamilyId, FileId, KeyOrder, LevelNo, MergeRule, Result, RunId, SeqNo, limits,
};
use perigee_file::{Codec, Compression, KlogSummary, RangeSummary};
use perigee_tree::version::AddedTable;
use perigee_tree::{TableMeta, VersionEdit, VlogMeta};

const SNAPSHOT: u64 = 1;
const COUNTERS: u64 = 3;
const FAMILY: u64 = 5;
const DROPPED: u64 = 7;
const KLOG: u64 = 9;
const KLOG_GONE: u64 = 11;
const VLOG: u64 = 13;
const VLOG_GONE: u64 = 15;
const FLUSHED: u64 = 17;
const LOG: u64 = 19;
const LOG_GONE: u64 = 21;
const DURABLE: u64 = 25;
const CLEAN: u64 = 27;
const CLOCK: u64 = 29;
const STAMP: u64 = 31;
const FILTER: u64 = 33;
const RETAINED: u64 = 51;
const RETAINED_GONE: u64 = 53;
const EVENT: u64 = 55;
const BEGUN: u64 = 57;
const FLOOR: u64 = 59;
const NAMED: u64 = 61;
const NAMED_GONE: u64 = 63;
const EVENTS_FORGOTTEN: u64 = 65;

fn field(out: &mut Vec<u8>, tag: u64, body: impl FnOnce(&mut Vec<u8>)) {
    let mut b = Vec::new();
    body(&mut b);
    put_varint(out, tag);
    put_bytes(out, &b);
}

fn numbers(out: &mut Vec<u8>, tag: u64, ns: &[u64]) {
    field(out, tag, |b| ns.iter().for_each(|n| put_varint(b, *n)));
}

/// The bytes of an edit.
pub fn encode(e: &Edit) -> Vec<u8> {
    let mut out = Vec::new();
    if e.snapshot {
        numbers(&mut out, SNAPSHOT, &[]);
    }
    if let Some((file, family, run)) = e.next {
        numbers(&mut out, COUNTERS, &[file, u64::from(family), run]);
    }
    for (id, name, settings) in &e.families {
        field(&mut out, FAMILY, |b| {
            put_varint(b, u64::from(id.0));
            put_bytes(b, name.as_bytes());
            put_settings(b, settings);
        });
    }
    for (id, name) in &e.filters {
        field(&mut out, FILTER, |b| {
            put_varint(b, u64::from(id.0));
            put_bytes(b, name.as_bytes());
        });
    }
    e.dropped.iter().for_each(|id| numbers(&mut out, DROPPED, &[u64::from(id.0)]));
    for (family, v) in &e.versions {
        put_version(&mut out, u64::from(family.0), v);
    }
    e.logs_added.iter().for_each(|(id, lsn)| numbers(&mut out, LOG, &[id.0, *lsn]));
    e.logs_removed.iter().for_each(|id| numbers(&mut out, LOG_GONE, &[id.0]));
    put_history(&mut out, e);
    if let Some(seq) = e.durable {
        numbers(&mut out, DURABLE, &[seq]);
    }
    if let Some(ms) = e.clock {
        numbers(&mut out, CLOCK, &[ms]);
    }
    if let Some(c) = e.clean {
        numbers(&mut out, CLEAN, &[c.log.0, c.bytes, c.last]);
    }
    out
}

/// What feeds and readers of the past need.
fn put_history(out: &mut Vec<u8>, e: &Edit) {
    e.logs_retained.iter().for_each(|s| numbers(out, RETAINED, &[s.id.0, s.first, s.end, s.bytes]));
    e.retained_removed.iter().for_each(|id| numbers(out, RETAINED_GONE, &[id.0]));
    e.events.iter().for_each(|event| field(out, EVENT, |b| put_event(b, event)));
    e.events_forgotten.iter().for_each(|seq| numbers(out, EVENTS_FORGOTTEN, &[seq.0]));
    e.begun.iter().for_each(|(id, seq)| numbers(out, BEGUN, &[u64::from(id.0), seq.0]));
    e.floor.iter().for_each(|seq| numbers(out, FLOOR, &[seq.0]));
    for (name, seq) in &e.snapshots {
        field(out, NAMED, |b| {
            put_varint(b, seq.0);
            put_bytes(b, name.as_bytes());
        });
    }
    e.snapshots_dropped.iter().for_each(|name| field(out, NAMED_GONE, |b| put_bytes(b, name.as_bytes())));
}

fn put_event(b: &mut Vec<u8>, e: &FamilyEvent) {
    let (code, texts): (u64, &[&String]) = match &e.what {
        Befell::Created { name } => (1, &[name]),
        Befell::Dropped { name } => (2, &[name]),
        Befell::Renamed { from, to } => (3, &[from, to]),
        Befell::Cleared => (4, &[]),
        Befell::Cloned { name, .. } => (5, &[name]),
        Befell::Loaded => (6, &[]),
    };
    [e.at.0, u64::from(e.family.0), code].iter().for_each(|n| put_varint(b, *n));
    texts.iter().for_each(|text| put_bytes(b, text.as_bytes()));
    if let Befell::Cloned { source, .. } = &e.what {
        put_varint(b, u64::from(source.0));
    }
}

fn put_settings(out: &mut Vec<u8>, s: &FamilySettings) {
    put_varint(out, 1);
    put_bytes(out, s.order.name().as_bytes());
    let fields = [
        (3, s.memtable_bytes),
        (5, s.value_threshold),
        (7, s.block_bytes),
        (9, u64::from(s.compression.codec().code())),
        (11, u64::from(s.filter_bits)),
        (13, s.target_file_bytes),
        (15, s.level1_bytes),
        (17, u64::from(s.level_ratio)),
    ];
    fields.iter().for_each(|(tag, n)| numbers(out, *tag, &[*n]));
    match s.compression.effort() {
        0 => {}
        effort => numbers(out, 19, &[zigzag(effort)]),
    }
    if let Some(level) = s.isolation {
        numbers(out, 25, &[u64::from(level.code())]);
    }
    if let Some(fingerprint) = s.order.fingerprint() {
        field(out, 21, |b| b.extend_from_slice(&fingerprint.to_le_bytes()));
    }
    if let Some(rule) = &s.merge_operator {
        field(out, 23, |b| b.extend_from_slice(rule.word().as_bytes()));
    }
}

fn put_version(out: &mut Vec<u8>, family: u64, v: &VersionEdit) {
    for t in &v.added {
        field(out, KLOG, |b| put_table(b, family, t));
    }
    for t in &v.added {
        if let Some(seq) = t.meta.stamp {
            numbers(out, STAMP, &[family, t.meta.id.0, seq.0]);
        }
    }
    v.removed.iter().for_each(|(level, id)| numbers(out, KLOG_GONE, &[family, u64::from(level.0), id.0]));
    for l in &v.vlogs_added {
        field(out, VLOG, |b| {
            [family, l.id.0, l.bytes].iter().for_each(|n| put_varint(b, *n));
            b.extend_from_slice(&l.checksum.to_le_bytes());
        });
    }
    v.vlogs_removed.iter().for_each(|id| numbers(out, VLOG_GONE, &[family, id.0]));
    if let Some(seq) = v.flushed {
        numbers(out, FLUSHED, &[family, seq.0]);
    }
}

fn put_table(b: &mut Vec<u8>, family: u64, t: &AddedTable) {
    let s = &t.meta.summary;
    [family, u64::from(t.level.0), t.run.0, t.meta.id.0, s.bytes].iter().for_each(|n| put_varint(b, *n));
    b.extend_from_slice(&s.checksum.to_le_bytes());
    [s.entries, s.tombstones, s.smallest.0, s.largest.0].iter().for_each(|n| put_varint(b, *n));
    put_bytes(b, &s.first_key);
    put_bytes(b, &s.last_key);
    [s.raw_key_bytes, s.raw_value_bytes, s.vlogs.len() as u64].iter().for_each(|n| put_varint(b, *n));
    for (id, bytes) in &s.vlogs {
        put_varint(b, id.0);
        put_varint(b, *bytes);
    }
    RangeSummary::encode(s.ranges.as_ref(), b);
}

/// Decodes an edit that fills `bytes`.
pub fn decode(bytes: &[u8]) -> Result<Edit> {
    let mut d = Decoder::new(bytes);
    let mut e = Edit::default();
    while !d.is_empty() {
        let tag = d.varint()?;
        let mut b = Decoder::new(d.bytes(limits::EDIT_BYTES_MAX)?);
        if !take_field(&mut e, tag, &mut b)? {
            unknown(tag, "a manifest edit")?;
            continue;
        }
        if !b.is_empty() {
            return Err(Error::corruption(format!("bytes after field {tag} of a manifest edit")));
        }
    }
    Ok(e)
}

/// Unknown even fields are skipped; unknown odd ones must be understood.
fn unknown(tag: u64, place: &str) -> Result<()> {
    if tag.is_multiple_of(2) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::FormatTooNew,
        format!("{place} has field {tag}, which this version does not know: open it with a newer Perigee"),
    ))
}

/// Takes one field; false if the tag is unknown.
fn take_field(e: &mut Edit, tag: u64, b: &mut Decoder<'_>) -> Result<bool> {
    match tag {
        SNAPSHOT => e.snapshot = true,
        COUNTERS => e.next = Some((b.varint()?, b.varint32()?, b.varint()?)),
        FAMILY => {
            let id = FamilyId(b.varint32()?);
            let name = std::str::from_utf8(b.bytes(limits::FAMILY_NAME_BYTES_MAX)?)
                .map_err(|_| Error::corruption("a family's name is not UTF-8"))?;
            e.families.push((id, name.to_owned(), take_settings(b)?));
        }
        FILTER => {
            let id = FamilyId(b.varint32()?);
            let name = std::str::from_utf8(b.bytes(limits::FAMILY_NAME_BYTES_MAX)?)
                .map_err(|_| Error::corruption("a filter's name is not UTF-8"))?;
            e.filters.push((id, name.to_owned()));
        }
        DROPPED => e.dropped.push(FamilyId(b.varint32()?)),
        KLOG => {
            let (family, table) = take_table(b)?;
            version(e, family).added.push(table);
        }
        STAMP => {
            let family = FamilyId(b.varint32()?);
            let (id, seq) = (FileId(b.varint()?), SeqNo(b.varint()?));
            let mut added = version(e, family).added.iter_mut();
            match added.find(|t| t.meta.id == id) {
                Some(t) if seq > SeqNo::ZERO => t.meta.stamp = Some(seq),
                _ => {
                    return Err(Error::corruption(format!(
                        "a stamp of klog {id}, which the edit does not add"
                    )));
                }
            }
        }
        KLOG_GONE => {
            let family = FamilyId(b.varint32()?);
            let gone = (take_level(b)?, FileId(b.varint()?));
            version(e, family).removed.push(gone);
        }
        VLOG => {
            let family = FamilyId(b.varint32()?);
            let meta = VlogMeta { id: FileId(b.varint()?), bytes: b.varint()?, checksum: b.u64()? };
            version(e, family).vlogs_added.push(meta);
        }
        VLOG_GONE => {
            let family = FamilyId(b.varint32()?);
            let id = FileId(b.varint()?);
            version(e, family).vlogs_removed.push(id);
        }
        FLUSHED => {
            let family = FamilyId(b.varint32()?);
            let seq = SeqNo(b.varint()?);
            version(e, family).flushed = Some(seq);
        }
        LOG => e.logs_added.push((FileId(b.varint()?), b.varint()?)),
        LOG_GONE => e.logs_removed.push(FileId(b.varint()?)),
        CLOCK => e.clock = Some(b.varint()?),
        DURABLE => e.durable = Some(b.varint()?),
        CLEAN => {
            e.clean = Some(CleanClose { log: FileId(b.varint()?), bytes: b.varint()?, last: b.varint()? })
        }
        _ => return take_history(e, tag, b),
    }
    Ok(true)
}

fn take_history(e: &mut Edit, tag: u64, b: &mut Decoder<'_>) -> Result<bool> {
    match tag {
        RETAINED => e.logs_retained.push(LogSpan {
            id: FileId(b.varint()?),
            first: b.varint()?,
            end: b.varint()?,
            bytes: b.varint()?,
        }),
        RETAINED_GONE => e.retained_removed.push(FileId(b.varint()?)),
        EVENT => e.events.push(take_event(b)?),
        EVENTS_FORGOTTEN => e.events_forgotten = Some(SeqNo(b.varint()?)),
        BEGUN => e.begun.push((FamilyId(b.varint32()?), SeqNo(b.varint()?))),
        FLOOR => e.floor = Some(SeqNo(b.varint()?)),
        NAMED => {
            let seq = SeqNo(b.varint()?);
            e.snapshots.push((take_name(b)?, seq));
        }
        NAMED_GONE => e.snapshots_dropped.push(take_name(b)?),
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
        1 => Befell::Created { name: take_name(b)? },
        2 => Befell::Dropped { name: take_name(b)? },
        3 => Befell::Renamed { from: take_name(b)?, to: take_name(b)? },
        4 => Befell::Cleared,
        5 => Befell::Cloned { name: take_name(b)?, source: FamilyId(b.varint32()?) },
        6 => Befell::Loaded,
        other => {
            return Err(Error::new(
                ErrorKind::FormatTooNew,
                format!(
                    "a family's event has kind {other}, which this version does not know: open it with a newer Perigee"
                ),
            ));
        }
    };
    Ok(FamilyEvent { at, family, what })
}

fn version(e: &mut Edit, family: FamilyId) -> &mut VersionEdit {
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
        return Err(
            Error::corruption("no such level").expected(format_args!("less than {}", limits::LEVELS), n)
        );
    }
    Ok(LevelNo(n as u8))
}

fn take_table(b: &mut Decoder<'_>) -> Result<(FamilyId, AddedTable)> {
    let family = FamilyId(b.varint32()?);
    let (level, run, id) = (take_level(b)?, RunId(b.varint()?), FileId(b.varint()?));
    let (bytes, checksum) = (b.varint()?, b.u64()?);
    let (entries, tombstones) = (b.varint()?, b.varint()?);
    let (smallest, largest) = (SeqNo(b.varint()?), SeqNo(b.varint()?));
    let first_key = b.bytes(limits::KEY_BYTES_MAX)?.to_vec();
    let last_key = b.bytes(limits::KEY_BYTES_MAX)?.to_vec();
    let (raw_key_bytes, raw_value_bytes, n) = (b.varint()?, b.varint()?, b.varint()?);
    if n > b.remaining() as u64 {
        return Err(Error::corruption("a table references more value logs than the edit has bytes"));
    }
    let vlogs = (0..n).map(|_| Ok((FileId(b.varint()?), b.varint()?))).collect::<Result<_>>()?;
    let summary = KlogSummary {
        bytes,
        checksum,
        entries,
        tombstones,
        smallest,
        largest,
        first_key,
        last_key,
        raw_key_bytes,
        raw_value_bytes,
        vlogs,
        ranges: RangeSummary::decode(b)?,
    };
    Ok((family, AddedTable { level, run, meta: TableMeta { id, summary, stamp: None } }))
}

/// Small negative numbers as small numbers: 0, -1, 1, -2, ...
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
                let name =
                    std::str::from_utf8(body).map_err(|_| Error::corruption("a key order is not UTF-8"))?;
                s.order = KeyOrder::by_name(name)?;
                continue;
            }
            23 => {
                let word = std::str::from_utf8(body)
                    .map_err(|_| Error::corruption("the name of a merge operator is not UTF-8"))?;
                s.merge_operator = Some(MergeRule::of_word(word)?);
                continue;
            }
            3 => s.memtable_bytes = b.varint()?,
            5 => s.value_threshold = b.varint()?,
            7 => s.block_bytes = b.varint()?,
            9 => codec = Codec::decode(u8::try_from(b.varint()?).unwrap_or(u8::MAX))?,
            11 => s.filter_bits = u8::try_from(b.varint()?).unwrap_or(u8::MAX),
            13 => s.target_file_bytes = b.varint()?,
            15 => s.level1_bytes = b.varint()?,
            17 => s.level_ratio = b.varint32()?,
            21 => fingerprint = Some(b.u64()?),
            19 => effort = unzigzag(b.varint32()?),
            25 => {
                let level = u8::try_from(b.varint()?).ok().and_then(Isolation::decode);
                s.isolation =
                    Some(level.ok_or_else(|| Error::corruption("a family's level of isolation is unknown"))?);
            }
            other => {
                unknown(other, "a family's settings")?;
                continue;
            }
        }
        if !b.is_empty() {
            return Err(Error::corruption(format!("bytes after setting {tag} of a family")));
        }
    }
    s.order.check_fingerprint(fingerprint)?;
    let damaged = |e: Error| e.wrap(ErrorKind::Corruption, "a family's stored settings are damaged");
    s.compression = Compression::new(codec, effort).map_err(damaged)?;
    s.check().map_err(damaged)?;
    Ok(s)
}
