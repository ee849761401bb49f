//! Background work controlled by the operator: manual compactions, purge, pause, cancel, rate
//! limit, waiting until idle.
//!
//! No call here waits for work that is paused or cancelled: if the caller itself has paused it, the
//! wait would never end. Such calls return `Busy`.

use super::Engine;
use crate::catalog::family::FamilyState;
use crate::engine::report;
use crate::limits::IDLE_POLL_US;
use crate::maintenance::jobs::compact::{self, CompactionExtent};
use crate::maintenance::jobs::due_compactions;
use crate::resources::job_control::JobKind;
use crate::runtime::events::EngineEvent;
use crate::runtime::signal::SignalGeneration;
use perigee_base::{ErrorKind, KeyComparator, Result};
use perigee_tree::compact::CompactionRange;
use std::sync::Arc;

impl Engine {
    /// Compacts these column families into their deepest levels.
    pub fn compact(&self, families: &[Arc<FamilyState>]) -> Result<()> {
        self.compact_families(families, &CompactionExtent::Whole { any_garbage: false })
    }
    /// Like [`compact`](Engine::compact), and rewrites every value log that contains any garbage:
    /// nothing reclaimable is left.
    pub fn purge(&self, families: &[Arc<FamilyState>]) -> Result<()> {
        self.compact_families(families, &CompactionExtent::Whole { any_garbage: true })
    }
    /// Compacts the tables that overlap the range, down to the deepest level that contains any of
    /// them.
    pub fn compact_range(&self, family: &Arc<FamilyState>, range: CompactionRange) -> Result<()> {
        self.compact_families(std::slice::from_ref(family), &CompactionExtent::Range(range))
    }

    fn compact_families(
        &self,
        families: &[Arc<FamilyState>],
        extent: &CompactionExtent,
    ) -> Result<()> {
        self.resources.job_control().check_allowed(JobKind::Compaction)?;
        self.flush(families)?;
        for f in families.iter().filter(|f| !f.is_dropped()) {
            match compact::compact_manually(&self.maintenance, f, extent) {
                Err(_) if f.is_dropped() && families.len() > 1 => {}
                done => done?,
            }
        }
        self.runtime.signal.notify();
        Ok(())
    }

    /// Pauses background jobs: no flush or compaction runs when this returns, and none starts until
    /// [`Engine::unpause_jobs`].
    pub fn pause_jobs(&self) -> Result<()> {
        self.runtime.health.check_open()?;
        self.resources.job_control().pause();
        self.runtime.report_event(&EngineEvent::JobsControlled { what: "paused" });
        let idle = self.wait_for_condition(None, || self.resources.job_control().is_idle(None));
        check_slow!(
            idle.is_err() || self.resources.job_control().is_idle(None),
            "no job runs while background work is paused",
            self.resources.job_control().running_jobs()
        );
        if idle.is_err() {
            self.unpause_jobs();
        }
        idle.map(|_| ())
    }
    /// Ends one pause.
    pub fn unpause_jobs(&self) {
        self.resources.job_control().unpause();
        self.runtime.signal.notify();
        self.runtime.report_event(&EngineEvent::JobsControlled { what: "resumed after a pause" });
    }
    /// Cancels running compactions; none starts until [`Engine::allow_compactions`]. Flushes
    /// continue.
    pub fn cancel_compactions(&self) -> Result<()> {
        self.runtime.health.check_open()?;
        self.resources.job_control().set_cancelled(true);
        self.runtime.signal.notify();
        self.runtime.report_event(&EngineEvent::JobsControlled { what: "cancelled" });
        let control = &self.resources.job_control();
        self.wait_for_condition(None, || {
            control.is_idle(Some(JobKind::Compaction)) || control.check_cancelled().is_ok()
        })
        .map(|_| ())
    }
    /// Allows compactions again.
    pub fn allow_compactions(&self) -> Result<()> {
        self.runtime.health.check_open()?;
        self.resources.job_control().set_cancelled(false);
        self.runtime.signal.notify();
        self.runtime.report_event(&EngineEvent::JobsControlled { what: "allowed again" });
        Ok(())
    }
    /// Sets the bytes per second that background work may move; 0: no limit.
    pub fn set_background_rate(&self, bytes_per_second: u64) {
        self.resources.set_background_rate(bytes_per_second);
    }
    /// Sets the number of bytes to keep free on the disk.
    pub fn set_min_free_space(&self, bytes: u64) {
        self.resources.set_min_free_space(bytes);
    }
    /// Makes a comparator available to column families.
    pub fn add_comparator(&self, comparator: KeyComparator) {
        self.catalog.add_comparator(comparator);
    }
    /// Returns the rate set by [`Engine::set_background_rate`].
    pub fn background_rate(&self) -> u64 {
        self.resources.background_rate()
    }

    /// Waits until no job is running or due; returns false if that takes longer than `timeout_us`.
    pub fn wait_idle(&self, timeout_us: Option<u64>) -> Result<bool> {
        let failures = self.runtime.health.background_error_count();
        let idle = || self.resources.job_control().is_idle(None) && self.due_job_kind().is_none();
        let until = timeout_us.map(|us| self.runtime.env.clock.monotonic_us().saturating_add(us));
        loop {
            let mut seen = self.runtime.signal.generation();
            if idle() {
                // Also delete what the last jobs replaced. (Files that readers hold stay; files
                // that cannot be removed become orphans.)
                let _ = self.catalog.delete_unreferenced();
                return Ok(true);
            }
            self.runtime.health.check_writable()?;
            if let Some(e) = self.runtime.health.background_error_since(failures) {
                return Err(e);
            }
            if let Some(kind) =
                self.due_job_kind().filter(|kind| self.resources.job_control().is_idle(Some(*kind)))
            {
                self.resources.job_control().check_allowed(kind)?;
            }
            if due_compactions::has_reclaimable_tables(&self.catalog) {
                // The release of a snapshot that kept hidden tables alive is not signalled.
                self.runtime.signal.notify();
                seen = self.runtime.signal.generation();
            }
            if !self.wait_for_signal(seen, until) {
                return Ok(false);
            }
        }
    }

    /// Returns true if a memtable of the column family waits for its flush or is being flushed.
    pub fn is_flushing(&self, family: &FamilyState) -> bool {
        report::is_flushing(family)
    }
    /// Returns true if a compaction of the column family is running, or is due and allowed.
    pub fn is_compacting(&self, family: &Arc<FamilyState>) -> bool {
        report::is_compacting(&self.catalog, family)
    }

    /// Returns the kind of work that is due.
    fn due_job_kind(&self) -> Option<JobKind> {
        let all = self.catalog.families().all();
        if all.iter().any(|f| !f.tree.view().immutables.is_empty()) || self.log.is_drop_requested()
        {
            return Some(JobKind::Flush);
        }
        if due_compactions::is_any_due(&self.catalog) { Some(JobKind::Compaction) } else { None }
    }

    /// Waits until `condition` is true; returns false if the time ran out first.
    fn wait_for_condition(
        &self,
        until_us: Option<u64>,
        condition: impl Fn() -> bool,
    ) -> Result<bool> {
        loop {
            let seen = self.runtime.signal.generation();
            if condition() {
                return Ok(true);
            }
            match self.runtime.health.check_open() {
                Err(e) if e.kind() == ErrorKind::Closed => return Err(e),
                _ if !self.wait_for_signal(seen, until_us) => return Ok(false),
                _ => {}
            }
        }
    }

    /// Waits for a signal after `seen`, at most `IDLE_POLL_US`; returns false if the time is up.
    fn wait_for_signal(&self, seen: SignalGeneration, until_us: Option<u64>) -> bool {
        let now = self.runtime.env.clock.monotonic_us();
        let left = until_us.map_or(IDLE_POLL_US, |until| until.saturating_sub(now));
        if left > 0 {
            self.runtime.signal.wait_timeout_us(seen, left.min(IDLE_POLL_US));
        }
        left > 0
    }
}
