//! Two-phase commit: a transaction is prepared, and decided later, perhaps after a crash, by whoever knows its identifier. Both
//! are records like any other, in a group of writers like any other; both are synced, whatever the durability.
//!
//! A decision to commit carries the whole batch again, under its own numbers: so it replays by itself, and the prepare record may be
//! forgotten with it. Price: the batch is logged twice.

use super::work::{Step, Verdict, Work};
use super::{Writers, admit, lead, publish_up_to};
use crate::core::Core;
use crate::footprint::Target;
use crate::locks::{Mine, Owner};
use crate::prepared::Undecided;
use crate::settings::Durability;
use crate::txn::validate::Conditions;
use crate::txn::{Isolation, Leaving};
use crate::wal::Appender;
use perigee_base::bug::{self, Bug};
use perigee_base::{FamilyId, KeyOrder, Result, SeqNo};
use perigee_file::log::batch::Finished;
use perigee_file::log::layout::RECORD_HEADER_BYTES;
use perigee_file::log::prepare::{check_gid, decision_record, prepare_record};
use perigee_file::log::{Batch, Claim, Claimed, Head, Prepare, RecordKind};
use std::sync::Arc;

/// Prepares what a transaction has left, durably.
///
/// # Errors
/// `Conflict`, `AlreadyExists`, `InvalidArgument`, `NoSpace`: it is not prepared, and nothing of it will happen. `OutcomeUnknown`: after
/// reopen it may be there, undecided.
pub fn prepare(core: &Core, writers: &Writers, gid: &[u8], level: Isolation, leaving: Leaving) -> Result<()> {
    let Leaving { batch, conditions, locks: (owner, mut mine) } = leaving;
    let made = build(core, gid, level, &batch, conditions.as_deref(), (owner, &mine));
    let (undecided, work) = made.inspect_err(|_| core.locks.release(owner, &mut mine, 0))?;
    undecided.hold(mine);
    count(core, 0, undecided.memory_bytes());
    enter(core, writers, &undecided, work, conditions).inspect_err(|_| {
        core.prepared.leave(&undecided);
        undecided.release(&core.locks);
        count(core, undecided.memory_bytes(), 0);
    })
}

/// Tells the memory budget what a transaction held, and holds.
fn count(core: &Core, mut before: u64, now: u64) {
    core.memory.load_holds(&mut before, now);
    core.jobs_hold();
}

/// The transaction as others will know it, and its record.
fn build(
    core: &Core,
    gid: &[u8],
    level: Isolation,
    batch: &Batch,
    conditions: Option<&Conditions>,
    (owner, mine): (Owner, &Mine),
) -> Result<(Arc<Undecided>, Work)> {
    check_gid(gid)?;
    core.health.check_writable()?;
    let record = record(core, gid, level, batch, conditions, (owner, mine))?;
    let payload = Arc::new(record.buf[record.payload()].to_vec());
    let at = Prepare::decode(&payload)?.batch;
    let order_of = |id: FamilyId| core.families.by_id(id).map(|f| f.tree.order());
    let undecided = Undecided::decode(payload, &order_of, owner)?;
    let ops = RECORD_HEADER_BYTES + at.start..RECORD_HEADER_BYTES + at.end;
    let durability = if bug::on(Bug::PrepareNotSynced) { Durability::None } else { Durability::Full };
    Ok((Arc::new(undecided), Work::of(core, record, ops, durability)?))
}

fn enter(
    core: &Core,
    writers: &Writers,
    undecided: &Arc<Undecided>,
    mut work: Work,
    mut conditions: Option<Box<Conditions>>,
) -> Result<()> {
    admit::wait(core, work.bytes())?;
    if let Some(conditions) = &mut conditions {
        conditions.check_early(core, &work)?;
    }
    work.conditions = conditions;
    work.step = Some(Step::Prepare(Arc::clone(undecided)));
    submit(core, writers, work).map(drop)
}

/// Commits or rolls back a prepared transaction, durably; the number of its last operation. The caller calls the hooks, when it holds nothing.
///
/// # Errors
/// `NotFound`: nobody is prepared under that identifier. `Busy`: another thread is deciding it. `NoSpace`: it is still undecided.
/// `OutcomeUnknown`: after reopen it is committed or still undecided. Never `Conflict`.
pub fn decide(core: &Core, writers: &Writers, gid: &[u8], verdict: Verdict) -> Result<SeqNo> {
    check_gid(gid)?;
    core.health.check_writable()?;
    let undecided = core.prepared.claim(gid)?;
    let (batch, operations) = match verdict {
        Verdict::Commit => (undecided.batch(), undecided.operations),
        Verdict::RollBack => (&[][..], 0),
    };
    let record = decision_record(gid, batch, operations);
    let mut user_bytes = 0;
    let end = record.payload().end;
    let durability = if bug::on(Bug::DecisionNotSynced) { Durability::None } else { Durability::Full };
    let decided = Work::of(core, record, end - batch.len()..end, durability).and_then(|mut work| {
        admit::wait(core, work.bytes())?;
        user_bytes = work.user_bytes();
        work.step = Some(Step::Decide(Arc::clone(&undecided), verdict));
        submit(core, writers, work)
    });
    let last = decided.inspect_err(|_| core.prepared.unclaim(&undecided))?;
    undecided.release(&core.locks);
    count(core, undecided.memory_bytes(), 0);
    core.counters.commits.add(u64::from(verdict == Verdict::Commit));
    core.counters.operations.add(u64::from(operations));
    core.counters.user_bytes_written.add(user_bytes);
    Ok(last)
}

fn submit(core: &Core, writers: &Writers, work: Work) -> Result<SeqNo> {
    writers.queue.submit(&*core.env.clock, work, |group| lead(core, &mut core.wal.appender(), group))
}

/// The prepare record: the batch, what was read that the level protects, the locks that are held.
fn record(
    core: &Core,
    gid: &[u8],
    level: Isolation,
    batch: &Batch,
    conditions: Option<&Conditions>,
    (owner, mine): (Owner, &Mine),
) -> Result<Finished> {
    let at_ms = core.env.clock.wall_ms();
    let head = Head { gid, level: level.code(), at_ms, operations: batch.count() };
    let locks = core.locks.of(owner, mine);
    let claims = |visit: &mut dyn FnMut(Claim<'_>)| {
        let mut claim = |family, mode, target: Target<'_>| {
            let on = match target {
                Target::Key(key) => Claimed::Key(key),
                Target::Range(begin, end) => Claimed::Range(begin, end),
            };
            visit(Claim { family, mode, on });
        };
        conditions.iter().for_each(|c| c.each_read(&mut |family, target| claim(family, 0, target)));
        locks.iter().for_each(|(family, place, mode)| claim(*family, mode.code(), place.target()));
    };
    prepare_record(head, &claims, batch.buf().get(RECORD_HEADER_BYTES..).unwrap_or_default())
}

/// Copies the record of a prepared transaction to the end of the log, in the commit section; not synced.
///
/// # Errors
/// As an append. The record is where it was.
pub fn carry(core: &Core, appender: &mut Appender, undecided: &Undecided) -> Result<()> {
    let mut copy = Finished::around(RecordKind::Prepare, undecided.payload(), 1);
    let lsn = core.wal.append(appender, core.manifest.edits(), &mut [&mut copy], &core.health)?;
    undecided.set_lsn(lsn);
    publish_up_to(core, SeqNo(lsn), Vec::new());
    Ok(())
}

/// Puts what recovery found undecided back in its place: records with their numbers.
pub fn restore(core: &Core, found: Vec<(u64, Arc<Vec<u8>>)>) -> Result<()> {
    let order_of = |id: FamilyId| -> Option<KeyOrder> { core.families.by_id(id).map(|f| f.tree.order()) };
    for (lsn, payload) in found {
        let undecided = Arc::new(Undecided::decode(payload, &order_of, core.locks.newcomer())?);
        undecided.set_lsn(lsn);
        undecided.lock_again(&core.locks, &order_of)?;
        core.prepared.enter(&undecided)?;
        count(core, 0, undecided.memory_bytes());
    }
    Ok(())
}
