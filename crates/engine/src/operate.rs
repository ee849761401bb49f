//! What an operator does to background work: manual compactions, purge, pause, cancel, rate, waiting until all is done.
//!
//! Nothing here waits for work that is held back: such a wait would never end if the caller is who holds it back. It is `Busy`.

use crate::control::Kind;
use crate::engine::Engine;
use crate::events::Event;
use crate::family::Family;
use crate::jobs::compact::{self, Extent};
use crate::jobs::due;
use crate::report;
use perigee_base::{ErrorKind, KeyOrder, Result};
use perigee_tree::compact::pick::manual::Span;
use std::sync::{Arc, PoisonError};

/// How long a waiter sleeps between two looks.
const LOOK_US: u64 = 50_000;

impl Engine {
    /// Merges these families into their deepest levels.
    pub fn compact(&self, families: &[Arc<Family>]) -> Result<()> {
        self.merge(families, &Extent::Whole { any_garbage: false })
    }
    /// The same, and every value log that holds any garbage is emptied: nothing is left that could be reclaimed.
    pub fn purge(&self, families: &[Arc<Family>]) -> Result<()> {
        self.merge(families, &Extent::Whole { any_garbage: true })
    }
    /// Merges the tables that share keys with the span, as deep as they lie.
    pub fn compact_range(&self, family: &Arc<Family>, span: Span) -> Result<()> {
        self.merge(std::slice::from_ref(family), &Extent::Range(span))
    }

    fn merge(&self, families: &[Arc<Family>], extent: &Extent) -> Result<()> {
        self.core.control.check(Kind::Compaction)?;
        self.flush(families)?;
        for f in families.iter().filter(|f| !f.is_dropped()) {
            match compact::manual(&self.core, f, extent) {
                Err(_) if f.is_dropped() && families.len() > 1 => {}
                done => done?,
            }
        }
        self.core.signal.ring();
        Ok(())
    }

    /// No flush or compaction runs when this returns, and none starts until [`Engine::unpause`].
    pub fn pause(&self) -> Result<()> {
        self.core.health.check_open()?;
        self.core.control.pause();
        self.core.tell(&Event::Control { what: "paused" });
        let quiet = self.wait_for(None, || self.core.control.is_quiet(None));
        if quiet.is_err() {
            self.unpause();
        }
        quiet.map(|_| ())
    }
    /// Takes one pause back.
    pub fn unpause(&self) {
        self.core.control.unpause();
        self.core.signal.ring();
        self.core.tell(&Event::Control { what: "resumed after a pause" });
    }
    /// Running compactions give up, and none starts until [`Engine::uncancel`]. Flushes go on.
    pub fn cancel(&self) -> Result<()> {
        self.core.health.check_open()?;
        self.core.control.set_cancelled(true);
        self.core.signal.ring();
        self.core.tell(&Event::Control { what: "cancelled" });
        let control = &self.core.control;
        self.wait_for(None, || control.is_quiet(Some(Kind::Compaction)) || control.check_cancelled().is_ok())
            .map(|_| ())
    }
    /// Compactions may run again.
    pub fn uncancel(&self) -> Result<()> {
        self.core.health.check_open()?;
        self.core.control.set_cancelled(false);
        self.core.signal.ring();
        self.core.tell(&Event::Control { what: "allowed again" });
        Ok(())
    }
    /// Bytes per second that background work may move; 0: no limit.
    pub fn set_background_rate(&self, bytes_per_second: u64) {
        self.core.throttle.set_rate(bytes_per_second);
        self.core.signal.ring();
    }
    /// From now on so many bytes of the disk are kept free.
    pub fn set_min_free_space(&self, bytes: u64) {
        self.core.space.set_reserve(bytes);
        self.core.signal.ring();
    }
    /// From now on families may have this order.
    pub fn add_order(&self, order: KeyOrder) {
        let mut orders = self.core.orders.write().unwrap_or_else(PoisonError::into_inner);
        if !orders.contains(&order) {
            orders.push(order);
        }
    }
    /// See [`Engine::set_background_rate`].
    pub fn background_rate(&self) -> u64 {
        self.core.throttle.rate()
    }

    /// Waits until nothing is running or due; false if that took longer than `timeout_us`.
    pub fn wait_idle(&self, timeout_us: Option<u64>) -> Result<bool> {
        let failures = self.core.health.background_count();
        let idle = || self.core.control.is_quiet(None) && self.due().is_none();
        let until = timeout_us.map(|us| self.core.env.clock.monotonic_us().saturating_add(us));
        loop {
            let mut seen = self.core.signal.now();
            if idle() {
                // What the last jobs replaced is gone, too. (What readers hold stays; what cannot be removed is an orphan.)
                let _ = self.core.retire.sweep(&self.core.shelf);
                return Ok(true);
            }
            self.core.health.check_writable()?;
            if let Some(e) = self.core.health.background_since(failures) {
                return Err(e);
            }
            if let Some(kind) = self.due().filter(|kind| self.core.control.is_quiet(Some(*kind))) {
                self.core.control.check(kind)?;
            }
            if due::waits_for_snapshots(&self.core) {
                // Nobody rings when a snapshot goes that kept hidden tables alive.
                self.core.signal.ring();
                seen = self.core.signal.now();
            }
            if !self.nap(seen, until) {
                return Ok(false);
            }
        }
    }

    /// Whether a memtable of the family waits for its flush, or is being flushed.
    pub fn is_flushing(&self, family: &Family) -> bool {
        report::is_flushing(family)
    }
    /// Whether a compaction of the family runs, or is due and may run.
    pub fn is_compacting(&self, family: &Arc<Family>) -> bool {
        report::is_compacting(&self.core, family)
    }

    /// What kind of work is due.
    fn due(&self) -> Option<Kind> {
        let all = self.core.families.all();
        if all.iter().any(|f| !f.tree.view().sealed.is_empty()) || self.core.wal.is_drop_due() {
            return Some(Kind::Flush);
        }
        if due::any(&self.core) { Some(Kind::Compaction) } else { None }
    }

    /// Waits until it is so; false if the time ran out first.
    fn wait_for(&self, until_us: Option<u64>, so: impl Fn() -> bool) -> Result<bool> {
        loop {
            let seen = self.core.signal.now();
            if so() {
                return Ok(true);
            }
            match self.core.health.check_open() {
                Err(e) if e.kind() == ErrorKind::Closed => return Err(e),
                _ if !self.nap(seen, until_us) => return Ok(false),
                _ => {}
            }
        }
    }

    /// Sleeps until the bell rings, for a while; false if the time is up.
    fn nap(&self, seen: u64, until_us: Option<u64>) -> bool {
        let now = self.core.env.clock.monotonic_us();
        let left = until_us.map_or(LOOK_US, |until| until.saturating_sub(now));
        if left > 0 {
            self.core.signal.wait_us(seen, left.min(LOOK_US));
        }
        left > 0
    }
}
