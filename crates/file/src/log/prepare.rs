//! The payloads of two-phase commit: what a prepared transaction claims and will write, and the decision over it. See
//! `docs/format/log.md`. Decoding is total.
//!
//! Must not know levels of isolation, locks or families: here they are numbers.

use super::batch::Finished;
use super::layout::RecordKind;
use perigee_base::codec::{self, Decoder};
use perigee_base::cut::CutRef;
use perigee_base::{Error, FamilyId, Result, limits};
use std::ops::Range;

/// What a claim is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed<'a> {
    /// A key.
    Key(&'a [u8]),
    /// All keys between two places.
    Range(CutRef<'a>, CutRef<'a>),
}

/// A key or a range that others must leave alone until the decision, beside what is written: read, or locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// Its family.
    pub family: FamilyId,
    /// 0: it was read and must not change. Others: the kind of lock that is held.
    pub mode: u8,
    /// On what.
    pub on: Claimed<'a>,
}

/// The kinds of claims: 0 to 4.
pub const CLAIM_MODES: u8 = 5;

/// What is known of a prepared transaction beside its claims and its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// Its global identifier.
    pub gid: &'a [u8],
    /// Its level of isolation.
    pub level: u8,
    /// When it was prepared, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Operations of its batch.
    pub operations: u32,
}

/// A decoded prepare record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepare<'a> {
    /// What it is.
    pub head: Head<'a>,
    /// What it claims.
    pub claims: Vec<Claim<'a>>,
    /// Where its operations lie in the payload.
    pub batch: Range<usize>,
}

/// Refuses an identifier that no transaction can have.
///
/// # Errors
/// `InvalidArgument`.
pub fn check_gid(gid: &[u8]) -> Result<()> {
    if gid.is_empty() || gid.len() > limits::GID_BYTES_MAX {
        return Err(Error::invalid("the identifier of a prepared transaction has 1 to 255 bytes")
            .expected(format_args!("1 to {} bytes", limits::GID_BYTES_MAX), gid.len()));
    }
    Ok(())
}

fn put_gid(out: &mut Vec<u8>, gid: &[u8]) {
    debug_assert!(gid.len() <= limits::GID_BYTES_MAX);
    out.push(gid.len() as u8);
    out.extend_from_slice(gid);
}

fn gid<'a>(d: &mut Decoder<'a>) -> Result<&'a [u8]> {
    match d.u8()? {
        0 => Err(Error::corruption("the identifier of a prepared transaction is empty")),
        n => d.take(usize::from(n)),
    }
}

fn put_cut(out: &mut Vec<u8>, cut: CutRef<'_>) {
    codec::put_varint(out, cut.encoded_bytes() as u64);
    cut.encode(out);
}

fn cut<'a>(d: &mut Decoder<'a>) -> Result<CutRef<'a>> {
    CutRef::decode_read(d.bytes(limits::PREPARE_BYTES_MAX)?)
}

/// The record of a prepared transaction; `claims` visits all of them. It takes one number, which no operation has.
///
/// # Errors
/// `InvalidArgument` if it is larger than a record may be.
pub fn prepare_record(
    head: Head<'_>,
    claims: &dyn Fn(&mut dyn FnMut(Claim<'_>)),
    batch: &[u8],
) -> Result<Finished> {
    let (mut listed, mut count) = (Vec::new(), 0u64);
    claims(&mut |claim: Claim<'_>| {
        count += 1;
        put_claim(&mut listed, &claim);
    });
    let bytes = listed.len() + batch.len();
    if bytes > limits::PREPARE_BYTES_MAX {
        return Err(Error::invalid("the transaction is too large to be prepared, with what it has read")
            .expected(format_args!("at most {} bytes", limits::PREPARE_BYTES_MAX), bytes));
    }
    Ok(Finished::filled(RecordKind::Prepare, 1, bytes + 300, |out| {
        put_gid(out, head.gid);
        out.push(head.level);
        out.extend_from_slice(&head.at_ms.to_le_bytes());
        codec::put_varint(out, u64::from(head.operations));
        codec::put_varint(out, count);
        out.extend_from_slice(&listed);
        out.extend_from_slice(batch);
    }))
}

fn put_claim(out: &mut Vec<u8>, claim: &Claim<'_>) {
    let shape = u8::from(matches!(claim.on, Claimed::Range(..)));
    out.push(claim.mode << 1 | shape);
    codec::put_varint(out, u64::from(claim.family.0));
    match claim.on {
        Claimed::Key(key) => codec::put_bytes(out, key),
        Claimed::Range(begin, end) => {
            put_cut(out, begin);
            put_cut(out, end);
        }
    }
}

fn claim<'a>(d: &mut Decoder<'a>) -> Result<Claim<'a>> {
    let code = d.u8()?;
    if code >> 1 >= CLAIM_MODES {
        return Err(Error::corruption("a claim of an unknown kind").expected("0 to 9", code));
    }
    let family = FamilyId(d.varint32()?);
    let on = match code & 1 {
        // What was read or locked may be longer than a key that can be written.
        0 => Claimed::Key(d.bytes(limits::PREPARE_BYTES_MAX)?),
        _ => Claimed::Range(cut(d)?, cut(d)?),
    };
    Ok(Claim { family, mode: code >> 1, on })
}

impl Prepare<'_> {
    /// Decodes the payload of a prepare record. The operations are not looked at.
    pub fn decode(payload: &[u8]) -> Result<Prepare<'_>> {
        let mut d = Decoder::new(payload);
        let gid = gid(&mut d)?;
        let (level, at_ms, operations) = (d.u8()?, d.u64()?, d.varint32()?);
        let mut claims = Vec::new();
        // Each takes bytes: a count that is not true ends at the end of the payload.
        for _ in 0..d.varint()? {
            claims.push(claim(&mut d)?);
        }
        let head = Head { gid, level, at_ms, operations };
        Ok(Prepare { head, claims, batch: d.position()..payload.len() })
    }
}

/// The record of a decision. Committed, `batch` is all that the transaction writes, so that the record replays by itself; rolled
/// back, it is empty. It takes a number for each operation, and one if there is none.
pub fn decision_record(gid: &[u8], batch: &[u8], operations: u32) -> Finished {
    Finished::filled(RecordKind::Decision, operations.max(1), batch.len() + 300, |out| {
        put_gid(out, gid);
        out.extend_from_slice(batch);
    })
}

/// Decodes the payload of a decision: about which transaction, and where the operations lie that come true with it.
pub fn decision(payload: &[u8]) -> Result<(&[u8], Range<usize>)> {
    let mut d = Decoder::new(payload);
    let gid = gid(&mut d)?;
    Ok((gid, d.position()..payload.len()))
}

/// Where the operations lie that come true with a record of this kind; `None` if it has none by its nature.
pub fn operations(kind: RecordKind, payload: &[u8]) -> Result<Option<Range<usize>>> {
    match kind {
        RecordKind::Batch => Ok(Some(0..payload.len())),
        RecordKind::Decision => decision(payload).map(|(_, batch)| Some(batch)),
        RecordKind::Prepare | RecordKind::Edit | RecordKind::Close => Ok(None),
    }
}

/// How many numbers a record of this kind takes that holds so many operations.
pub fn numbers(kind: RecordKind, operations: u64) -> u64 {
    match kind {
        RecordKind::Decision | RecordKind::Prepare => operations.max(1),
        RecordKind::Batch | RecordKind::Edit | RecordKind::Close => operations,
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::Batch;
    use super::super::layout::RECORD_HEADER_BYTES;
    use super::*;

    fn sample() -> (Finished, Finished) {
        let mut batch = Batch::new();
        batch.put(FamilyId(0), b"moon", b"tide").unwrap();
        let batch = &batch.buf()[RECORD_HEADER_BYTES..];
        let head = Head { gid: b"order 7", level: 4, at_ms: 1_800_000_000_000, operations: 1 };
        let prepared = prepare_record(
            head,
            &|visit| {
                let key = Claimed::Key(b"sun");
                visit(Claim { family: FamilyId(3), mode: 0, on: key });
                let range = Claimed::Range(CutRef::Before(b"a"), CutRef::Last);
                visit(Claim { family: FamilyId(0), mode: 3, on: range });
            },
            batch,
        );
        (prepared.unwrap(), decision_record(b"order 7", batch, 1))
    }

    fn hex(page: &str, nth: usize) -> Vec<u8> {
        let block = page.split("```hex").nth(nth).unwrap().split("```").next().unwrap();
        let flat: String = block.split_whitespace().collect();
        (0..flat.len()).step_by(2).map(|i| u8::from_str_radix(&flat[i..i + 2], 16).unwrap()).collect()
    }

    #[test]
    fn the_worked_examples_of_the_format_page() {
        let page = include_str!("../../../../docs/format/log.md");
        let (prepared, decided) = sample();
        assert_eq!(prepared.buf[prepared.payload()], hex(page, 2));
        assert_eq!(decided.buf[decided.payload()], hex(page, 3));
        let payload = &prepared.buf[prepared.payload()];
        let p = Prepare::decode(payload).unwrap();
        assert_eq!((p.head.gid, p.head.level, p.claims.len()), (&b"order 7"[..], 4, 2));
        let (gid, batch) = decision(&decided.buf[decided.payload()]).unwrap();
        assert_eq!((gid, &payload[p.batch]), (p.head.gid, &decided.buf[decided.payload()][batch]));
        assert_eq!((prepared.count, decided.count, decision_record(b"x", b"", 0).count), (1, 1, 1));
    }

    #[test]
    fn every_length_and_any_bytes_give_an_answer() {
        let (prepared, _) = sample();
        let payload = &prepared.buf[prepared.payload()];
        for end in 0..payload.len() {
            let _ = (Prepare::decode(&payload[..end]), decision(&payload[..end]));
        }
        assert!(Prepare::decode(b"\x00").is_err() && decision(b"").is_err() && decision(b"\x05abc").is_err());
        let huge = [&b"\x01x\x00"[..], &[0; 8], b"\x00", &[0xff; 9], &[1]].concat();
        assert!(Prepare::decode(&huge).is_err(), "a count that nothing backs");
        assert!(check_gid(b"").is_err() && check_gid(&[1; 256]).is_err() && check_gid(&[0; 255]).is_ok());
    }
}
