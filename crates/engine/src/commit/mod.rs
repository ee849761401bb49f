//! The write walk: admit, group, log, apply, publish. One screen names the stages; each is a file.
//!
//! Writers that want a sync queue for it (`group`). The others go straight to the commit section, and where they meet there all
//! the time, they take turns (`turns`).
//!
//! Why writers without a sync may pass by the queue: the order of commits is not the queue's. Whoever leads, for itself or for
//! a group, holds `wal.appender` from the first number it takes until the watermark has passed the last one. So numbers, log
//! records, memtable entries and the watermark grow in the same order, whoever comes in between; a group that is being
//! synced keeps everybody else out, and nothing behind an unsynced `Full` commit is visible before it. The queue
//! only decides who shares a sync.

mod admit;
mod work;
mod group;
mod turns;
pub mod segment;
mod log;
mod apply;
pub mod rotate;
pub mod number;
mod two_phase;

use crate::core::Core;
use crate::settings::Durability;
use crate::txn::validate::Conditions;
use crate::wal::Appender;
use group::Queue;
use perigee_base::{Error, Result, SeqNo};
use perigee_file::log::Batch;
use turns::Turns;
pub use two_phase::{carry, decide, prepare, restore};
pub use work::Verdict;
use work::Work;

/// Writers of larger batches sleep for their turn: they are longer inside than waking them costs.
const SMALL_BYTES: usize = 8 << 10;

/// Where writers meet.
#[derive(Debug)]
pub struct Writers {
    /// Those that want a sync.
    queue: Queue,
    /// The others.
    turns: Turns,
}

impl Writers {
    /// Nobody there.
    pub fn new() -> Writers {
        Writers { queue: Queue::new(), turns: Turns::new() }
    }
}

/// Makes everything up to `seq` visible, in the commit section, and lines up what hooks are told.
pub fn publish_up_to(core: &Core, seq: SeqNo, told: apply::Told) {
    apply::publish(core, seq.0, told);
}

/// Commits a batch; the number of its last operation.
pub fn write(core: &Core, writers: &Writers, batch: Batch, durability: Durability) -> Result<SeqNo> {
    let written = write_if(core, writers, batch, durability, None);
    core.hooks.call();
    written
}

/// Commits a batch if conditions hold when its turn has come; an empty one has the number of the present. The caller calls the hooks, when it holds nothing.
///
/// # Errors
/// `Conflict` if they do not.
pub fn write_if(
    core: &Core,
    writers: &Writers,
    batch: Batch,
    durability: Durability,
    conditions: Option<Box<Conditions>>,
) -> Result<SeqNo> {
    if batch.count() == 0 {
        return core.health.check_open().map(|()| core.visible());
    }
    core.health.check_writable()?;
    let (operations, user_bytes) = (u64::from(batch.count()), batch.user_bytes());
    let mut work = Work::prepare(core, batch, durability)?;
    admit::wait(core, work.bytes())?;
    if let Some(mut conditions) = conditions {
        conditions.check_early(core, &work)?;
        work.conditions = Some(conditions);
    }
    let outcome = match durability {
        Durability::Full => {
            writers.queue.submit(&*core.env.clock, work, |group| lead(core, &mut core.wal.appender(), group))
        }
        _ => alone(core, &writers.turns, work),
    };
    let last = outcome?;
    core.counters.commits.add(1);
    core.counters.operations.add(operations);
    core.counters.user_bytes_written.add(user_bytes);
    Ok(last)
}

/// A writer that waits for no sync has nothing to share: it goes through the commit section by itself.
fn alone(core: &Core, turns: &Turns, mut work: Work) -> Result<SeqNo> {
    let wait = || core.wal.appender();
    let small = work.bytes() <= SMALL_BYTES;
    let mut appender =
        if small { turns.enter(&*core.env.clock, || core.wal.try_appender(), wait) } else { wait() };
    lead(core, &mut appender, std::slice::from_mut(&mut work))?;
    drop(appender);
    work.answer()
}

/// What the leader does for its group, in the commit section.
fn lead(core: &Core, appender: &mut Appender, group: &mut [Work]) -> Result<()> {
    // Dropped before the lock: nobody gets in between a panic and the poison.
    let _poison_on_panic = PanicGuard(core);
    core.health.check_writable()?;
    group.iter_mut().for_each(|work| work.refuse_if_vain(core));
    work::refuse_conflicts(core, group);
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
