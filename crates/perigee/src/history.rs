//! Retention of old versions. Plain data.

use std::time::Duration;

/// How far back old versions are kept, so that [`Db::snapshot_at`](crate::Db::snapshot_at) can read
/// past states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum History {
    /// Keeps only the versions that snapshots need.
    #[default]
    None,
    /// Keeps the versions written or overwritten by the last `n` operations.
    Operations(u64),
    /// Keeps the versions written or overwritten within this time, counted while the database is
    /// open.
    Time(Duration),
}
