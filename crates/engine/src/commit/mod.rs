//! The write walk: admit, group, log, apply, publish. One screen names the stages; each is a file.
//!
//! Writers that want a sync queue for it (`group`). The others go straight to the commit section; a small batch that finds it
//! taken is done by whoever enters next (`handover`), a large one waits for its turn.
//!
//! Why writers without a sync may pass by the queue: the order of commits is not the queue's. Whoever leads, for itself or for
//! a group, holds `wal.appender` from the first number it takes until the watermark has passed the last one. So numbers, log
//! records, memtable entries and the watermark grow in the same order, whoever comes in between; a group that is being
//! synced keeps everybody else out, and nothing behind an unsynced `Full` commit is visible before it. The queue
//! only decides who shares a sync.

mod admit;
mod work;
mod group;
mod cells;
mod handover;
mod log;
mod apply;
pub mod rotate;

/// Where writers meet.
#[derive(Debug)]
pub struct Writers {
    /// Those that want a sync.
    queue: Queue,
    /// The others, with small batches.
    handover: Handover<Work, 32>,
}

impl Writers {
    /// Nobody there.
    pub fn new() -> Writers {
        Writers { queue: Queue::new(), handover: Handover::new() }
    }
}

/// Makes everything up to `seq` visible, in the commit section.
pub fn publish_up_to(core: &Core, seq: perigee_base::SeqNo) {
    apply::publish(core, seq.0, Vec::new());
}

use crate::core::Core;
use crate::settings::Durability;
use crate::wal::Appender;
use group::Queue;
use handover::{Handover, Job};
use perigee_base::{Error, Result};
use perigee_file::log::Batch;
use work::Work;

/// Larger batches are not handed over: their writer has more to do than the way costs.
const HANDED_OVER_BYTES_MAX: usize = 4 << 10;

/// Commits a batch.
pub fn write(core: &Core, writers: &Writers, batch: Batch, durability: Durability) -> Result<()> {
    if batch.count() == 0 {
        return core.health.check_open();
    }
    core.health.check_writable()?;
    let (operations, user_bytes) = (u64::from(batch.count()), batch.user_bytes());
    let work = Work::prepare(core, batch, durability)?;
    admit::wait(core, work.bytes())?;
    let outcome = match durability {
        Durability::Full => {
            writers.queue.submit(&*core.env.clock, work, |group| lead(core, &mut core.wal.appender(), group))
        }
        _ if work.bytes() > HANDED_OVER_BYTES_MAX => alone(core, work),
        _ => writers.handover.submit(
            work,
            || core.wal.try_appender(),
            || core.wal.appender(),
            |appender, group| lead(core, appender, group),
        ),
    };
    core.hooks.call();
    outcome?;
    core.counters.commits.add(1);
    core.counters.operations.add(operations);
    core.counters.user_bytes_written.add(user_bytes);
    Ok(())
}

impl Job for Work {
    fn refused(&mut self) -> Option<Error> {
        self.refused.take()
    }
}

/// A large batch that waits for no sync has nothing to share: its writer goes through the commit section by itself.
fn alone(core: &Core, mut work: Work) -> Result<()> {
    lead(core, &mut core.wal.appender(), std::slice::from_mut(&mut work))?;
    work.refused.map_or(Ok(()), Err)
}

/// What the leader does for its group, in the commit section.
fn lead(core: &Core, appender: &mut Appender, group: &mut [Work]) -> Result<()> {
    // Dropped before the lock: nobody gets in between a panic and the poison.
    let _poison_on_panic = PanicGuard(core);
    core.health.check_writable()?;
    group.iter_mut().for_each(|work| work.refuse_if_vain(core));
    rotate::if_needed(core, appender, group)?;
    let first = log::append(core, appender, group)?;
    let told = apply::apply(core, group, first)?;
    apply::publish(core, appender.next_lsn - 1, told);
    Ok(())
}

/// A leader that panics between log and publish leaves operations that are numbered but not applied: nothing may be
/// written behind them.
struct PanicGuard<'a>(&'a Core);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if perigee_env::spawn::panicking() {
            self.0.health.poison(&Error::internal("the thread that led a commit panicked"));
        }
    }
}
