//! Log framing, shared by the write-ahead log and the manifest. See `docs/format/log.md`.
//!
//! This module encodes and reads records. The meaning of payloads, the list of segments, and the
//! decision whether a bad record is a torn end or damage belong to the layers above, which use what
//! is reported here.

mod layout;
mod batch;
mod prepare;
mod writer;
mod reader;

pub use batch::{Batch, BatchOp, BatchOps, BatchSavepoint, EncodedRecord};
pub use layout::{
    ALIGNMENT, RECORD_HEADER_BYTES, RECORD_MAGIC, RecordHeader, RecordKind, checksum_seed,
    padded_len,
};
pub use prepare::{
    ClaimTarget, PrepareHeader, PrepareRecord, PreparedClaim, check_gid, decode_decision,
    encode_decision, encode_prepare, ops_payload_range, record_lsn_count,
};
pub use reader::{LogReader, LogRecord, NextLogRecord};
pub use writer::{LogWriter, RecordStamp};

#[cfg(test)]
mod tests;
