//! What an operator does to background work: manual compactions, purge, pause, cancel, rate,
//! waiting until all is done.
//!
//! Nothing here waits for work that is held back: such a wait would never end if the caller is who
//! holds it back. It is `Busy`.

use crate::engine::Engine;
use crate::events::EngineEvent;
use crate::family::FamilyState;
use crate::job_control::JobKind;
use crate::jobs::compact::{self, CompactionExtent};
use crate::jobs::due_compactions;
use crate::report;
use perigee_base::{ErrorKind, KeyComparator, Result};
use perigee_tree::compact::pick::manual::CompactionRange;
use std::sync::{Arc, PoisonError};

/// How long a waiter sleeps between two looks.
const POLL_US: u64 = 50_000;

impl Engine {
    /// Merges these families into their deepest levels.
    pub fn compact(&self, families: &[Arc<FamilyState>]) -> Result<()> {
        self.compact_families(families, &CompactionExtent::Whole { any_garbage: false })
    }
    /// The same, and every value log that holds any garbage is emptied: nothing is left that could
    /// be reclaimed.
    pub fn purge(&self, families: &[Arc<FamilyState>]) -> Result<()> {
        self.compact_families(families, &CompactionExtent::Whole { any_garbage: true })
    }
    /// Merges the tables that share keys with the span, as deep as they lie.
    pub fn compact_range(&self, family: &Arc<FamilyState>, span: CompactionRange) -> Result<()> {
        self.compact_families(std::slice::from_ref(family), &CompactionExtent::Range(span))
    }

    fn compact_families(
        &self,
        families: &[Arc<FamilyState>],
        extent: &CompactionExtent,
    ) -> Result<()> {
        self.core.job_control.check_allowed(JobKind::Compaction)?;
        self.flush(families)?;
        for f in families.iter().filter(|f| !f.is_dropped()) {
            match compact::compact_manually(&self.core, f, extent) {
                Err(_) if f.is_dropped() && families.len() > 1 => {}
                done => done?,
            }
        }
        self.core.signal.notify();
        Ok(())
    }

    /// No flush or compaction runs when this returns, and none starts until [`Engine::unpause`].
    pub fn pause_jobs(&self) -> Result<()> {
        self.core.health.check_open()?;
        self.core.job_control.pause();
        self.core.report_event(&EngineEvent::JobsControlled { what: "paused" });
        let quiet = self.wait_for_condition(None, || self.core.job_control.is_idle(None));
        if quiet.is_err() {
            self.unpause_jobs();
        }
        quiet.map(|_| ())
    }
    /// Takes one pause back.
    pub fn unpause_jobs(&self) {
        self.core.job_control.unpause();
        self.core.signal.notify();
        self.core.report_event(&EngineEvent::JobsControlled { what: "resumed after a pause" });
    }
    /// Running compactions give up, and none starts until [`Engine::allow_compactions`]. Flushes go
    /// on.
    pub fn cancel_compactions(&self) -> Result<()> {
        self.core.health.check_open()?;
        self.core.job_control.set_cancelled(true);
        self.core.signal.notify();
        self.core.report_event(&EngineEvent::JobsControlled { what: "cancelled" });
        let control = &self.core.job_control;
        self.wait_for_condition(None, || {
            control.is_idle(Some(JobKind::Compaction)) || control.check_cancelled().is_ok()
        })
        .map(|_| ())
    }
    /// Compactions may run again.
    pub fn allow_compactions(&self) -> Result<()> {
        self.core.health.check_open()?;
        self.core.job_control.set_cancelled(false);
        self.core.signal.notify();
        self.core.report_event(&EngineEvent::JobsControlled { what: "allowed again" });
        Ok(())
    }
    /// Bytes per second that background work may move; 0: no limit.
    pub fn set_background_rate(&self, bytes_per_second: u64) {
        self.core.rate_limiter.set_rate(bytes_per_second);
        self.core.signal.notify();
    }
    /// From now on so many bytes of the disk are kept free.
    pub fn set_min_free_space(&self, bytes: u64) {
        self.core.disk_space.set_reserve(bytes);
        self.core.signal.notify();
    }
    /// From now on families may have this order.
    pub fn add_comparator(&self, order: KeyComparator) {
        let mut orders = self.core.comparators.write().unwrap_or_else(PoisonError::into_inner);
        if !orders.contains(&order) {
            orders.push(order);
        }
    }
    /// See [`Engine::set_background_rate`].
    pub fn background_rate(&self) -> u64 {
        self.core.rate_limiter.rate()
    }

    /// Waits until nothing is running or due; false if that took longer than `timeout_us`.
    pub fn wait_idle(&self, timeout_us: Option<u64>) -> Result<bool> {
        let failures = self.core.health.background_error_count();
        let idle = || self.core.job_control.is_idle(None) && self.due_job_kind().is_none();
        let until = timeout_us.map(|us| self.core.env.clock.monotonic_us().saturating_add(us));
        loop {
            let mut seen = self.core.signal.generation();
            if idle() {
                // What the last jobs replaced is gone, too. (What readers hold stays; what cannot
                // be removed is an orphan.)
                let _ = self.core.obsolete_files.delete_unreferenced(&self.core.table_cache);
                return Ok(true);
            }
            self.core.health.check_writable()?;
            if let Some(e) = self.core.health.background_error_since(failures) {
                return Err(e);
            }
            if let Some(kind) =
                self.due_job_kind().filter(|kind| self.core.job_control.is_idle(Some(*kind)))
            {
                self.core.job_control.check_allowed(kind)?;
            }
            if due_compactions::has_reclaimable_tables(&self.core) {
                // Nobody rings when a snapshot goes that kept hidden tables alive.
                self.core.signal.notify();
                seen = self.core.signal.generation();
            }
            if !self.wait_for_signal(seen, until) {
                return Ok(false);
            }
        }
    }

    /// Whether a memtable of the family waits for its flush, or is being flushed.
    pub fn is_flushing(&self, family: &FamilyState) -> bool {
        report::is_flushing(family)
    }
    /// Whether a compaction of the family runs, or is due and may run.
    pub fn is_compacting(&self, family: &Arc<FamilyState>) -> bool {
        report::is_compacting(&self.core, family)
    }

    /// What kind of work is due.
    fn due_job_kind(&self) -> Option<JobKind> {
        let all = self.core.families.all();
        if all.iter().any(|f| !f.tree.view().immutables.is_empty())
            || self.core.wal.is_drop_requested()
        {
            return Some(JobKind::Flush);
        }
        if due_compactions::is_any_due(&self.core) { Some(JobKind::Compaction) } else { None }
    }

    /// Waits until it is so; false if the time ran out first.
    fn wait_for_condition(&self, until_us: Option<u64>, so: impl Fn() -> bool) -> Result<bool> {
        loop {
            let seen = self.core.signal.generation();
            if so() {
                return Ok(true);
            }
            match self.core.health.check_open() {
                Err(e) if e.kind() == ErrorKind::Closed => return Err(e),
                _ if !self.wait_for_signal(seen, until_us) => return Ok(false),
                _ => {}
            }
        }
    }

    /// Sleeps until the bell rings, for a while; false if the time is up.
    fn wait_for_signal(&self, seen: u64, until_us: Option<u64>) -> bool {
        let now = self.core.env.clock.monotonic_us();
        let left = until_us.map_or(POLL_US, |until| until.saturating_sub(now));
        if left > 0 {
            self.core.signal.wait_timeout_us(seen, left.min(POLL_US));
        }
        left > 0
    }
}
