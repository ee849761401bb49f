//! Applies a logged group to the memtables and makes it visible.

use super::request::{CommitRequest, FamilyBatch, TwoPhaseStep};
use crate::catalog::Catalog;
use crate::catalog::hook_event::HookEvent;
use crate::limits::COPIED_RECORD_BYTES_MAX;
use crate::log::Log;
use crate::log::commit_hooks::PendingHook;
use crate::resources::shared_batches::{OpBytes, batch_share};
use crate::runtime::Runtime;
use crate::txn::TxnManager;
use perigee_base::bug::{self, Bug};
use perigee_base::{EntryKind, Error, ErrorKind, Result, SeqNo};
use perigee_env::sim::yield_point;
use perigee_tree::Memtable;
use std::sync::Arc;

/// Hook calls for a group, in commit order.
pub type PendingHooks = Vec<PendingHook>;

/// Applies the group's operations, the first with sequence number `first`. The records are already
/// logged, so a failure poisons the database. Returns the hook calls to queue.
pub fn apply_group(
    txns: &TxnManager,
    group: &mut [CommitRequest],
    first: SeqNo,
) -> Result<PendingHooks> {
    let mut base = first;
    let mut grown = 0;
    let mut hooks = Vec::new();
    for request in group.iter_mut().filter(|w| w.rejected.is_none()) {
        let next = base.plus(u64::from(request.record.lsn_count));
        request.last_seq = next.prev();
        check_slow!(request.last_seq >= base, "a logged batch has an operation", base);
        match request.step.take() {
            Some(TwoPhaseStep::Prepare(prepared)) => {
                prepared.set_lsn(base);
                base = next;
                continue;
            }
            Some(TwoPhaseStep::Decide(prepared, _)) => {
                check!(
                    prepared.lsn() < base,
                    "a transaction is decided after it was prepared",
                    prepared.lsn(),
                    base
                );
                txns.prepared_txns().remove(&prepared);
                txns.prepared_txns().record_decision(request.last_seq);
            }
            None => {}
        }
        invalidate_rows(txns, request);
        if request.log_bytes() <= COPIED_RECORD_BYTES_MAX
            && !request.family_batches.iter().any(|p| p.family().hook().is_some())
        {
            grown += insert_small_batch(&txns.catalog, request, base)?;
            base = next;
            continue;
        }
        let buffer = Arc::new(std::mem::take(&mut request.record.buf));
        let last = request.last_seq;
        // Nearly every batch writes to one column family.
        let shared = (request.family_batches.len() > 1)
            .then(|| txns.resources.shared_batches().add(buffer.capacity(), last));
        let all: u64 = if shared.is_some() {
            request.family_batches.iter().map(FamilyBatch::op_bytes).sum()
        } else {
            0
        };
        for part in &mut request.family_batches {
            publish_early(&txns.catalog, last);
            let active = part.family().tree.active();
            check_memtable_order(active.last_seq(), base);
            let before = active.bytes() + active.contents_bytes();
            let share =
                shared.as_ref().map(|of| batch_share(of, OpBytes { mine: part.op_bytes(), all }));
            active
                .insert_shared(&buffer, base, &part.ops, share)
                .map_err(|e| poison_unapplied(&txns.runtime, e))?;
            grown += (active.bytes() + active.contents_bytes()).saturating_sub(before);
            request_sort(&txns.catalog, &active);
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
    txns.resources.add_memtable_bytes(grown);
    Ok(hooks)
}

/// Removes the rows that a batch changes from the row cache, before it is visible.
fn invalidate_rows(txns: &TxnManager, request: &CommitRequest) {
    let Some(cache) = txns.resources.row_cache() else { return };
    let buf = &request.record.buf;
    yield_point();
    for part in &request.family_batches {
        let family = part.family();
        if !family.has_cacheable_rows() {
            continue;
        }
        for (op, _) in &part.ops {
            if op.kind == EntryKind::RangeDelete {
                family.row_cache_epoch.advance(request.last_seq);
            } else {
                cache.invalidate(&family.row_key(&buf[op.key.clone()]), request.last_seq);
            }
        }
    }
}

/// Applies a small batch: each column family copies its part, and the buffer is not retained.
/// Returns the memtable growth in bytes.
fn insert_small_batch(catalog: &Catalog, request: &CommitRequest, base: SeqNo) -> Result<u64> {
    let mut grown = 0;
    for part in &request.family_batches {
        publish_early(catalog, request.last_seq);
        let active = part.family().tree.active();
        check_memtable_order(active.last_seq(), base);
        let before = active.bytes() + active.contents_bytes();
        active
            .insert_copied(&request.record.buf, base, &part.ops)
            .map_err(|e| poison_unapplied(&catalog.runtime, e))?;
        grown += (active.bytes() + active.contents_bytes()).saturating_sub(before);
        request_sort(catalog, &active);
    }
    Ok(grown)
}

/// Has a background thread sort the memtable if many of its entries are unsorted.
#[inline]
fn request_sort(catalog: &Catalog, active: &Arc<Memtable>) {
    if active.take_sort_request() {
        catalog.unsorted_memtables().add(active);
        catalog.runtime.signal.notify();
    }
}

#[inline]
fn check_memtable_order(newest: SeqNo, base: SeqNo) {
    check_slow!(newest < base, "a memtable is filled in the order of the log", newest, base);
}

/// Seeded bug: makes the batch visible before it is applied.
fn publish_early(catalog: &Catalog, last: SeqNo) {
    if bug::is_active(Bug::PublishEarly) {
        catalog.set_visible_seq(last);
        catalog.runtime.env.clock.sleep_us(1);
    }
}

fn poison_unapplied(runtime: &Runtime, e: Error) -> Error {
    let e = e.wrap(ErrorKind::OutcomeUnknown, "a logged batch could not be applied");
    runtime.health.poison(&e);
    e
}

/// Makes everything up to `last` visible and then queues the hook calls, so that a hook that reads
/// sees the commit.
pub fn publish_group(log: &Log, last: SeqNo, hooks: PendingHooks) {
    check_slow!(
        log.catalog.visible_seq() <= last,
        "the visible sequence number only grows",
        log.catalog.visible_seq(),
        last
    );
    log.catalog.set_visible_seq(last);
    hooks.into_iter().for_each(|due| log.commit_hooks.enqueue(due));
}
