//! The report of a repair: what was found and lost. Plain data.

use perigee_base::{Error, SeqNo};

/// The sequence numbers of lost operations.
#[derive(Clone, Copy, Debug)]
pub struct LostSeqs {
    /// The first.
    pub first: SeqNo,
    /// The last, if known.
    pub last: Option<SeqNo>,
}

/// A part of a file that could not be read.
#[derive(Clone, Debug)]
pub struct LostRange {
    /// File name.
    pub file: String,
    /// Offset in the file, unless the whole file is lost.
    pub offset: Option<u64>,
    /// Number of bytes, if known.
    pub bytes: Option<u64>,
    /// The column family, if known.
    pub family: Option<String>,
    /// Lower bound of the lost keys, if known.
    pub first_key: Option<Vec<u8>>,
    /// Upper bound of the lost keys, if known.
    pub last_key: Option<Vec<u8>>,
    /// Number of lost entries, if known.
    pub entries: Option<u64>,
    /// First and last sequence number of the lost operations, if known. At the end of a log that
    /// was not closed cleanly, more may have been lost than is proven; then there is no last one.
    pub sequences: Option<LostSeqs>,
    /// The reason.
    pub error: Error,
}

impl LostRange {
    /// Creates a loss at the offset of the error; everything else is unknown.
    pub fn new(file: &str, why: Error) -> LostRange {
        LostRange {
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

/// Summary of a repair.
#[derive(Clone, Debug, Default)]
pub struct RepairSummary {
    /// Column families, with the number of entries in the new database.
    pub families: Vec<(String, u64)>,
    /// Tables read.
    pub tables: u64,
    /// Entries found in them, all versions.
    pub entries_found: u64,
    /// Number of log records read.
    pub records: u64,
    /// Sequence number of the last operation found.
    pub last_seq: SeqNo,
    /// Everything that could not be read.
    pub lost: Vec<LostRange>,
    /// Consequences of the losses.
    pub warnings: Vec<String>,
}

impl RepairSummary {
    /// Adds a warning once.
    pub fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    /// Adds the loss of a file, or of the part of it named by the error.
    pub fn add_lost_file(&mut self, file: &str, family: Option<&str>, why: Error) {
        self.add_lost_range(LostRange {
            family: family.map(str::to_owned),
            ..LostRange::new(file, why)
        });
    }

    /// Adds a loss, and the warning about its consequences.
    pub fn add_lost_range(&mut self, loss: LostRange) {
        self.warn(
            "lost entries may have replaced or deleted others: older versions and deleted keys \
             may have come back",
        );
        self.lost.push(loss);
    }
}
