//! Into the memtables, then visible.

use super::request::{CommitRequest, FamilyBatch, TwoPhaseStep};
use crate::commit_hooks::{HookEvent, PendingHook};
use crate::core::EngineCore;
use crate::shared_batches::batch_share;
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, Result, SeqNo};
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

/// Records up to this length are copied into the memtable; larger ones stay in the buffer that was
/// logged.
const COPIED_BYTES_MAX: usize = 4 << 10;

/// What the hooks of a group's families are to be told, in commit order.
pub type PendingHooks = Vec<PendingHook>;

/// Inserts the group's operations, the first with sequence number `first`. The records are logged
/// already, so a failure here poisons the database.
pub fn apply_group(
    core: &EngineCore,
    group: &mut [CommitRequest],
    first: u64,
) -> Result<PendingHooks> {
    let mut base = first;
    let mut grown = 0;
    let mut told = Vec::new();
    for work in group.iter_mut().filter(|w| w.rejected.is_none()) {
        work.last_seq = SeqNo(base + u64::from(work.record.lsn_count) - 1);
        match work.step.take() {
            Some(TwoPhaseStep::Prepare(undecided)) => {
                undecided.set_lsn(base);
                base += u64::from(work.record.lsn_count);
                continue;
            }
            Some(TwoPhaseStep::Decide(undecided, _)) => core.prepared_txns.remove(&undecided),
            None => {}
        }
        if work.log_bytes() <= COPIED_BYTES_MAX
            && !work.family_batches.iter().any(|p| p.family().hook().is_some())
        {
            grown += insert_small_batch(core, work, base)?;
            base += u64::from(work.record.lsn_count);
            continue;
        }
        let buffer = Arc::new(std::mem::take(&mut work.record.buf));
        let last = work.last_seq.0;
        // Nearly every batch is of one family.
        let shared = (work.family_batches.len() > 1)
            .then(|| core.shared_batches.add(buffer.capacity(), last));
        let all: u64 = if shared.is_some() {
            work.family_batches.iter().map(FamilyBatch::op_bytes).sum()
        } else {
            0
        };
        for part in &mut work.family_batches {
            publish_early(core, last);
            let active = part.family().tree.active();
            let before = active.bytes();
            let mine = shared.as_ref().map(|of| batch_share(of, part.op_bytes(), all));
            active
                .insert_shared(&buffer, base, &part.ops, mine)
                .map_err(|e| poison_unapplied(core, e))?;
            grown += active.bytes().saturating_sub(before);
            if let Some(hook) = part.family().hook() {
                let (owner, family) = (work.thread_id, part.family().id);
                let event = HookEvent::new(
                    Arc::clone(&buffer),
                    base,
                    std::mem::take(&mut part.ops).into_vec(),
                );
                told.push(PendingHook { thread_id: owner, family, hook, event: Arc::new(event) });
            }
        }
        base += u64::from(work.record.lsn_count);
    }
    core.add_memtable_bytes(grown);
    Ok(told)
}

/// Inserts a small batch: each family copies its part, and nobody keeps the buffer. How much
/// memtables grew.
fn insert_small_batch(core: &EngineCore, work: &CommitRequest, base: u64) -> Result<u64> {
    let mut grown = 0;
    for part in &work.family_batches {
        publish_early(core, work.last_seq.0);
        let active = part.family().tree.active();
        let before = active.bytes();
        active
            .insert_copied(&work.record.buf, base, &part.ops)
            .map_err(|e| poison_unapplied(core, e))?;
        grown += active.bytes().saturating_sub(before);
    }
    Ok(grown)
}

/// The seeded bug.
fn publish_early(core: &EngineCore, last: u64) {
    if bug::is_active(Bug::PublishEarly) {
        core.visible_seq.store(last, Release);
        core.env.clock.sleep_us(1);
    }
}

fn poison_unapplied(core: &EngineCore, e: Error) -> Error {
    let e = e.wrap(ErrorKind::OutcomeUnknown, "a logged batch could not be applied");
    core.health.poison(&e);
    e
}

/// Makes everything up to `last` visible, and only then lines up what hooks are told: a hook that
/// reads sees it.
pub fn publish_group(core: &EngineCore, last: u64, told: PendingHooks) {
    core.visible_seq.store(last, Release);
    told.into_iter().for_each(|due| core.commit_hooks.enqueue(due));
}
