//! The write batch: operations in log format, with space for the record header in front. See
//! `docs/format/batch.md`.

use super::layout::{self, RECORD_HEADER_BYTES, RecordKind, padded_len};
use perigee_base::codec::Decoder;
use perigee_base::{
    EntryKind, Error, Expiry, FamilyId, KeyBoundaryRef, Result, ValueRef, checksum, codec, limits,
};
use std::ops::Range;

/// Operations in log format.
#[derive(Clone, Debug)]
pub struct Batch {
    /// `RECORD_HEADER_BYTES` of reserved space, then the payload.
    buf: Vec<u8>,
    count: u32,
    user_bytes: u64,
}

/// A position in a batch, to roll back to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchSavepoint {
    bytes: usize,
    count: u32,
    user_bytes: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// Creates an empty batch.
    pub fn new() -> Batch {
        Batch::with_capacity(0)
    }

    /// Creates an empty batch with capacity for `payload` bytes.
    pub fn with_capacity(payload: usize) -> Batch {
        let mut buf = Vec::new();
        if payload > 0 {
            buf.reserve_exact(RECORD_HEADER_BYTES + padded_len(payload));
            buf.resize(RECORD_HEADER_BYTES, 0);
        }
        Batch { buf, count: 0, user_bytes: 0 }
    }

    /// Returns the encoded size of a put, in bytes.
    pub fn encoded_put_bytes(family: FamilyId, key: &[u8], value: &[u8]) -> usize {
        1 + codec::varint_len(u64::from(family.0))
            + codec::varint_len(key.len() as u64)
            + codec::varint_len(value.len() as u64)
            + key.len()
            + value.len()
    }

    /// Adds a put.
    pub fn put(&mut self, family: FamilyId, key: &[u8], value: &[u8]) -> Result<()> {
        if value.len() > limits::VALUE_BYTES_MAX {
            return Err(Error::invalid("the value is too long")
                .expected(format_args!("at most {} bytes", limits::VALUE_BYTES_MAX), value.len()));
        }
        self.check_and_reserve(key, Batch::encoded_put_bytes(family, key, value))?;
        let start = self.buf.len();
        self.buf.push(EntryKind::Put.code());
        codec::put_varint(&mut self.buf, u64::from(family.0));
        codec::put_varint(&mut self.buf, key.len() as u64);
        codec::put_varint(&mut self.buf, value.len() as u64);
        self.buf.extend_from_slice(key);
        self.buf.extend_from_slice(value);
        check_slow!(
            self.buf.len() - start == Batch::encoded_put_bytes(family, key, value),
            "a put takes the bytes that were reserved for it"
        );
        self.count += 1;
        self.user_bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    /// Adds a put that expires at `expiry`.
    pub fn put_expiring(
        &mut self,
        family: FamilyId,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<()> {
        if value.len() > limits::VALUE_BYTES_MAX {
            return Err(Error::invalid("the value is too long")
                .expected(format_args!("at most {} bytes", limits::VALUE_BYTES_MAX), value.len()));
        }
        let stored = value.len() + Expiry::BYTES;
        self.check_and_reserve(
            key,
            Batch::encoded_put_bytes(family, key, value) + Expiry::BYTES + 1,
        )?;
        self.buf.push(EntryKind::PutExpiring.code());
        codec::put_varint(&mut self.buf, u64::from(family.0));
        codec::put_varint(&mut self.buf, key.len() as u64);
        codec::put_varint(&mut self.buf, stored as u64);
        self.buf.extend_from_slice(key);
        self.buf.extend_from_slice(&expiry.encode());
        self.buf.extend_from_slice(value);
        self.count += 1;
        self.user_bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    /// Adds a delete.
    pub fn delete(&mut self, family: FamilyId, key: &[u8]) -> Result<()> {
        self.check_and_reserve(key, key.len() + 16)?;
        self.buf.push(EntryKind::Delete.code());
        codec::put_varint(&mut self.buf, u64::from(family.0));
        codec::put_bytes(&mut self.buf, key);
        self.count += 1;
        self.user_bytes += key.len() as u64;
        Ok(())
    }

    /// Adds a single delete.
    pub fn single_delete(&mut self, family: FamilyId, key: &[u8]) -> Result<()> {
        self.delete(family, key)?;
        let at = self.buf.len() - key.len() - codec::varint_len(key.len() as u64);
        let kind = &mut self.buf[at - codec::varint_len(u64::from(family.0)) - 1];
        check_slow!(*kind == EntryKind::Delete.code(), "the byte of the kind is replaced", kind);
        *kind = EntryKind::SingleDelete.code();
        Ok(())
    }

    /// Adds a merge operand.
    pub fn merge(&mut self, family: FamilyId, key: &[u8], operand: &[u8]) -> Result<()> {
        let at = self.buf.len().max(RECORD_HEADER_BYTES);
        self.put(family, key, operand)?;
        check_slow!(self.buf[at] == EntryKind::Put.code(), "the byte of the kind is replaced");
        self.buf[at] = EntryKind::Merge.code();
        Ok(())
    }

    /// Adds a delete of every key between two boundaries.
    pub fn delete_range(
        &mut self,
        family: FamilyId,
        begin: KeyBoundaryRef<'_>,
        end: KeyBoundaryRef<'_>,
    ) -> Result<()> {
        let (from, to) = (begin.encoded_bytes(), end.encoded_bytes());
        if from.max(to) > limits::KEY_BYTES_MAX + 1 {
            return Err(Error::invalid("a bound of the range is too long").expected(
                format_args!("at most {} bytes", limits::KEY_BYTES_MAX),
                from.max(to) - 1,
            ));
        }
        check_slow!(from >= 1 && to >= 1, "an encoded boundary has a code", from, to);
        self.check_and_reserve(&[], from + to + 16)?;
        self.buf.push(EntryKind::RangeDelete.code());
        codec::put_varint(&mut self.buf, u64::from(family.0));
        codec::put_varint(&mut self.buf, from as u64);
        codec::put_varint(&mut self.buf, to as u64);
        begin.encode(&mut self.buf);
        end.encode(&mut self.buf);
        self.count += 1;
        self.user_bytes += (from + to) as u64;
        Ok(())
    }

    /// Checks the limits and reserves memory, before the batch is changed.
    fn check_and_reserve(&mut self, key: &[u8], bytes: usize) -> Result<()> {
        if key.len() > limits::KEY_BYTES_MAX {
            return Err(Error::invalid("the key is too long")
                .expected(format_args!("at most {} bytes", limits::KEY_BYTES_MAX), key.len()));
        }
        if self.payload_bytes() + bytes > limits::BATCH_BYTES_MAX
            || self.count >= limits::BATCH_OPS_MAX
        {
            return Err(Error::invalid("the batch is too large: commit it and start another")
                .expected(
                    format_args!("at most {} bytes", limits::BATCH_BYTES_MAX),
                    self.payload_bytes() + bytes,
                ));
        }
        let header_bytes = if self.buf.is_empty() { RECORD_HEADER_BYTES } else { 0 };
        if bytes > 64 << 10 {
            self.buf.try_reserve(header_bytes + bytes + 8).map_err(|_| {
                Error::new(
                    perigee_base::ErrorKind::NoMemory,
                    format!("no memory for a batch of {bytes} bytes"),
                )
            })?;
        }
        self.buf.resize(self.buf.len() + header_bytes, 0);
        Ok(())
    }

    /// Returns the current position, for [`Batch::roll_back_to`].
    pub fn savepoint(&self) -> BatchSavepoint {
        BatchSavepoint { bytes: self.buf.len(), count: self.count, user_bytes: self.user_bytes }
    }
    /// Removes the operations added after a savepoint of this batch, in constant time.
    pub fn roll_back_to(&mut self, savepoint: BatchSavepoint) {
        check!(
            savepoint.bytes <= self.buf.len() && savepoint.count <= self.count,
            "a batch is rolled back to a state it has had",
            savepoint.bytes,
            savepoint.count
        );
        self.buf.truncate(savepoint.bytes);
        (self.count, self.user_bytes) = (savepoint.count, savepoint.user_bytes);
    }
    /// Returns the buffer that the ranges of its operations refer to.
    pub fn buf(&self) -> &[u8] {
        &self.buf
    }
    /// Iterates over the operations added after a savepoint.
    pub fn ops_since(&self, savepoint: BatchSavepoint) -> BatchOps<'_> {
        BatchOps::new(
            &self.buf,
            savepoint.bytes.max(RECORD_HEADER_BYTES).min(self.buf.len())..self.buf.len(),
        )
    }

    /// Returns the number of operations.
    pub fn count(&self) -> u32 {
        self.count
    }
    /// Returns the total bytes of keys and values.
    pub fn user_bytes(&self) -> u64 {
        self.user_bytes
    }
    /// Returns the payload size in bytes.
    pub fn payload_bytes(&self) -> usize {
        self.buf.len().saturating_sub(RECORD_HEADER_BYTES)
    }
    /// Removes all operations; keeps the allocated memory.
    pub fn clear(&mut self) {
        self.buf.truncate(RECORD_HEADER_BYTES);
        self.count = 0;
        self.user_bytes = 0;
    }

    /// Pads the payload and computes its checksum: the part of record encoding that does not depend
    /// on the position in the log.
    pub fn finish(self) -> EncodedRecord {
        let payload_bytes = self.payload_bytes();
        check!(
            payload_bytes <= limits::BATCH_BYTES_MAX && self.count <= limits::BATCH_OPS_MAX,
            "a batch fits in a record",
            payload_bytes,
            self.count
        );
        check_slow!(
            self.ops_since(BatchSavepoint::default()).filter(Result::is_ok).count()
                == self.count as usize,
            "the number of operations is that of the encoded ones",
            self.count
        );
        let mut buf = self.buf;
        layout::pad_payload(&mut buf, RECORD_HEADER_BYTES);
        let payload_checksum = checksum::payload_checksum(&buf[RECORD_HEADER_BYTES..]);
        let kind = RecordKind::Batch;
        EncodedRecord {
            kind,
            buf,
            payload_bytes: payload_bytes as u32,
            lsn_count: self.count,
            payload_checksum,
        }
    }
}

/// A record that is complete except for its header.
#[derive(Debug)]
pub struct EncodedRecord {
    /// Kind of the record.
    pub kind: RecordKind,
    /// Space for the header, then payload and padding.
    pub buf: Vec<u8>,
    /// Payload length without padding.
    pub payload_bytes: u32,
    /// Number of LSNs that the record occupies.
    pub lsn_count: u32,
    /// Checksum of payload and padding.
    pub payload_checksum: u64,
}

impl EncodedRecord {
    /// Builds a record with the given payload.
    pub fn from_payload(kind: RecordKind, payload: &[u8], count: u32) -> EncodedRecord {
        EncodedRecord::build_payload(kind, count, payload.len(), |buf| {
            buf.extend_from_slice(payload)
        })
    }
    /// Builds a record whose payload `fill` appends; `bytes` is the expected payload size.
    pub fn build_payload(
        kind: RecordKind,
        count: u32,
        bytes: usize,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> EncodedRecord {
        let mut buf = Vec::with_capacity(RECORD_HEADER_BYTES + padded_len(bytes));
        buf.resize(RECORD_HEADER_BYTES, 0);
        fill(&mut buf);
        check!(
            u32::try_from(buf.len()).is_ok(),
            "a record has a length of 32 bits",
            kind,
            buf.len()
        );
        let payload_bytes = (buf.len() - RECORD_HEADER_BYTES) as u32;
        layout::pad_payload(&mut buf, RECORD_HEADER_BYTES);
        let payload_checksum = checksum::payload_checksum(&buf[RECORD_HEADER_BYTES..]);
        EncodedRecord { kind, buf, payload_bytes, lsn_count: count, payload_checksum }
    }
    /// Returns the range of the payload in `buf`.
    pub fn payload_range(&self) -> Range<usize> {
        RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + self.payload_bytes as usize
    }
}

/// An operation: kind, column family, and the ranges of key and value in the buffer it was read
/// from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOp {
    /// Kind of the operation.
    pub kind: EntryKind,
    /// The column family.
    pub family: FamilyId,
    /// Range of the key.
    pub key: Range<usize>,
    /// Range of the stored value (empty for a delete).
    pub value: Range<usize>,
}

impl BatchOp {
    /// Returns the boundaries of a range delete; `None` for every other operation.
    pub fn deleted_range_in<'a>(
        &self,
        buf: &'a [u8],
    ) -> Option<(KeyBoundaryRef<'a>, KeyBoundaryRef<'a>)> {
        if self.kind != EntryKind::RangeDelete {
            return None;
        }
        let boundary = |r: &Range<usize>| KeyBoundaryRef::decode(&buf[r.clone()]).ok();
        boundary(&self.key).zip(boundary(&self.value))
    }
    /// Returns the length of the value as the user supplied it.
    pub fn user_value_bytes(&self) -> u64 {
        let expiry = if self.kind == EntryKind::PutExpiring { Expiry::BYTES } else { 0 };
        self.value.len().saturating_sub(expiry) as u64
    }
    /// Decodes the value; `buf` is the buffer that the operation was read from.
    pub fn value_in<'a>(&self, buf: &'a [u8]) -> Result<ValueRef<'a>> {
        ValueRef::decode(self.kind, &buf[self.value.clone()])
    }
}

/// Iterates over the operations of the payload `buf[range]`; their ranges are relative to `buf`.
#[derive(Clone, Debug)]
pub struct BatchOps<'a> {
    decoder: Decoder<'a>,
    base: usize,
}

impl<'a> BatchOps<'a> {
    /// Creates an iterator at the first operation.
    pub fn new(buf: &'a [u8], payload: Range<usize>) -> BatchOps<'a> {
        BatchOps { base: payload.start, decoder: Decoder::new(&buf[payload]) }
    }

    fn next_op(&mut self) -> Result<BatchOp> {
        let d = &mut self.decoder;
        let kind = EntryKind::decode(d.u8()?)?;
        let family = FamilyId(d.varint32()?);
        let key_bytes_max = limits::KEY_BYTES_MAX + usize::from(kind == EntryKind::RangeDelete);
        let key_len = check_len(d.varint()?, key_bytes_max, "key")?;
        let value_len = match kind {
            EntryKind::Put | EntryKind::Merge => {
                check_len(d.varint()?, limits::VALUE_BYTES_MAX, "value")?
            }
            EntryKind::Delete | EntryKind::SingleDelete => 0,
            EntryKind::RangeDelete => check_len(d.varint()?, key_bytes_max, "key")?,
            EntryKind::PutExpiring => check_expiring_value_len(d.varint()?)?,
            EntryKind::PutPointer | EntryKind::PointerExpiring | EntryKind::MergePointer => {
                return Err(Error::corruption("a value-log pointer inside a batch"));
            }
        };
        let key = self.base + d.position();
        let begin = d.take(key_len)?;
        let value = self.base + d.position();
        let end = d.take(value_len)?;
        if kind == EntryKind::RangeDelete {
            let _ = (KeyBoundaryRef::decode(begin)?, KeyBoundaryRef::decode(end)?);
        }
        Ok(BatchOp { kind, family, key: key..key + key_len, value: value..value + value_len })
    }
}

impl Iterator for BatchOps<'_> {
    type Item = Result<BatchOp>;
    fn next(&mut self) -> Option<Result<BatchOp>> {
        if self.decoder.is_empty() {
            return None;
        }
        let op = self.next_op();
        if op.is_err() {
            self.decoder = Decoder::new(&[]);
        }
        Some(op)
    }
}

/// Checks the length of a stored value that starts with its expiry time.
fn check_expiring_value_len(n: u64) -> Result<usize> {
    match n.checked_sub(Expiry::BYTES as u64) {
        Some(value) => Ok(check_len(value, limits::VALUE_BYTES_MAX, "value")? + Expiry::BYTES),
        None => {
            Err(Error::corruption("an expiring value in a batch is too short for its expiry time"))
        }
    }
}

fn check_len(n: u64, max: usize, what: &str) -> Result<usize> {
    if n > max as u64 {
        return Err(Error::corruption(format!("a {what} in a batch is too long"))
            .expected(format_args!("at most {max}"), n));
    }
    Ok(n as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{from_hex, hex_of_page};

    #[test]
    fn batch_matches_format_page_example() {
        let mut b = Batch::new();
        b.put(FamilyId(0), b"moon", b"tide").unwrap();
        b.delete(FamilyId(3), b"sun").unwrap();
        b.put_expiring(FamilyId(0), b"dew", b"wet", Expiry(1_800_000_000_000)).unwrap();
        b.single_delete(FamilyId(300), b"tide").unwrap();
        b.delete_range(FamilyId(0), KeyBoundaryRef::Before(b"a"), KeyBoundaryRef::Last).unwrap();
        b.merge(FamilyId(0), b"tides", &1i64.to_le_bytes()).unwrap();
        let f = b.finish();
        assert_eq!(
            &f.buf[f.payload_range()],
            from_hex(&hex_of_page(include_str!("../../../../docs/format/batch.md"), 0))
        );
        let ops: Vec<BatchOp> =
            BatchOps::new(&f.buf, f.payload_range()).map(|op| op.unwrap()).collect();
        assert_eq!(ops.len(), 6);
        assert_eq!(ops[5].value_in(&f.buf).unwrap(), ValueRef::Operand(&1i64.to_le_bytes()));
        assert_eq!((ops[3].kind, ops[3].family), (EntryKind::SingleDelete, FamilyId(300)));
        assert_eq!(
            ops[4].deleted_range_in(&f.buf),
            Some((KeyBoundaryRef::Before(b"a"), KeyBoundaryRef::Last))
        );
        assert_eq!(&f.buf[ops[0].key.clone()], b"moon");
        assert_eq!(&f.buf[ops[0].value.clone()], b"tide");
        assert_eq!((ops[1].kind, ops[1].family), (EntryKind::Delete, FamilyId(3)));
        assert_eq!(
            ops[2].value_in(&f.buf).unwrap(),
            ValueRef::InlineExpiring(b"wet", Expiry(1_800_000_000_000))
        );
    }

    #[test]
    fn oversized_ops_are_refused_without_effect() {
        let mut b = Batch::new();
        b.put(FamilyId(0), &vec![1; limits::KEY_BYTES_MAX], b"").unwrap();
        let before = b.payload_bytes();
        assert!(b.put(FamilyId(0), &vec![1; limits::KEY_BYTES_MAX + 1], b"").is_err());
        assert!(b.delete(FamilyId(0), &vec![1; limits::KEY_BYTES_MAX + 1]).is_err());
        assert_eq!((b.payload_bytes(), b.count()), (before, 1));
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        for n in 0..2000u64 {
            let bytes: Vec<u8> = (0..n % 40)
                .map(|i| (checksum::key_hash(&(n * 41 + i).to_le_bytes()) % 10) as u8)
                .collect();
            let _ = BatchOps::new(&bytes, 0..bytes.len()).count();
        }
    }
}
