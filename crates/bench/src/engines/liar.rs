//! Perigee with a wrong answer now and then: proves that the tool notices. Not in any list.

use super::perigee;
use crate::engine::{Cursor, Deal, Engine, Expiry, Result, Session, Sink, Told};
use crate::settings::{Level, Settings};
use std::path::Path;

/// One read in so many gets one wrong bit; one scan in so many begins an entry late; one write in so many is refused.
const LIE_EVERY: u64 = 97;

struct Liar(Box<dyn Engine>);

pub fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Liar(perigee::open(dir, settings)?)))
}

impl Engine for Liar {
    fn version(&self) -> String {
        self.0.version()
    }
    fn told(&self) -> Told {
        self.0.told()
    }
    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        self.0.session(&mut |honest| work(&mut Lying { honest, calls: 0 }))
    }
    fn settle(&self) -> Result<()> {
        self.0.settle()
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.0.close()
    }
    fn transactions(&self, level: Level) -> bool {
        self.0.transactions(level)
    }
    fn expiry(&self) -> Expiry {
        self.0.expiry()
    }
}

struct Lying<'a> {
    honest: &'a mut dyn Session,
    calls: u64,
}

impl Session for Lying<'_> {
    fn write(&mut self, n: usize, fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>) -> Result<()> {
        self.calls += 1;
        if n == 1 && self.calls.is_multiple_of(LIE_EVERY) {
            return Err("refused".into());
        }
        self.honest.write(n, fill)
    }
    fn get(&mut self, family: usize, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.calls += 1;
        let lie = self.calls.is_multiple_of(LIE_EVERY);
        self.honest.get(family, key, &mut |found| match found {
            Some(value) if lie && !value.is_empty() => {
                let mut wrong = value.to_vec();
                wrong[value.len() / 2] ^= 1;
                see(Some(&wrong));
            }
            other => see(other),
        })
    }
    fn view(&mut self, begin: bool) -> Result<bool> {
        self.honest.view(begin)
    }
    fn cursor(&mut self, family: usize, work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>) -> Result<()> {
        let calls = &mut self.calls;
        self.honest.cursor(family, &mut |honest| work(&mut Stray { honest, calls }))
    }
    fn transact(&mut self, work: &mut dyn FnMut(&mut dyn Deal) -> Result<()>) -> Result<()> {
        self.calls += 1;
        let forget = self.calls.is_multiple_of(LIE_EVERY);
        self.honest.transact(&mut |honest| work(&mut Forgetting { honest, forget }))
    }
}

/// A transaction that forgets what it was given first.
struct Forgetting<'a> {
    honest: &'a mut dyn Deal,
    forget: bool,
}

impl Deal for Forgetting<'_> {
    fn get(
        &mut self,
        family: usize,
        key: &[u8],
        change: bool,
        see: &mut dyn FnMut(Option<&[u8]>),
    ) -> Result<()> {
        self.honest.get(family, key, change, see)
    }
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        if std::mem::take(&mut self.forget) { Ok(()) } else { self.honest.put(family, key, value) }
    }
}

struct Stray<'a> {
    honest: &'a mut dyn Cursor,
    calls: &'a mut u64,
}

impl Cursor for Stray<'_> {
    fn scan(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        *self.calls += 1;
        let mut skip = self.calls.is_multiple_of(LIE_EVERY);
        self.honest.scan(key, &mut |k, v| std::mem::take(&mut skip) || see(k, v))
    }
}
