//! Counts of a rewrite: entries read, written, and dropped by reason.

/// Reason for which a rewrite drops an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// A newer version hides it from every reader, or it is a copy of a newer version.
    Shadowed,
    /// A tombstone that hides nothing any more.
    ObsoleteTombstone,
    /// An expired entry that hides nothing.
    Expired,
    /// The compaction filter drops it, and it hides nothing.
    Filtered,
    /// A range tombstone hides it from every reader.
    Covered,
    /// A single delete, or the put that it cancels.
    Cancelled,
    /// The transaction that wrote it has rolled it back.
    RolledBack,
    /// It became part of another entry: an operand, or the base below operands.
    Merged,
}

/// Counts of range tombstones, one per fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeTombstoneCounts {
    /// Range tombstones of the source; of a memtable only the newest of each snapshot stripe.
    pub read: u64,
    /// Hidden by a newer range tombstone.
    pub shadowed: u64,
    /// Range tombstones that no longer hide anything.
    pub obsolete: u64,
}

/// Entries read, written, and dropped by reason: `read = written + shadowed + obsolete_tombstones +
/// expired + covered + cancelled + filtered + merged + rolled_back`. Range tombstones are counted
/// separately, once per fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RewriteCounts {
    /// Entries of the source.
    pub read: u64,
    /// Entries written.
    pub written: u64,
    /// Dropped because a newer version hides them.
    pub shadowed: u64,
    /// Tombstones dropped because they hide nothing any more.
    pub obsolete_tombstones: u64,
    /// Expired entries dropped because they hide nothing.
    pub expired: u64,
    /// Entries dropped by the user's filter that hide nothing.
    pub filtered: u64,
    /// Of those written: expired entries converted to tombstones.
    pub expired_to_tombstones: u64,
    /// Of those written: entries of blocks that were copied as stored.
    pub passed_through: u64,
    /// Entries dropped because a range tombstone hides them. (Of a long sequence most are not read
    /// at all, and not counted anywhere.)
    pub covered: u64,
    /// Single deletes, and the puts that they cancelled.
    pub cancelled: u64,
    /// Entries rolled back by the transaction that wrote them.
    pub rolled_back: u64,
    /// Operands, and bases below them, that became part of another entry.
    pub merged: u64,
    /// Of those written: operands that could not be merged with what is known of their base.
    pub unmerged: u64,
    /// Range tombstones.
    pub range_tombstones: RangeTombstoneCounts,
}

impl RewriteCounts {
    /// Adds `entries` dropped for `reason`.
    pub fn add_dropped(&mut self, reason: DropReason, entries: u64) {
        let count = match reason {
            DropReason::Shadowed => &mut self.shadowed,
            DropReason::ObsoleteTombstone => &mut self.obsolete_tombstones,
            DropReason::Expired => &mut self.expired,
            DropReason::Filtered => &mut self.filtered,
            DropReason::Covered => &mut self.covered,
            DropReason::Cancelled => &mut self.cancelled,
            DropReason::RolledBack => &mut self.rolled_back,
            DropReason::Merged => &mut self.merged,
        };
        *count += entries;
    }
    /// Entries dropped, for any reason.
    pub fn dropped(&self) -> u64 {
        self.shadowed
            + self.obsolete_tombstones
            + self.expired
            + self.filtered
            + self.covered
            + self.cancelled
            + self.rolled_back
            + self.merged
    }
}
