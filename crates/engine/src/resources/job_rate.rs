//! Delays background work to the configured rate.

use crate::limits::CANCEL_CHECK_US;
use crate::resources::Resources;
use crate::resources::rate_limiter::{RateLimitClass, RateLimitDebt};
use perigee_base::{Bytes, Micros, Result};

impl Resources {
    /// Charges `bytes` to the background rate limiter; returns when they are paid for.
    pub fn charge_rate(&self, class: RateLimitClass, bytes: u64) -> RateLimitDebt {
        let now = Micros(self.runtime.env.clock.monotonic_us());
        self.rate_limiter.charge(now, Bytes(bytes), class)
    }
    /// Returns true if the debt counts: a changed rate cancels debts incurred at the old rate.
    pub fn is_owed(&self, debt: &RateLimitDebt) -> bool {
        debt.generation == self.rate_limiter.generation()
    }
    /// Returns the bytes per second that background work may move; 0: no limit.
    pub fn background_rate(&self) -> u64 {
        self.rate_limiter.rate()
    }
    /// Sets the bytes per second that background work may move; 0: no limit.
    pub fn set_background_rate(&self, bytes_per_second: u64) {
        self.rate_limiter.set_rate(bytes_per_second);
        self.runtime.signal.notify();
    }
    /// Charges `bytes` to the background rate limiter and waits until they are paid for, or until
    /// `check` fails.
    pub fn wait_for_rate(
        &self,
        class: RateLimitClass,
        bytes: u64,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let clock = &self.runtime.env.clock;
        let now = clock.monotonic_us();
        let debt = self.rate_limiter.charge(Micros(now), Bytes(bytes), class);
        if debt.wait_us == 0 {
            return Ok(());
        }
        let until = now.saturating_add(debt.wait_us);
        loop {
            let signal_generation = self.runtime.signal.generation();
            let now = clock.monotonic_us();
            if now >= until || !self.is_owed(&debt) {
                return Ok(());
            }
            check()?;
            self.runtime
                .signal
                .wait_timeout_us(signal_generation, (until - now).min(CANCEL_CHECK_US));
        }
    }
}
