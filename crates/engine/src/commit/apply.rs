//! Into the memtables, then visible.

use super::work::{Part, Step, Work};
use crate::core::Core;
use crate::hooks::{Due, Event};
use crate::shared::of_batch;
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, Result, SeqNo};
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

/// Records up to this length are copied into the memtable; larger ones stay in the buffer that was logged.
const COPIED_BYTES_MAX: usize = 4 << 10;

/// What the hooks of a group's families are to be told, in commit order.
pub type Told = Vec<Due>;

/// Inserts the group's operations, the first with sequence number `first`. The records are logged already, so a failure
/// here poisons the database.
pub fn apply(core: &Core, group: &mut [Work], first: u64) -> Result<Told> {
    let mut base = first;
    let mut grown = 0;
    let mut told = Vec::new();
    for work in group.iter_mut().filter(|w| w.refused.is_none()) {
        work.last = SeqNo(base + u64::from(work.record.count) - 1);
        match work.step.take() {
            Some(Step::Prepare(undecided)) => {
                undecided.set_lsn(base);
                base += u64::from(work.record.count);
                continue;
            }
            Some(Step::Decide(undecided, _)) => core.prepared.leave(&undecided),
            None => {}
        }
        if work.bytes() <= COPIED_BYTES_MAX && !work.parts.iter().any(|p| p.family().hook().is_some()) {
            grown += copy(core, work, base)?;
            base += u64::from(work.record.count);
            continue;
        }
        let buffer = Arc::new(std::mem::take(&mut work.record.buf));
        let last = work.last.0;
        // Nearly every batch is of one family.
        let shared = (work.parts.len() > 1).then(|| core.shared.add(buffer.capacity(), last));
        let all: u64 = if shared.is_some() { work.parts.iter().map(Part::bytes).sum() } else { 0 };
        for part in &mut work.parts {
            publish_early(core, last);
            let active = part.family().tree.active();
            let before = active.bytes();
            let mine = shared.as_ref().map(|of| of_batch(of, part.bytes(), all));
            active.insert_part(&buffer, base, &part.ops, mine).map_err(|e| not_applied(core, e))?;
            grown += active.bytes().saturating_sub(before);
            if let Some(hook) = part.family().hook() {
                let (owner, family) = (work.owner, part.family().id);
                let event = Event::new(Arc::clone(&buffer), base, std::mem::take(&mut part.ops).into_vec());
                told.push(Due { owner, family, hook, event: Arc::new(event) });
            }
        }
        base += u64::from(work.record.count);
    }
    core.memtables_grew(grown);
    Ok(told)
}

/// Inserts a small batch: each family copies its part, and nobody keeps the buffer. How much memtables grew.
fn copy(core: &Core, work: &Work, base: u64) -> Result<u64> {
    let mut grown = 0;
    for part in &work.parts {
        publish_early(core, work.last.0);
        let active = part.family().tree.active();
        let before = active.bytes();
        active.insert_copied(&work.record.buf, base, &part.ops).map_err(|e| not_applied(core, e))?;
        grown += active.bytes().saturating_sub(before);
    }
    Ok(grown)
}

/// The seeded bug.
fn publish_early(core: &Core, last: u64) {
    if bug::on(Bug::PublishEarly) {
        core.visible.store(last, Release);
        core.env.clock.sleep_us(1);
    }
}

fn not_applied(core: &Core, e: Error) -> Error {
    let e = e.wrap(ErrorKind::OutcomeUnknown, "a logged batch could not be applied");
    core.health.poison(&e);
    e
}

/// Makes everything up to `last` visible, and only then lines up what hooks are told: a hook that reads sees it.
pub fn publish(core: &Core, last: u64, told: Told) {
    core.visible.store(last, Release);
    told.into_iter().for_each(|due| core.hooks.push(due));
}
