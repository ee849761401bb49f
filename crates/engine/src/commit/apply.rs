//! Applies a logged group to the memtables and makes it visible.

use super::request::{CommitRequest, FamilyBatch, TwoPhaseStep};
use crate::commit_hooks::{HookEvent, PendingHook};
use crate::core::EngineCore;
use crate::shared_batches::{OpBytes, batch_share};
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, Result, SeqNo};
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

/// Records up to this length are copied into the memtable; larger ones stay in the buffer that was
/// logged.
const COPIED_BYTES_MAX: usize = 4 << 10;

/// Hook calls for a group, in commit order.
pub type PendingHooks = Vec<PendingHook>;

/// Applies the group's operations, the first with sequence number `first`. The records are already
/// logged, so a failure poisons the database. Returns the hook calls to queue.
pub fn apply_group(
    core: &EngineCore,
    group: &mut [CommitRequest],
    first: SeqNo,
) -> Result<PendingHooks> {
    let mut base = first;
    let mut grown = 0;
    let mut hooks = Vec::new();
    for request in group.iter_mut().filter(|w| w.rejected.is_none()) {
        let next = base.plus(u64::from(request.record.lsn_count));
        request.last_seq = next.prev();
        match request.step.take() {
            Some(TwoPhaseStep::Prepare(prepared)) => {
                prepared.set_lsn(base);
                base = next;
                continue;
            }
            Some(TwoPhaseStep::Decide(prepared, _)) => core.prepared_txns.remove(&prepared),
            None => {}
        }
        if request.log_bytes() <= COPIED_BYTES_MAX
            && !request.family_batches.iter().any(|p| p.family().hook().is_some())
        {
            grown += insert_small_batch(core, request, base)?;
            base = next;
            continue;
        }
        let buffer = Arc::new(std::mem::take(&mut request.record.buf));
        let last = request.last_seq;
        // Nearly every batch writes to one column family.
        let shared = (request.family_batches.len() > 1)
            .then(|| core.shared_batches.add(buffer.capacity(), last));
        let all: u64 = if shared.is_some() {
            request.family_batches.iter().map(FamilyBatch::op_bytes).sum()
        } else {
            0
        };
        for part in &mut request.family_batches {
            publish_early(core, last);
            let active = part.family().tree.active();
            let before = active.bytes() + active.contents_bytes();
            let share =
                shared.as_ref().map(|of| batch_share(of, OpBytes { mine: part.op_bytes(), all }));
            active
                .insert_shared(&buffer, base, &part.ops, share)
                .map_err(|e| poison_unapplied(core, e))?;
            grown += (active.bytes() + active.contents_bytes()).saturating_sub(before);
            if let Some(hook) = part.family().hook() {
                let (thread_id, family) = (request.thread_id, part.family().id);
                let event = HookEvent::new(
                    Arc::clone(&buffer),
                    base,
                    std::mem::take(&mut part.ops).into_vec(),
                );
                hooks.push(PendingHook { thread_id, family, hook, event: Arc::new(event) });
            }
        }
        base = next;
    }
    core.add_memtable_bytes(grown);
    Ok(hooks)
}

/// Applies a small batch: each column family copies its part, and the buffer is not retained.
/// Returns the memtable growth in bytes.
fn insert_small_batch(core: &EngineCore, request: &CommitRequest, base: SeqNo) -> Result<u64> {
    let mut grown = 0;
    for part in &request.family_batches {
        publish_early(core, request.last_seq);
        let active = part.family().tree.active();
        let before = active.bytes() + active.contents_bytes();
        active
            .insert_copied(&request.record.buf, base, &part.ops)
            .map_err(|e| poison_unapplied(core, e))?;
        grown += (active.bytes() + active.contents_bytes()).saturating_sub(before);
    }
    Ok(grown)
}

/// Seeded bug: makes the batch visible before it is applied.
fn publish_early(core: &EngineCore, last: SeqNo) {
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

/// Makes everything up to `last` visible and then queues the hook calls, so that a hook that reads
/// sees the commit.
pub fn publish_group(core: &EngineCore, last: SeqNo, hooks: PendingHooks) {
    core.visible_seq.store(last, Release);
    hooks.into_iter().for_each(|due| core.commit_hooks.enqueue(due));
}
