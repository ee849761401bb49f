//! Log framing, for the write-ahead log and the manifest alike. See `docs/format/log.md`.
//!
//! This room seals and reads records. What a payload means, which segments exist and whether a bad
//! record is a torn end or damage is decided above, from what is reported here.

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
