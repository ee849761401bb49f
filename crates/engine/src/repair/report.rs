//! The report of a repair, what was found and lost: plain data, part of the public interface of
//! `perigee`.

use perigee_base::Error;

/// Sequence numbers of lost operations.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostSequences {
    /// The first.
    pub first: u64,
    /// The last; `None` at the end of a log that was not closed cleanly: an unknown number of
    /// operations may be missing there.
    pub last: Option<u64>,
}

/// A part of a file, or a whole file, that could not be read.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DataLoss {
    /// File name.
    pub file: String,
    /// Offset of the unreadable part; `None`: the whole file.
    pub offset: Option<u64>,
    /// Length of the unreadable part in bytes, if known.
    pub bytes: Option<u64>,
    /// The column family, if known.
    pub family: Option<String>,
    /// Lower bound (inclusive) of the lost keys; `None`: unknown or unbounded.
    pub first_key: Option<Vec<u8>>,
    /// Upper bound (inclusive) of the lost keys; `None`: unknown or unbounded.
    pub last_key: Option<Vec<u8>>,
    /// Number of lost entries, if known.
    pub entries: Option<u64>,
    /// Sequence numbers of the lost operations, if known.
    pub sequences: Option<LostSequences>,
    /// The error.
    pub error: Error,
}

impl DataLoss {
    /// Creates a loss at the offset of the error; everything else is unknown.
    pub fn new(file: &str, why: Error) -> DataLoss {
        DataLoss {
            file: file.to_owned(),
            offset: why.offset(),
            bytes: None,
            family: None,
            first_key: None,
            last_key: None,
            entries: None,
            sequences: None,
            error: why,
        }
    }
}

/// A column family of a repaired database.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairedFamily {
    /// Its name.
    pub name: String,
    /// Number of its entries.
    pub entries: u64,
}

/// Result of `perigee::repair`.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// Column families of the new database.
    pub families: Vec<RepairedFamily>,
    /// Number of tables read.
    pub tables: u64,
    /// Number of entries found in tables, counting all versions.
    pub entries_found: u64,
    /// Number of log records read.
    pub log_records: u64,
    /// Sequence number of the last operation found.
    pub sequence: u64,
    /// Everything that could not be read; empty for an undamaged database.
    pub lost: Vec<DataLoss>,
    /// Consequences as text, in particular whether overwritten versions or deleted keys may have
    /// reappeared.
    pub warnings: Vec<String>,
}

impl RepairReport {
    /// Adds a warning once.
    pub fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    /// Adds the loss of a file, or of the part of it named by the error.
    pub fn add_lost_file(&mut self, file: &str, family: Option<&str>, why: Error) {
        self.add_lost_range(DataLoss {
            family: family.map(str::to_owned),
            ..DataLoss::new(file, why)
        });
    }

    /// Adds a loss, and the warning about its consequences.
    pub fn add_lost_range(&mut self, loss: DataLoss) {
        self.warn(
            "lost entries may have replaced or deleted others: older versions and deleted keys \
             may have come back",
        );
        self.lost.push(loss);
    }
}
