//! Tests that the assertions of this crate fail when their invariant is violated.

use crate::catalog::family::{Families, FamilyState};
use crate::catalog::install::SnapshotChange;
use crate::catalog::retained_logs::{LogSpan, split_retained};
use crate::catalog::snapshot::SnapshotList;
use crate::log::wal::{LogSegment, Wal};
use crate::maintenance::jobs::scrub_progress::{Scrub, ScrubPass};
use crate::resources::job_control::{JobControl, JobKind, RunningJob};
use crate::resources::memory_budget::MemoryBudget;
use crate::resources::memory_shares::{MemoryLimit, MemoryUsage, MemtableUsage};
use crate::resources::memtable_selection::{ActiveMemtable, pick_memtables_to_seal};
use crate::resources::shared_batches::{OpBytes, SharedBatches, batch_share};
use crate::resources::write_throttle::{ChunkDelay, WriteThrottle};
use crate::runtime::signal::Signal;
use crate::settings::FamilySettings;
use crate::settings::history::SeqNoTimeMap;
use crate::txn::locks::{LockManager, LockMode, LockScope, LockWaitLimits, TxnLocks};
use crate::txn::read_write_sets::{KeyOrRange, ReadSet, WriteSet};
use crate::txn::serializable_txns::{SerializableTxn, SerializableTxns};
use crate::{HistoryPolicy, KeyBoundaryRef};

use perigee_base::{Bytes, FamilyId, FileId, FixedClock, KeyComparator, Micros, SeqNo, violation};
use perigee_env::RealClock;
use perigee_file::log::LogWriter;
use perigee_tree::{LsmTree, Version};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

type Case<'a> = (&'a str, &'a dyn Fn());

fn check_cases(cases: &[Case<'_>]) {
    for (invariant, work) in cases {
        let message = violation(work);
        assert!(message.contains(invariant), "{invariant}: {message}");
    }
}

const FAMILY: FamilyId = FamilyId(1);

fn key(text: &str) -> KeyOrRange {
    KeyOrRange::Key(text.as_bytes().to_vec())
}

fn lock_for_two_owners(second: LockMode) {
    let locks = LockManager::new();
    for (owner, mode) in [(1, LockMode::Exclusive), (2, second)] {
        let comparator = KeyComparator::Bytes;
        locks.restore_lock(
            FAMILY,
            comparator,
            owner,
            &mut TxnLocks::default(),
            key("k").borrowed(),
            mode,
        );
    }
}

fn lock_with_other_comparator() {
    let (locks, mut mine) = (LockManager::new(), TxnLocks::default());
    for comparator in [KeyComparator::Bytes, KeyComparator::CaseInsensitive] {
        let scope = LockScope { family: FAMILY, name: &"f", comparator };
        let clock = RealClock::default();
        let mode = LockMode::Exclusive;
        let limits = LockWaitLimits::new(&clock, 0);
        locks.lock(limits, scope, 1, &mut mine, key("k").borrowed(), mode).unwrap();
    }
}

#[test]
fn transactions_state_their_invariants() {
    let begin = |txns: &SerializableTxns, at| txns.begin(false, || (SeqNo(at), ())).0;
    let commit = |txns: &SerializableTxns, txn: &Arc<SerializableTxn>, at| {
        drop(txns.commit(txn, WriteSet::default(), false, SeqNo(at)))
    };
    check_cases(&[
        ("no two transactions hold conflicting locks", &|| {
            lock_for_two_owners(LockMode::Exclusive);
        }),
        ("no two transactions hold conflicting locks", &|| {
            lock_for_two_owners(LockMode::Shared);
        }),
        ("all locks of a column family use its comparator", &lock_with_other_comparator),
        ("a transaction commits after its snapshot", &|| {
            let txns = SerializableTxns::default();
            commit(&txns, &begin(&txns, 10), 5);
        }),
        ("a serializable transaction ends once", &|| {
            let txns = SerializableTxns::default();
            let txn = begin(&txns, 10);
            commit(&txns, &txn, 11);
            commit(&txns, &txn, 12);
        }),
        ("a transaction sees all commits that ended before it began", &|| {
            let txns = SerializableTxns::default();
            commit(&txns, &begin(&txns, 10), 20);
            begin(&txns, 10);
        }),
        ("a prepared transaction is not active any more", &|| {
            let txns = SerializableTxns::default();
            txns.commit_prepared(&begin(&txns, 10), WriteSet::default(), SeqNo(11));
        }),
        ("a scan widens a range that it has recorded", &|| {
            let all = KeyBoundaryRef::First..KeyBoundaryRef::Last;
            ReadSet::default().widen_range(0, KeyComparator::Bytes, all);
        }),
    ]);
}

fn wal(older: &[(u64, u64)], id: u64, lsns: Range<u64>) {
    let segment = |(id, first): &(u64, u64)| LogSegment {
        id: FileId(*id),
        first_lsn: SeqNo(*first),
        bytes: 9,
    };
    let writer = LogWriter::read_only(FileId(id), 1);
    let lsns = SeqNo(lsns.start)..SeqNo(lsns.end);
    Wal::new(older.iter().map(segment).collect(), writer, lsns, 0, Arc::default(), None);
}

#[test]
fn log_states_its_invariants() {
    let in_order = "the segments of the log are in the order of their operations";
    check_cases(&[
        (in_order, &|| wal(&[(2, 5), (1, 1)], 3, 9..9)),
        (in_order, &|| wal(&[(1, 1), (3, 5)], 2, 9..9)),
        (in_order, &|| wal(&[(1, 10)], 2, 9..9)),
        #[allow(clippy::reversed_empty_ranges)]
        ("the newest segment ends after its beginning", &|| wal(&[], 1, 9..8)),
    ]);
}

fn family(id: u32, name: &str) -> FamilyState {
    let tree = LsmTree::new(Version::empty(KeyComparator::Bytes), Arc::new(FixedClock(0)));
    FamilyState::new(FamilyId(id), name.into(), FamilySettings::default(), tree)
}

#[test]
fn catalog_states_its_invariants() {
    let span = |id, first: u64| LogSpan {
        id: FileId(id),
        first_lsn: SeqNo(first),
        end_lsn: SeqNo(first + 1),
        bytes: 9,
    };
    check_cases(&[
        ("a column family is dropped once", &|| {
            let family = family(1, "f");
            family.mark_dropped();
            family.mark_dropped();
        }),
        ("the comparator of a column family does not change", &|| {
            let comparator = KeyComparator::CaseInsensitive;
            family(1, "f").set_settings(FamilySettings { comparator, ..FamilySettings::default() });
        }),
        ("replaced contents belong to a later epoch", &|| family(1, "f").set_contents_epoch(0)),
        ("contents are replaced by later ones", &|| {
            let family = family(1, "f");
            family.set_contents_start(SeqNo(8));
            family.set_contents_start(SeqNo(7));
        }),
        ("a column family has a name and an id of its own", &|| {
            let families = Families::default();
            families.insert(Arc::new(family(1, "f")));
            families.insert(Arc::new(family(2, "f")));
        }),
        ("each column family has one name", &|| {
            let families = Families::default();
            families.insert(Arc::new(family(1, "f")));
            families.rename(&family(2, "g"), "h");
        }),
        ("snapshot epochs ascend", &|| {
            let snapshots = SnapshotList::default();
            snapshots.begin_epoch(1);
            snapshots.begin_epoch(1);
        }),
        ("each name in the manifest pins a snapshot", &|| {
            SnapshotChange::Drop { name: "s".into() }.swap(&Default::default());
        }),
        ("a name pins one sequence number", &|| {
            let (list, named) = (Arc::new(SnapshotList::default()), Default::default());
            for seq in [1, 2] {
                let snapshot = list.acquire_named(SeqNo(seq));
                SnapshotChange::Create { name: "s".into(), snapshot }.swap(&named);
            }
        }),
        ("retained segments have no gaps", &|| {
            split_retained(&[span(1, 1), span(2, 5)], &[], u64::MAX);
        }),
    ]);
}

fn job(kind: JobKind) -> RunningJob {
    RunningJob {
        kind,
        family: "f".into(),
        families: vec![FAMILY],
        reason: "test",
        input_levels: Vec::new(),
        output_level: 0,
        input_tables: 0,
        input_bytes: 0,
        input_entries: 0,
        started_us: 0,
        entries_done: AtomicU64::new(0),
        bytes_written: AtomicU64::new(0),
        input_memory_bytes: 0,
        output_memory_bytes: AtomicU64::new(0),
    }
}

#[test]
fn resources_state_their_invariants() {
    check_cases(&[
        ("loads include what was charged for this one", &|| {
            MemoryBudget::new(MemoryLimit(1 << 20), 0).set_load_bytes(&mut 5, 0);
        }),
        ("no owner of memory gives back more than it has taken", &|| {
            let jobs = 0u64.wrapping_sub(1 << 20);
            let owners = MemoryUsage { jobs, ..MemoryUsage::default() };
            MemoryBudget::new(MemoryLimit(1 << 20), 0).rebalance(&owners);
        }),
        ("the shares of a batch add up to the batch", &|| {
            let batch = SharedBatches::default().add(100, SeqNo(1));
            batch_share(&batch, OpBytes { mine: 2, all: 1 });
        }),
        ("only memtables with entries are sealed", &|| {
            let empty = ActiveMemtable { first_seq: SeqNo(1), bytes: 0, shared_bytes: 9 };
            pick_memtables_to_seal(&[empty], MemtableUsage::default(), 1, |_| SeqNo(1));
        }),
        ("compactions run one job at a time", &|| {
            let (control, signal) = (JobControl::default(), Signal::new());
            let _one = control.start_job(&signal, job(JobKind::Compaction)).unwrap();
            let _two = control.start_job(&signal, job(JobKind::Compaction));
        }),
        ("each pause is ended once", &|| JobControl::default().unpause()),
        ("only writers with a delay are charged", &|| {
            let free = ChunkDelay { chunk: Bytes(1), delay: Micros(0) };
            WriteThrottle::default().charge(Micros(0), Bytes(1), free);
        }),
    ]);
}

#[test]
fn runtime_and_jobs_state_their_invariants() {
    check_cases(&[
        ("a thread waits with a generation of the same signal", &|| {
            let (one, other) = (Signal::new(), Signal::new());
            one.notify();
            other.wait_timeout_us(one.generation(), 0);
        }),
        ("later samples have later sequence numbers", &|| {
            let (mut samples, policy) =
                (SeqNoTimeMap::default(), HistoryPolicy::Time(Duration::from_millis(1)));
            samples.record(policy, 0, SeqNo(5));
            samples.record(policy, 500, SeqNo(4));
        }),
        ("a pass reads each file once", &|| {
            let scrub = Scrub::default();
            let pass = ScrubPass { position: Some(3), ..ScrubPass::new(Micros(0), FileId(9), 0) };
            scrub.set_pass(Some(pass), 1);
            scrub.set_pass(Some(pass), 2);
        }),
    ]);
}
