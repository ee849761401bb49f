//! The write walk: admit, group, log, apply, publish. One screen names the stages; each is a file.

mod admit;
mod group;
mod log;
mod apply;
pub mod rotate;

pub use group::Queue;

/// Makes everything up to `seq` visible, in the commit section.
pub fn publish_up_to(core: &Core, seq: perigee_base::SeqNo) {
    apply::publish(core, seq.0, Vec::new());
}

use crate::core::Core;
use crate::settings::Durability;
use group::Request;
use perigee_base::{Error, Result};
use perigee_file::log::Batch;

/// Commits a batch.
pub fn write(core: &Core, queue: &Queue, batch: Batch, durability: Durability) -> Result<()> {
    if batch.count() == 0 {
        return core.health.check_open();
    }
    core.health.check_writable()?;
    let (operations, user_bytes) = (u64::from(batch.count()), batch.user_bytes());
    let request = Request::new(core, batch, durability)?;
    if request.grows() {
        admit::space(core, request.bytes())?;
    }
    admit::wait(core, request.bytes())?;
    let outcome = queue.submit(request, |group| lead(core, group));
    core.hooks.call();
    outcome?;
    core.counters.commits.add(1);
    core.counters.operations.add(operations);
    core.counters.user_bytes_written.add(user_bytes);
    Ok(())
}

/// What the leader does for its group, in the commit section.
fn lead(core: &Core, group: &mut group::Group) -> Result<()> {
    let _poison_on_panic = PanicGuard(core);
    let mut appender = core.wal.appender();
    core.health.check_writable()?;
    rotate::if_needed(core, &mut appender, group.families())?;
    group.drop_orphans();
    let first = log::append(core, &mut appender, group)?;
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
