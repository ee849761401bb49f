//! How much of the past is kept. Plain data.

use std::time::Duration;

/// How far back every version of every key is kept, for
/// [`Db::snapshot_at`](crate::Db::snapshot_at).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum History {
    /// Only what snapshots hold.
    #[default]
    None,
    /// What the last so many operations have written or hidden.
    Operations(u64),
    /// What was written or hidden in so much time, while the database was open.
    Time(Duration),
}
