//! What a repair found and lost. Plain data.

use perigee_base::Error;

/// A piece that could not be read.
#[derive(Clone, Debug)]
pub struct LostRange {
    /// The file.
    pub file: String,
    /// Where in it, if it is not the whole file.
    pub offset: Option<u64>,
    /// How many bytes, where that is known.
    pub bytes: Option<u64>,
    /// The family, where that is known.
    pub family: Option<String>,
    /// No key before this one was lost here, where that is known.
    pub first_key: Option<Vec<u8>>,
    /// No key behind this one was lost here, where that is known.
    pub last_key: Option<Vec<u8>>,
    /// How many entries, where that is known.
    pub entries: Option<u64>,
    /// First and last sequence number of the operations that were lost here, where they are known:
    /// at the end of a log that was not closed more may have been lost than anything proves, and
    /// then there is no last one.
    pub sequences: Option<(u64, Option<u64>)>,
    /// What is wrong.
    pub error: Error,
}

impl LostRange {
    /// Damage to a file, at the place that the error names; the rest is not known.
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

/// What was made.
#[derive(Clone, Debug, Default)]
pub struct RepairSummary {
    /// Families and the entries that each has now.
    pub families: Vec<(String, u64)>,
    /// Tables read.
    pub tables: u64,
    /// Entries found in them, all versions.
    pub entries_found: u64,
    /// Log records read.
    pub records: u64,
    /// The last operation found.
    pub last_seq: u64,
    /// Everything that could not be read.
    pub lost: Vec<LostRange>,
    /// What follows from it.
    pub warnings: Vec<String>,
}

impl RepairSummary {
    /// Adds a sentence once.
    pub fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    /// Adds a whole file, or a place in it.
    pub fn add_lost_file(&mut self, file: &str, family: Option<&str>, why: Error) {
        self.add_lost_range(LostRange {
            family: family.map(str::to_owned),
            ..LostRange::new(file, why)
        });
    }

    /// Adds a loss, and the warning that follows from it.
    pub fn add_lost_range(&mut self, loss: LostRange) {
        self.warn(
            "lost entries may have replaced or deleted others: older versions, and keys that had been deleted, may have \
             come back",
        );
        self.lost.push(loss);
    }
}
