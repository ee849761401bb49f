//! Perigee with occasional wrong answers: proves that the benchmark detects them. Not listed.

use super::perigee;
use crate::engine::{Cursor, EffectiveOptions, Engine, Result, Session, Sink, TtlSupport, TxnOps};
use crate::settings::{Level, Settings};
use std::path::Path;

/// One read in this number gets one wrong bit; one scan in this number starts an entry late; one
/// write in this number is refused.
const FAULT_INTERVAL: u64 = 97;

struct FaultyEngine(Box<dyn Engine>);

pub fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    Ok(Box::new(FaultyEngine(perigee::open(dir, settings)?)))
}

impl Engine for FaultyEngine {
    fn version(&self) -> String {
        self.0.version()
    }
    fn effective_options(&self) -> EffectiveOptions {
        self.0.effective_options()
    }
    fn with_session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        self.0.with_session(&mut |honest| work(&mut FaultySession { inner: honest, calls: 0 }))
    }
    fn wait_idle(&self) -> Result<()> {
        self.0.wait_idle()
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.0.close()
    }
    fn supports_level(&self, level: Level) -> bool {
        self.0.supports_level(level)
    }
    fn ttl_support(&self) -> TtlSupport {
        self.0.ttl_support()
    }
}

struct FaultySession<'a> {
    inner: &'a mut dyn Session,
    calls: u64,
}

impl Session for FaultySession<'_> {
    fn write(&mut self, n: usize, fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>) -> Result<()> {
        self.calls += 1;
        if n == 1 && self.calls.is_multiple_of(FAULT_INTERVAL) {
            return Err("refused".into());
        }
        self.inner.write(n, fill)
    }
    fn get(&mut self, family: usize, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.calls += 1;
        let lie = self.calls.is_multiple_of(FAULT_INTERVAL);
        self.inner.get(family, key, &mut |found| match found {
            Some(value) if lie && !value.is_empty() => {
                let mut wrong = value.to_vec();
                wrong[value.len() / 2] ^= 1;
                see(Some(&wrong));
            }
            other => see(other),
        })
    }
    fn set_shared_view(&mut self, begin: bool) -> Result<bool> {
        self.inner.set_shared_view(begin)
    }
    fn with_cursor(
        &mut self,
        family: usize,
        work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>,
    ) -> Result<()> {
        let calls = &mut self.calls;
        self.inner
            .with_cursor(family, &mut |honest| work(&mut FaultyCursor { inner: honest, calls }))
    }
    fn run_txn(&mut self, work: &mut dyn FnMut(&mut dyn TxnOps) -> Result<()>) -> Result<()> {
        self.calls += 1;
        let forget = self.calls.is_multiple_of(FAULT_INTERVAL);
        self.inner.run_txn(&mut |honest| work(&mut FaultyTxn { inner: honest, forget }))
    }
}

/// A transaction that loses its first write.
struct FaultyTxn<'a> {
    inner: &'a mut dyn TxnOps,
    forget: bool,
}

impl TxnOps for FaultyTxn<'_> {
    fn get(
        &mut self,
        family: usize,
        key: &[u8],
        change: bool,
        see: &mut dyn FnMut(Option<&[u8]>),
    ) -> Result<()> {
        self.inner.get(family, key, change, see)
    }
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        if std::mem::take(&mut self.forget) { Ok(()) } else { self.inner.put(family, key, value) }
    }
}

struct FaultyCursor<'a> {
    inner: &'a mut dyn Cursor,
    calls: &'a mut u64,
}

impl Cursor for FaultyCursor<'_> {
    fn scan(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        *self.calls += 1;
        let mut skip = self.calls.is_multiple_of(FAULT_INTERVAL);
        self.inner.scan(key, &mut |k, v| std::mem::take(&mut skip) || see(k, v))
    }
}
