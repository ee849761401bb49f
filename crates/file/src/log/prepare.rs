//! Payloads of two-phase commit: what a prepared transaction claims and will write, and the
//! decision about it. See `docs/format/log.md`. Decoding never panics.
//!
//! Isolation levels, lock modes and column families are only numbers here.

use super::batch::EncodedRecord;
use super::layout::RecordKind;
use perigee_base::codec::Decoder;
use perigee_base::{Error, FamilyId, KeyBoundaryRef, Result, codec, limits};
use std::ops::Range;

/// Target of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimTarget<'a> {
    /// A single key.
    Key(&'a [u8]),
    /// All keys between two boundaries.
    Range(KeyBoundaryRef<'a>, KeyBoundaryRef<'a>),
}

/// A key or range, other than those written, that other transactions must not touch until the
/// decision: it was read, or is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreparedClaim<'a> {
    /// Its column family.
    pub family: FamilyId,
    /// 0: it was read and must not change. Other values: the mode of the lock that is held.
    pub mode: u8,
    /// The claimed key or range.
    pub target: ClaimTarget<'a>,
}

/// Number of claim modes: 0 to 4.
pub const CLAIM_MODES: u8 = 5;
const _: () = assert!(CLAIM_MODES <= 1 << 7, "mode and shape of a claim share a byte");

/// Attributes of a prepared transaction, without claims and batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrepareHeader<'a> {
    /// Global transaction identifier.
    pub gid: &'a [u8],
    /// Isolation level.
    pub isolation_level: u8,
    /// Time of the prepare, in milliseconds since the Unix epoch.
    pub prepared_at_ms: u64,
    /// Number of operations in its batch.
    pub op_count: u32,
}

/// A decoded prepare record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrepareRecord<'a> {
    /// Attributes of the transaction.
    pub header: PrepareHeader<'a>,
    /// Keys and ranges that it claims.
    pub claims: Vec<PreparedClaim<'a>>,
    /// Range of its operations in the payload.
    pub ops_range: Range<usize>,
}

/// Fails if `gid` is not a valid transaction identifier.
///
/// # Errors
/// `InvalidArgument`.
pub fn check_gid(gid: &[u8]) -> Result<()> {
    if gid.is_empty() || gid.len() > limits::GID_BYTES_MAX {
        return Err(Error::invalid(
            "the identifier of a prepared transaction must have 1 to 255 bytes",
        )
        .expected(format_args!("1 to {} bytes", limits::GID_BYTES_MAX), gid.len()));
    }
    Ok(())
}

fn encode_gid(out: &mut Vec<u8>, gid: &[u8]) {
    check!(check_gid(gid).is_ok(), "only a valid gid is logged", gid.len());
    out.push(gid.len() as u8);
    out.extend_from_slice(gid);
}

fn decode_gid<'a>(d: &mut Decoder<'a>) -> Result<&'a [u8]> {
    match d.u8()? {
        0 => Err(Error::corruption("the identifier of a prepared transaction is empty")),
        n => d.take(usize::from(n)),
    }
}

fn encode_boundary(out: &mut Vec<u8>, boundary: KeyBoundaryRef<'_>) {
    codec::put_varint(out, boundary.encoded_bytes() as u64);
    boundary.encode(out);
}

fn decode_boundary<'a>(d: &mut Decoder<'a>) -> Result<KeyBoundaryRef<'a>> {
    KeyBoundaryRef::decode_read_range(d.bytes(limits::PREPARE_BYTES_MAX)?)
}

/// Encodes the prepare record of a transaction; `claims` calls its argument with each claim. The
/// record occupies one LSN, which belongs to no operation.
///
/// # Errors
/// `InvalidArgument` if it exceeds the maximum size of a prepare record.
pub fn encode_prepare(
    header: PrepareHeader<'_>,
    claims: &dyn Fn(&mut dyn FnMut(PreparedClaim<'_>)),
    batch: &[u8],
) -> Result<EncodedRecord> {
    let (mut encoded_claims, mut count) = (Vec::new(), 0u64);
    claims(&mut |claim: PreparedClaim<'_>| {
        count += 1;
        encode_claim(&mut encoded_claims, &claim);
    });
    let bytes = encoded_claims.len() + batch.len();
    if bytes > limits::PREPARE_BYTES_MAX {
        return Err(Error::invalid(
            "the transaction, including what it has read, is too large to be prepared",
        )
        .expected(format_args!("at most {} bytes", limits::PREPARE_BYTES_MAX), bytes));
    }
    Ok(EncodedRecord::build_payload(RecordKind::Prepare, 1, bytes + 300, |out| {
        encode_gid(out, header.gid);
        out.push(header.isolation_level);
        out.extend_from_slice(&header.prepared_at_ms.to_le_bytes());
        codec::put_varint(out, u64::from(header.op_count));
        codec::put_varint(out, count);
        out.extend_from_slice(&encoded_claims);
        out.extend_from_slice(batch);
    }))
}

fn encode_claim(out: &mut Vec<u8>, claim: &PreparedClaim<'_>) {
    check!(claim.mode < CLAIM_MODES, "a claim has a known mode", claim.mode);
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
        return Err(Error::corruption("unknown claim mode").expected("0 to 9", code));
    }
    let family = FamilyId(d.varint32()?);
    let target = match code & 1 {
        // A key that was read or locked may be longer than a key that can be written.
        0 => ClaimTarget::Key(d.bytes(limits::PREPARE_BYTES_MAX)?),
        _ => ClaimTarget::Range(decode_boundary(d)?, decode_boundary(d)?),
    };
    Ok(PreparedClaim { family, mode: code >> 1, target })
}

impl PrepareRecord<'_> {
    /// Decodes the payload of a prepare record. The operations are not decoded.
    pub fn decode(payload: &[u8]) -> Result<PrepareRecord<'_>> {
        let mut d = Decoder::new(payload);
        let gid = decode_gid(&mut d)?;
        let (level, at_ms, operations) = (d.u8()?, d.u64()?, d.varint32()?);
        let mut claims = Vec::new();
        // Each claim takes at least one byte, so an excessive count fails at the end of the
        // payload.
        for _ in 0..d.varint()? {
            claims.push(decode_claim(&mut d)?);
        }
        let header = PrepareHeader {
            gid,
            isolation_level: level,
            prepared_at_ms: at_ms,
            op_count: operations,
        };
        Ok(PrepareRecord { header, claims, ops_range: d.position()..payload.len() })
    }
}

/// Encodes a decision record. For a commit, `batch` has all writes of the transaction, so that the
/// record can be replayed on its own; for a rollback it is empty. The record occupies one LSN per
/// operation, and one if there is none.
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

/// Decodes the payload of a decision. Returns the transaction identifier and the range of the
/// operations to apply.
pub fn decode_decision(payload: &[u8]) -> Result<(&[u8], Range<usize>)> {
    let mut d = Decoder::new(payload);
    let gid = decode_gid(&mut d)?;
    Ok((gid, d.position()..payload.len()))
}

/// Returns the range of the operations that a record of this kind applies; `None` if the kind
/// applies none.
pub fn ops_payload_range(kind: RecordKind, payload: &[u8]) -> Result<Option<Range<usize>>> {
    match kind {
        RecordKind::Batch => Ok(Some(0..payload.len())),
        RecordKind::Decision => decode_decision(payload).map(|(_, batch)| Some(batch)),
        RecordKind::Prepare | RecordKind::Edit | RecordKind::Close => Ok(None),
    }
}

/// Returns the number of LSNs that a record of this kind with this many operations occupies.
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
    use crate::testing::{from_hex, hex_of_page};

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

    #[test]
    fn two_phase_records_match_format_page_examples() {
        let page = include_str!("../../../../docs/format/log.md");
        let (prepared, decided) = sample();
        assert_eq!(prepared.buf[prepared.payload_range()], from_hex(&hex_of_page(page, 1)));
        assert_eq!(decided.buf[decided.payload_range()], from_hex(&hex_of_page(page, 2)));
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
        assert!(PrepareRecord::decode(&huge).is_err(), "a claim count without claims");
        assert!(
            check_gid(b"").is_err()
                && check_gid(&[1; 256]).is_err()
                && check_gid(&[0; 255]).is_ok()
        );
    }
}
