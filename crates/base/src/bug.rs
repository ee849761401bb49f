//! Seeded bugs: deliberate mistakes that a harness must detect. They prove that its checks can
//! fail.
//!
//! They exist only with the feature `bugs`, which only `perigee-sim` enables. Without it
//! [`is_active`] is constant `false` and the compiler removes the guarded code.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static ACTIVE: AtomicU32 = AtomicU32::new(0);

macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $name:ident = $n:literal,)+) => {
        /// A bug that can be activated.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Bug { $($(#[doc = $doc])+ $name = $n,)+ }

        /// All bugs: the bug, its name and its description.
        pub const ALL: &[(Bug, &str, &str)] =
            &[$((Bug::$name, stringify!($name), concat!($($doc),+)),)+];
    };
}

bugs! {
    /// A commit in `Full` mode is acknowledged without a sync of the log.
    SkipWalSync = 1,
    /// The directory is not synced after a log segment is created.
    SkipDirSync = 2,
    /// Recovery truncates the log at the first bad record even if later records prove that it was
    /// durable.
    TruncateDamagedLog = 3,
    /// Checksums of log payloads are not verified.
    IgnoreLogChecksum = 4,
    /// Checksums of blocks are not verified.
    IgnoreBlockChecksum = 5,
    /// A checkpoint is renamed to its final name before its directory entries are durable.
    CheckpointSkipsDirSync = 70,
    /// Pruning a backup removes files that retained generations need.
    PruneDropsShared = 71,
    /// A read-only open truncates the torn end of the log.
    ReadOnlyTruncatesLog = 72,
    /// Repair uses entries from a block whose checksum does not match.
    RepairUsesBadBlock = 73,
    /// The log segment is removed before the manifest edit of its flush is durable.
    RemoveLogEarly = 6,
    /// A flush is installed before the preceding log is durable: column families disagree after a
    /// power failure.
    FlushBeforeLogSync = 7,
    /// Compaction drops tombstones above the bottom level: deleted keys reappear.
    DropTombstoneEarly = 8,
    /// Compaction ignores snapshots when it drops older versions.
    IgnoreSnapshots = 9,
    /// Further records are appended after a failed log append, which leaves a hole.
    AppendAfterFailure = 10,
    /// A failed sync is retried and its success is trusted.
    RetryFailedSync = 11,
    /// Recovery ignores the second of two log segments.
    ReplayFirstSegmentOnly = 12,
    /// Level 0 runs are searched oldest first after a reopen.
    WrongRunOrder = 13,
    /// An iterator that changes direction skips an entry.
    SkipOnDirectionChange = 14,
    /// A failed read is reported as "not found".
    ErrorIsNotFound = 15,
    /// A table file is not synced before the manifest references it.
    SkipTableSync = 16,
    /// Recovery removes files that a damaged manifest does not reference before it checks the
    /// manifest.
    DeleteUnknownFiles = 17,
    /// The first half of a batch becomes visible before the second.
    PublishEarly = 18,
    /// Operations of a dropped column family are replayed into a later column family of the same
    /// name.
    ReplayDroppedFamily = 19,
    /// A rewrite drops one entry in fifty and counts it as hidden by a newer version.
    LoseLastEntry = 20,
    /// Index separators are shortened bytewise under every comparator.
    ShortSeparator = 120,
    /// Filters hash the key as written, not its canonical form.
    FilterHashesRawKey = 121,
    /// A compaction treats keys that compare equal but differ in bytes as different keys: old
    /// versions reappear.
    CollapseByBytes = 122,
    /// Clearing a column family does not record the log position up to which it is cleared: replay
    /// restores the contents.
    ClearReplays = 41,
    /// Files dropped from one column family are deleted although a clone still references them.
    DropDeletesShared = 42,
    /// A clone contains only the tables, not the memtables.
    CloneOmitsMemtables = 43,
    /// A rename is applied in memory and not written to the manifest.
    RenameInMemory = 44,
    /// A get whose newest version is expired returns an older version.
    ExpiredExposesOlderVersion = 30,
    /// Compaction drops expired entries although the clock has just jumped forward.
    ExpireDespiteClockJump = 31,
    /// At the end of an output table, the rest of a range tombstone that extends past it is lost.
    RangeLostAtTableEnd = 32,
    /// A single delete is dropped above the bottom level before it has met its put.
    SingleDeleteLost = 33,
    /// A range tombstone hides newer entries from scans.
    RangeCoversNewer = 34,
    /// Tables inside a range tombstone are dropped although a snapshot still reads them.
    DropTableIgnoresSnapshot = 35,
    /// Compaction zeros sequence numbers that a snapshot still needs to distinguish entries.
    BottomSeqUnderSnapshot = 38,
    /// Compaction drops range tombstones above the bottom level.
    DropRangeTombstoneEarly = 36,
    /// A backward scan that leaves a deleted key range lands one key too far.
    ReverseScanOvershoots = 37,
    /// A cancelled compaction installs its partial output, and its inputs are removed.
    InstallCancelled = 60,
    /// A manual compaction of a key range leaves behind tables of older runs that extend past the
    /// range: old versions reappear.
    NarrowManualRange = 61,
    /// A multi-get returns results in key order instead of the caller's order.
    MultiGetResultsSorted = 140,
    /// The manifest references a bulk load before the directory entries of its files are durable.
    LoadBeforeDirSync = 141,
    /// Loaded tables keep the sequence numbers in their files instead of getting the sequence
    /// number of the load.
    LoadWithoutSeqNo = 142,
    /// A load is installed below memtables that hold older versions of its keys.
    LoadUnderMemtables = 143,
    /// If a load contains a key twice, the first value wins.
    LoadFirstWins = 144,
    /// The compaction filter is applied to versions that a snapshot sees.
    FilterUnderSnapshot = 145,
    /// The change feed delivers changes that are not durable yet.
    FeedAheadOfSync = 170,
    /// The change feed loses the last operation of longer commits.
    FeedSkipsEnd = 171,
    /// The oldest readable sequence number is not raised when a compaction drops versions: sequence
    /// numbers count as readable that are not.
    OldestReadableNotRaised = 172,
    /// A named snapshot is lost at the next open: compaction drops the versions that it pins.
    LoseNamedSnapshot = 173,
    /// A transaction larger than memory is not checked for conflicts with commits made while its
    /// tables were written.
    SpilledUnchecked = 200,
    /// Operations that a transaction larger than memory has rolled back stay in its tables.
    SpilledNotRolledBack = 201,
    /// Operands are merged across a snapshot that sees only the older ones.
    MergeAcrossSnapshot = 150,
    /// A reader uses operands that another one has combined although some are too new for it.
    CombinedOperandsUnderSnapshot = 153,
    /// A read uses only the newest operand of a key in each memtable or table.
    OneOperandPerSource = 151,
    /// Recovery replays operands that tables already contain: they are applied twice.
    ReplayFlushedOperands = 152,
    /// Prepare is acknowledged before its log record is synced.
    PrepareNotSynced = 160,
    /// The commit or rollback of a prepared transaction is acknowledged without a sync.
    DecisionNotSynced = 161,
    /// A log segment is removed although it holds the only record of a prepared transaction.
    PrepareLostWithSegment = 162,
    /// Writers do not check for conflicts with prepared transactions.
    WriterIgnoresPrepared = 163,
    /// A serializable transaction is prepared although keys it has read were overwritten.
    PrepareOverwritten = 164,
    /// A log segment with the record of a prepared transaction is removed although the decision
    /// about it is not synced.
    DecisionLostWithSegment = 165,
    /// The tables of prepared transactions are orphans: an open moves them to the trash.
    PreparedTablesOrphaned = 166,
    /// The edit that commits a prepared transaction does not add its tables.
    DecisionForgetsTables = 167,
    /// A transaction is prepared before the directory entries of its tables are durable.
    PreparedBeforeDirSync = 168,
    /// Writers do not search the tables of prepared transactions for conflicts.
    WriterIgnoresPreparedTables = 169,
    /// Replay loses the operations of a commit on the last of its column families.
    LosePartOfCommit = 180,
    /// Commits made while a transaction is validated are treated as already checked.
    StaleConditions = 181,
    /// The conflict check in the commit critical section is skipped.
    SkipLastCheck = 182,
    /// A transaction starts at the snapshot just before the last commit.
    StaleSnapshot = 183,
    /// A cursor does not see the writes of its own transaction.
    CursorMissesOwnWrites = 184,
    /// Writes after a savepoint are committed although they were rolled back.
    SavepointNotRolledBack = 185,
    /// Key ranges scanned by serializable transactions are not tracked.
    RangeNotTracked = 186,
    /// A serializable transaction declared read-only is not considered in the detection of
    /// dangerous structures.
    ReadOnlyTxnIgnored = 187,
    /// A shared lock is upgraded to exclusive although other transactions share it.
    UpgradeIgnoresHolder = 188,
    /// A waiter for a lock is not woken when the lock is released.
    WaiterNotWoken = 189,
    /// The tree of range locks does not know the ends of the ranges below a node: some of the
    /// ranges that contain a key are not found.
    RangeLockHidden = 191,
    /// Locks taken after a savepoint are kept when the transaction rolls back to it.
    RollbackKeepsLock = 190,
    /// A read-only open does not read the manifest again after replay: loads and clears are missing
    /// below later commits.
    ReaderSkipsManifestCheck = 300,
    /// A read-only open reads the whole manifest again when a file has vanished before it could be
    /// opened: beside a busy writer it gives up.
    ReaderRereadsManifest = 301,
    /// Repair does not compare the log with the durable position and the clean-close record in the
    /// manifest.
    RepairIgnoresCleanClose = 310,
    /// A salvaging reader applies a tombstone although the lost part of the log may contain a newer
    /// put.
    SalvageTrustsTombstone = 311,
    /// Zeros at the end of a log are treated as preallocated space although the durable position in
    /// the manifest lies beyond them.
    ZerosBelowWatermarkAccepted = 312,
    /// The durable position in the manifest covers bytes written to the log but not synced: after a
    /// power failure, open refuses the log.
    WatermarkAheadOfSync = 313,
    /// Recovery replays the whole log into memtables regardless of the memory budget.
    ReplayIgnoresMemoryBudget = 320,
    /// Flushes during recovery remove log segments that have not been replayed yet.
    ReplayRemovesLogEarly = 321,
    /// Recovery keeps log segments whose end may never have been synced, instead of copying that
    /// end.
    KeepUnsyncedLog = 322,
    /// Recovery copies the whole log even if the disk is full.
    FullDiskCopiesLog = 323,
    /// A read-only open ends at the sequence number of a load or clear that it does not show: a
    /// change feed that starts there misses it.
    ReaderKeepsPendingSeqNo = 302,
    /// A read-only open trusts the end of a log segment that a concurrent open for writing has
    /// truncated.
    ReaderTrustsTruncatedLog = 303,
    /// A directory of another program is opened as an empty database.
    ForeignFilesIgnored = 350,
    /// Due commit hooks run on whichever thread commits next.
    HooksOnAnyThread = 351,
    /// The events of a bulk load into several column families share one sequence number: a change
    /// feed reopened between them delivers events twice.
    LoadEventsShareSeqNo = 330,
    /// A file open that fails with too many open files is not retried after closing idle files.
    NoFilesReclaimed = 331,
    /// Closing the database leaves its files open as long as a handle exists.
    CloseKeepsFiles = 332,
    /// A compaction that was cancelled, and resumed before it ended, is reported as failed.
    ResumedIsFailure = 333,
    /// Unwritten space at the end of an encrypted log counts as a part of the log.
    UnwrittenSpaceIsLog = 360,
    /// After a rollback, an encrypted log continues with a new keystream that its header does not
    /// record.
    GenerationNotRecorded = 361,
}

/// Activates one bug (or none) for the whole process.
pub fn activate(bug: Option<Bug>) {
    ACTIVE.store(bug.map_or(0, |b| b as u32), Relaxed);
}

/// Evaluates `right`, or `wrong` while the bug is active: a seeded bug stands where the mistake
/// would be made, and the checks that should detect it are not changed.
#[macro_export]
macro_rules! seeded {
    ($bug:ident, $right:expr, $wrong:expr) => {
        if $crate::bug::is_active($crate::bug::Bug::$bug) { $wrong } else { $right }
    };
}
/// Returns true if `bug` is active.
#[inline]
pub fn is_active(bug: Bug) -> bool {
    cfg!(feature = "bugs") && ACTIVE.load(Relaxed) == bug as u32
}
