//! Log framing, shared by the write-ahead log and the manifest. See `docs/format/log.md`.
//!
//! This module encodes and reads records. The meaning of payloads, the list of segments, and the
//! decision whether a bad record is a torn end or damage belong to the layers above, which use what
//! is reported here.

pub mod layout;
pub mod batch;
pub mod prepare;
pub mod writer;
pub mod reader;

pub use batch::{Batch, BatchOp, BatchOps, BatchSavepoint};
pub use layout::{RecordHeader, RecordKind};
pub use prepare::{ClaimTarget, PrepareHeader, PrepareRecord, PreparedClaim};
pub use reader::{BadLogRecord, LogReader, LogRecord, NextLogRecord, RecordsAfterBad};
pub use writer::{LogWriter, RecordStamp};

#[cfg(test)]
mod tests;
