//! Seeded bugs: deliberate mistakes that a harness must catch, so that no test is one that cannot
//! fail.
//!
//! They exist only with the feature `bugs`, which `perigee-sim` alone turns on. Without it [`on`]
//! is a constant `false` and the code behind it is gone.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static ACTIVE: AtomicU32 = AtomicU32::new(0);

macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $name:ident = $n:literal,)+) => {
        /// A mistake that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Bug { $($(#[doc = $doc])+ $name = $n,)+ }

        /// Every bug: itself, its name, what it breaks.
        pub const ALL: &[(Bug, &str, &str)] = &[$((Bug::$name, stringify!($name), concat!($($doc),+)),)+];
    };
}

bugs! {
    /// A commit in `Full` mode is acknowledged without a sync of the log.
    SkipWalSync = 1,
    /// The directory is not synced after a log segment was created.
    SkipDirSync = 2,
    /// Recovery truncates at the first bad record even where later records prove that it was
    /// durable.
    TruncateDamagedLog = 3,
    /// Checksums of log payloads are not compared.
    IgnoreLogChecksum = 4,
    /// Checksums of blocks are not compared.
    IgnoreBlockChecksum = 5,
    /// A checkpoint is renamed into place although the names in it are not durable.
    CheckpointSkipsDirSync = 70,
    /// Pruning a backup removes files that kept generations need.
    PruneDropsShared = 71,
    /// A read-only open cuts the torn end off the log.
    ReadOnlyCutsLog = 72,
    /// Repair takes entries from a block whose checksum differs.
    RepairTakesBadBlock = 73,
    /// The log segment is removed before the manifest edit of its flush is durable.
    RemoveLogEarly = 6,
    /// A flush is installed although the log before it is not durable: families disagree after a
    /// power cut.
    FlushBeforeLogSync = 7,
    /// Compaction drops tombstones above the bottom: deleted keys come back.
    DropTombstoneEarly = 8,
    /// Compaction ignores snapshots when it drops older versions.
    IgnoreSnapshots = 9,
    /// A failed log append is followed by further appends behind the hole.
    AppendAfterFailure = 10,
    /// A failed sync is tried again and then believed.
    RetryFailedSync = 11,
    /// Recovery forgets what the second of two log segments holds.
    ReplayFirstSegmentOnly = 12,
    /// Level 0 runs are searched oldest first after reopen.
    WrongRunOrder = 13,
    /// An iterator that turns round skips an entry.
    SkipOnTurn = 14,
    /// A read that fails is answered with "not found".
    ErrorIsNotFound = 15,
    /// The table file is not synced before the manifest names it.
    SkipTableSync = 16,
    /// Recovery removes files that the (damaged) manifest does not name before checking it.
    DeleteUnknownFiles = 17,
    /// Half of a batch is made visible before the other half.
    PublishEarly = 18,
    /// A dropped family's operations in the log are replayed into the next family of that name.
    ReplayDroppedFamily = 19,
    /// One entry of fifty is lost on its way into a table.
    LoseLastEntry = 20,
    /// Separators are shortened as bytes under every key order.
    ShortSeparator = 120,
    /// Filters hash a key as it was written, not its canonical form.
    FilterHashesRawKey = 121,
    /// A rewrite takes keys for different that only differ in bytes, not in their order: old
    /// versions come back.
    CollapseByBytes = 122,
    /// Clearing a family does not note how far the log is spent: replay brings the contents back.
    ClearReplays = 41,
    /// Files that go from one family are deleted although a clone still names them.
    DropDeletesShared = 42,
    /// A clone is made of the tables alone, without what is still in memory.
    CloneForgetsMemtable = 43,
    /// A rename is done in memory and never reaches the manifest.
    RenameInMemory = 44,
    /// A get that meets an expired newest version goes on to an older one.
    ExpiredFallsThrough = 30,
    /// Compaction destroys expired entries although the clock has just jumped forward.
    ExpireDespiteJump = 31,
    /// At the end of a table, the rest of a range tombstone that reaches over it is lost.
    RangeLostAtCut = 32,
    /// A single delete is dropped above the bottom before it met its put.
    SingleDeleteLost = 33,
    /// A range tombstone hides entries that are newer than it from scans.
    RangeCoversNewer = 34,
    /// Whole tables inside a range tombstone are dropped although a snapshot still reads them.
    DropTableIgnoresSnapshot = 35,
    /// Compaction forgets numbers that a snapshot still tells entries by.
    SettleUnderSnapshot = 38,
    /// Compaction drops range tombstones above the bottom.
    DropRangeEarly = 36,
    /// A scan that leaves a deleted stretch backward lands one key too far.
    LeaveTooFar = 37,
    /// A compaction that is cancelled installs what it has so far, and its inputs are gone.
    InstallCancelled = 60,
    /// A compaction of a range leaves behind older runs' tables that reach out of it: old versions
    /// come back.
    NarrowManualRange = 61,
    /// A multi-get answers in key order instead of the caller's.
    SortedAnswers = 140,
    /// A load is named by the manifest before its files' names are durable.
    LoadBeforeDirSync = 141,
    /// Loaded tables keep the numbers of their files instead of getting the sequence number of the
    /// load.
    LoadWithoutNumber = 142,
    /// A load is installed beneath memtables that hold older versions of its keys.
    LoadUnderMemtables = 143,
    /// Of a key given twice to a load, the first value wins.
    LoadFirstWins = 144,
    /// The compaction filter is asked about versions that a snapshot sees.
    FilterUnderSnapshot = 145,
    /// The feed of changes tells what is not durable yet.
    FeedAheadOfSync = 170,
    /// The feed of changes loses the last operation of longer commits.
    FeedSkipsEnd = 171,
    /// What a rewrite may drop is not noted: numbers pass for readable that are not.
    FloorStays = 172,
    /// A named snapshot is forgotten by the next open: compaction drops what it holds.
    ForgetNamedSnapshot = 173,
    /// A transaction larger than memory is not checked against what came while its tables were
    /// made.
    SpilledUnchecked = 200,
    /// What such a transaction has taken back stays in its tables.
    SpilledNotTakenBack = 201,
    /// Operands are joined although a snapshot sees only the older ones.
    FoldAcrossSnapshot = 150,
    /// A read takes the newest operand of a memtable or table for all that it has of the key.
    OneOperandPerSource = 151,
    /// Recovery replays operands that are in tables already: they are applied twice.
    ReplayFlushedOperands = 152,
    /// A prepared transaction is answered for although its record is not synced.
    PrepareNotSynced = 160,
    /// A decision over a prepared transaction is acknowledged without a sync.
    DecisionNotSynced = 161,
    /// A log segment goes although it holds the only record of a prepared transaction.
    PrepareLostWithSegment = 162,
    /// Writers do not look at prepared transactions.
    WriterPassesPrepared = 163,
    /// A serializable transaction is prepared although what it read was overwritten.
    PrepareOverwritten = 164,
    /// Replay loses what a commit wrote to the last of its families.
    LosePartOfCommit = 180,
    /// What was committed while a transaction was checked is taken for checked.
    StaleConditions = 181,
    /// The check in the commit section is left out.
    SkipLastCheck = 182,
    /// A transaction begins on a moment just before the last commit.
    StaleSnapshot = 183,
    /// A cursor does not see what its transaction has written.
    OwnUnseenByCursor = 184,
    /// What was written behind a savepoint is committed although it was taken back.
    SavepointLeaks = 185,
    /// Stretches that serializable transactions walk are not listed.
    RangeNotTracked = 186,
    /// A serializable transaction that said it only reads is not counted among those in danger.
    ReadOnlyUncounted = 187,
    /// A shared lock is made exclusive although others share it.
    UpgradeForgetsHolder = 188,
    /// Who waits for a lock is not asked again when it is free.
    WaiterForgotten = 189,
    /// Locks taken behind a savepoint stay when it is gone back to.
    RollbackKeepsLock = 190,
    /// A read-only open does not compare the manifest again after the replay: loads and clears are
    /// missing below later commits.
    ReaderSkipsManifestCheck = 300,
    /// A read-only open reads the whole manifest again when a file has vanished before it was open:
    /// beside a busy writer it gives up.
    ReaderRereadsManifest = 301,
    /// A repair does not compare the log with the durable position and the clean close that the
    /// manifest records.
    RepairIgnoresCleanClose = 310,
    /// A salvaging reader believes a tombstone although a newer put may have been in the lost part
    /// of the log.
    SalvageBelievesTombstone = 311,
    /// Zeros over the end of a log pass as preallocated space although the watermark says that it
    /// was longer.
    ZerosBelowWatermarkPass = 312,
    /// The watermark claims what was written to the log, not what a sync covered: after a power cut
    /// the open refuses the rest.
    WatermarkAheadOfSync = 313,
    /// Recovery replays the whole log into memtables, however small the memory budget is.
    ReplayKeepsEverything = 320,
    /// Flushes during recovery remove log segments that were not replayed yet.
    ReplayForgetsLog = 321,
    /// Recovery keeps log segments whose end may never have been synced, instead of copying that
    /// end.
    KeepUnsyncedLog = 322,
    /// On a full disk recovery still insists on copying the whole log.
    FullDiskCopiesLog = 323,
    /// A read-only open ends with the number of a load or clear that it does not show: a change
    /// feed that starts there misses it.
    ReaderKeepsPendingNumber = 302,
    /// A read-only open believes the end of a log segment that an open of the database has
    /// truncated meanwhile.
    ReaderTrustsTrimmedLog = 303,
    /// A directory that belongs to another program is opened as an empty database.
    ForeignFilesIgnored = 350,
    /// The commit hooks that are due run on whichever thread commits next.
    HooksOnAnyThread = 351,
    /// The events of a bulk load of several families share one sequence number: a feed that is
    /// reopened between them repeats.
    LoadEventsShareNumber = 330,
    /// An open that the system refuses for too many open files is not tried again without idle
    /// ones.
    NoFilesReclaimed = 331,
    /// A close leaves the files of the database open as long as a handle lives.
    CloseKeepsFiles = 332,
    /// A compaction that was cancelled, and resumed before it has ended, is reported as one that
    /// failed.
    ResumedIsFailure = 333,
}

/// Plants one bug (or none), for the whole process.
pub fn activate(bug: Option<Bug>) {
    ACTIVE.store(bug.map_or(0, |b| b as u32), Relaxed);
}

/// Whether that bug is planted.
#[inline]
pub fn is_active(bug: Bug) -> bool {
    cfg!(feature = "bugs") && ACTIVE.load(Relaxed) == bug as u32
}
