//! The payloads of two-phase commit: what a prepared transaction claims and will write, and the
//! decision over it. See `docs/format/log.md`. Decoding is total.
//!
//! Must not know levels of isolation, locks or families: here they are numbers.

use super::batch::EncodedRecord;
use super::layout::RecordKind;
use perigee_base::codec::{self, Decoder};
use perigee_base::key_boundary::KeyBoundaryRef;
use perigee_base::{Error, FamilyId, Result, limits};
use std::ops::Range;

/// What a claim is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimTarget<'a> {
    /// A key.
    Key(&'a [u8]),
    /// All keys between two places.
    Range(KeyBoundaryRef<'a>, KeyBoundaryRef<'a>),
}

/// A key or a range that others must leave alone until the decision, beside what is written: read,
/// or locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreparedClaim<'a> {
    /// Its family.
    pub family: FamilyId,
    /// 0: it was read and must not change. Others: the kind of lock that is held.
    pub mode: u8,
    /// On what.
    pub target: ClaimTarget<'a>,
}

/// The kinds of claims: 0 to 4.
pub const CLAIM_MODES: u8 = 5;

/// What is known of a prepared transaction beside its claims and its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrepareHeader<'a> {
    /// Its global identifier.
    pub gid: &'a [u8],
    /// Its level of isolation.
    pub isolation_level: u8,
    /// When it was prepared, in milliseconds since the Unix epoch.
    pub prepared_at_ms: u64,
    /// Operations of its batch.
    pub op_count: u32,
}

/// A decoded prepare record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrepareRecord<'a> {
    /// What it is.
    pub header: PrepareHeader<'a>,
    /// What it claims.
    pub claims: Vec<PreparedClaim<'a>>,
    /// Where its operations lie in the payload.
    pub ops_range: Range<usize>,
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

fn encode_gid(out: &mut Vec<u8>, gid: &[u8]) {
    debug_assert!(gid.len() <= limits::GID_BYTES_MAX);
    out.push(gid.len() as u8);
    out.extend_from_slice(gid);
}

fn decode_gid<'a>(d: &mut Decoder<'a>) -> Result<&'a [u8]> {
    match d.u8()? {
        0 => Err(Error::corruption("the identifier of a prepared transaction is empty")),
        n => d.take(usize::from(n)),
    }
}

fn encode_boundary(out: &mut Vec<u8>, cut: KeyBoundaryRef<'_>) {
    codec::put_varint(out, cut.encoded_bytes() as u64);
    cut.encode(out);
}

fn decode_boundary<'a>(d: &mut Decoder<'a>) -> Result<KeyBoundaryRef<'a>> {
    KeyBoundaryRef::decode_read_range(d.bytes(limits::PREPARE_BYTES_MAX)?)
}

/// The record of a prepared transaction; `claims` visits all of them. It takes one number, which no
/// operation has.
///
/// # Errors
/// `InvalidArgument` if it is larger than a record may be.
pub fn encode_prepare(
    head: PrepareHeader<'_>,
    claims: &dyn Fn(&mut dyn FnMut(PreparedClaim<'_>)),
    batch: &[u8],
) -> Result<EncodedRecord> {
    let (mut listed, mut count) = (Vec::new(), 0u64);
    claims(&mut |claim: PreparedClaim<'_>| {
        count += 1;
        encode_claim(&mut listed, &claim);
    });
    let bytes = listed.len() + batch.len();
    if bytes > limits::PREPARE_BYTES_MAX {
        return Err(Error::invalid(
            "the transaction is too large to be prepared, with what it has read",
        )
        .expected(format_args!("at most {} bytes", limits::PREPARE_BYTES_MAX), bytes));
    }
    Ok(EncodedRecord::build_payload(RecordKind::Prepare, 1, bytes + 300, |out| {
        encode_gid(out, head.gid);
        out.push(head.isolation_level);
        out.extend_from_slice(&head.prepared_at_ms.to_le_bytes());
        codec::put_varint(out, u64::from(head.op_count));
        codec::put_varint(out, count);
        out.extend_from_slice(&listed);
        out.extend_from_slice(batch);
    }))
}

fn encode_claim(out: &mut Vec<u8>, claim: &PreparedClaim<'_>) {
    let shape = u8::from(matches!(claim.target, ClaimTarget::Range(..)));
    out.push(claim.mode << 1 | shape);
    codec::put_varint(out, u64::from(claim.family.0));
    match claim.target {
        ClaimTarget::Key(key) => codec::put_bytes(out, key),
        ClaimTarget::Range(begin, end) => {
            encode_boundary(out, begin);
            encode_boundary(out, end);
        }
    }
}

fn decode_claim<'a>(d: &mut Decoder<'a>) -> Result<PreparedClaim<'a>> {
    let code = d.u8()?;
    if code >> 1 >= CLAIM_MODES {
        return Err(Error::corruption("a claim of an unknown kind").expected("0 to 9", code));
    }
    let family = FamilyId(d.varint32()?);
    let on = match code & 1 {
        // What was read or locked may be longer than a key that can be written.
        0 => ClaimTarget::Key(d.bytes(limits::PREPARE_BYTES_MAX)?),
        _ => ClaimTarget::Range(decode_boundary(d)?, decode_boundary(d)?),
    };
    Ok(PreparedClaim { family, mode: code >> 1, target: on })
}

impl PrepareRecord<'_> {
    /// Decodes the payload of a prepare record. The operations are not looked at.
    pub fn decode(payload: &[u8]) -> Result<PrepareRecord<'_>> {
        let mut d = Decoder::new(payload);
        let gid = decode_gid(&mut d)?;
        let (level, at_ms, operations) = (d.u8()?, d.u64()?, d.varint32()?);
        let mut claims = Vec::new();
        // Each takes bytes: a count that is not true ends at the end of the payload.
        for _ in 0..d.varint()? {
            claims.push(decode_claim(&mut d)?);
        }
        let head = PrepareHeader {
            gid,
            isolation_level: level,
            prepared_at_ms: at_ms,
            op_count: operations,
        };
        Ok(PrepareRecord { header: head, claims, ops_range: d.position()..payload.len() })
    }
}

/// The record of a decision. Committed, `batch` is all that the transaction writes, so that the
/// record replays by itself; rolled back, it is empty. It takes a number for each operation, and
/// one if there is none.
pub fn encode_decision(gid: &[u8], batch: &[u8], operations: u32) -> EncodedRecord {
    EncodedRecord::build_payload(
        RecordKind::Decision,
        operations.max(1),
        batch.len() + 300,
        |out| {
            encode_gid(out, gid);
            out.extend_from_slice(batch);
        },
    )
}

/// Decodes the payload of a decision: about which transaction, and where the operations lie that
/// come true with it.
pub fn decode_decision(payload: &[u8]) -> Result<(&[u8], Range<usize>)> {
    let mut d = Decoder::new(payload);
    let gid = decode_gid(&mut d)?;
    Ok((gid, d.position()..payload.len()))
}

/// Where the operations lie that come true with a record of this kind; `None` if it has none by its
/// nature.
pub fn ops_payload_range(kind: RecordKind, payload: &[u8]) -> Result<Option<Range<usize>>> {
    match kind {
        RecordKind::Batch => Ok(Some(0..payload.len())),
        RecordKind::Decision => decode_decision(payload).map(|(_, batch)| Some(batch)),
        RecordKind::Prepare | RecordKind::Edit | RecordKind::Close => Ok(None),
    }
}

/// How many numbers a record of this kind takes that holds so many operations.
pub fn record_lsn_count(kind: RecordKind, operations: u64) -> u64 {
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

    fn sample() -> (EncodedRecord, EncodedRecord) {
        let mut batch = Batch::new();
        batch.put(FamilyId(0), b"moon", b"tide").unwrap();
        let batch = &batch.buf()[RECORD_HEADER_BYTES..];
        let head = PrepareHeader {
            gid: b"order 7",
            isolation_level: 4,
            prepared_at_ms: 1_800_000_000_000,
            op_count: 1,
        };
        let prepared = encode_prepare(
            head,
            &|visit| {
                let key = ClaimTarget::Key(b"sun");
                visit(PreparedClaim { family: FamilyId(3), mode: 0, target: key });
                let range = ClaimTarget::Range(KeyBoundaryRef::Before(b"a"), KeyBoundaryRef::Last);
                visit(PreparedClaim { family: FamilyId(0), mode: 3, target: range });
            },
            batch,
        );
        (prepared.unwrap(), encode_decision(b"order 7", batch, 1))
    }

    fn hex(page: &str, nth: usize) -> Vec<u8> {
        let block = page.split("```hex").nth(nth).unwrap().split("```").next().unwrap();
        let flat: String = block.split_whitespace().collect();
        (0..flat.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&flat[i..i + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn two_phase_records_match_format_page_examples() {
        let page = include_str!("../../../../docs/format/log.md");
        let (prepared, decided) = sample();
        assert_eq!(prepared.buf[prepared.payload_range()], hex(page, 2));
        assert_eq!(decided.buf[decided.payload_range()], hex(page, 3));
        let payload = &prepared.buf[prepared.payload_range()];
        let p = PrepareRecord::decode(payload).unwrap();
        assert_eq!(
            (p.header.gid, p.header.isolation_level, p.claims.len()),
            (&b"order 7"[..], 4, 2)
        );
        let (gid, batch) = decode_decision(&decided.buf[decided.payload_range()]).unwrap();
        assert_eq!(
            (gid, &payload[p.ops_range]),
            (p.header.gid, &decided.buf[decided.payload_range()][batch])
        );
        assert_eq!(
            (prepared.lsn_count, decided.lsn_count, encode_decision(b"x", b"", 0).lsn_count),
            (1, 1, 1)
        );
    }

    #[test]
    fn truncated_and_arbitrary_payloads_never_panic() {
        let (prepared, _) = sample();
        let payload = &prepared.buf[prepared.payload_range()];
        for end in 0..payload.len() {
            let _ = (PrepareRecord::decode(&payload[..end]), decode_decision(&payload[..end]));
        }
        assert!(
            PrepareRecord::decode(b"\x00").is_err()
                && decode_decision(b"").is_err()
                && decode_decision(b"\x05abc").is_err()
        );
        let huge = [&b"\x01x\x00"[..], &[0; 8], b"\x00", &[0xff; 9], &[1]].concat();
        assert!(PrepareRecord::decode(&huge).is_err(), "a count that nothing backs");
        assert!(
            check_gid(b"").is_err()
                && check_gid(&[1; 256]).is_err()
                && check_gid(&[0; 255]).is_ok()
        );
    }
}
