//! The isolation levels, with their text form and their codes in files. How they are enforced is
//! defined elsewhere.

use perigee_base::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// Isolation levels, weakest first. `docs/transactions.md` lists the anomalies that each permits,
/// and when to choose which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isolation {
    /// Same as [`Isolation::ReadCommitted`]: uncommitted writes of others are never visible.
    ReadUncommitted,
    /// Each read sees what is committed when it starts. A commit never conflicts.
    ReadCommitted,
    /// All reads see what was committed when the transaction began. The commit conflicts if another
    /// commit has since changed a key that this transaction wrote, or read with a get.
    RepeatableRead,
    /// All reads see what was committed when the transaction began. The commit conflicts if another
    /// commit has since changed a key that this transaction wrote: the first committer wins.
    #[default]
    Snapshot,
    /// Equivalent to running the transactions one after the other, in an order that agrees with
    /// real time. Gets and scanned ranges are tracked. There are no anomalies, but some commits
    /// fail with a false conflict.
    Serializable,
}

impl Isolation {
    /// All levels, weakest first.
    pub const ALL: [Isolation; 5] = [
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Snapshot,
        Isolation::Serializable,
    ];
    /// Returns its name as written in an options file.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::ReadUncommitted => "read uncommitted",
            Isolation::ReadCommitted => "read committed",
            Isolation::RepeatableRead => "repeatable read",
            Isolation::Snapshot => "snapshot",
            Isolation::Serializable => "serializable",
        }
    }
    /// Returns its code in files.
    #[doc(hidden)]
    pub fn code(self) -> u8 {
        match self {
            Isolation::ReadUncommitted => 0,
            Isolation::ReadCommitted => 1,
            Isolation::RepeatableRead => 2,
            Isolation::Snapshot => 3,
            Isolation::Serializable => 4,
        }
    }
    /// Returns the level with this code.
    #[doc(hidden)]
    pub fn decode(code: u8) -> Option<Isolation> {
        Isolation::ALL.into_iter().find(|level| level.code() == code)
    }
    /// Returns true if all reads see the snapshot taken at the beginning of the transaction.
    pub(crate) fn uses_snapshot(self) -> bool {
        self >= Isolation::RepeatableRead
    }
    /// Returns true if keys that were read must not have changed at commit.
    pub(crate) fn checks_reads(self) -> bool {
        self == Isolation::RepeatableRead
    }
}

/// Formats as [`Isolation::name`].
impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Parses a name.
///
/// ```
/// # use perigee_engine::Isolation;
/// assert_eq!("repeatable read".parse::<Isolation>()?, Isolation::RepeatableRead);
/// assert_eq!(Isolation::Serializable.to_string(), "serializable");
/// # Ok::<(), perigee_engine::Error>(())
/// ```
impl FromStr for Isolation {
    type Err = Error;
    fn from_str(text: &str) -> Result<Isolation> {
        let level = Isolation::ALL.into_iter().find(|level| level.name() == text.trim());
        level.ok_or_else(|| {
            let names = Isolation::ALL.map(|level| format!("{:?}", level.name()));
            Error::invalid(format!("{text:?} is not one of {}", names.join(", ")))
        })
    }
}
