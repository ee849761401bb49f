//! Any engine, with every operation written to a trace as it succeeds (`perigee-bench trace record`).
//!
//! Operations of several threads go to the file in the order of their ends.

use crate::engine::{Cursor, Engine, Expiry, Result, Session, Sink, Told};
use crate::trace::{Op, Writer};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Records what is asked of `engine` into `trace`; where it is filled first, what follows its first settling is marked.
pub fn record(engine: Box<dyn Engine>, trace: Writer, filled: bool) -> Box<dyn Engine> {
    Box::new(Recorded { engine, trace: Mutex::new(trace), filling: AtomicBool::new(filled) })
}

struct Recorded {
    engine: Box<dyn Engine>,
    trace: Mutex<Writer>,
    filling: AtomicBool,
}

impl Engine for Recorded {
    fn version(&self) -> String {
        self.engine.version()
    }
    fn told(&self) -> Told {
        let mut told = self.engine.told();
        told.insert(
            "recorder".into(),
            "every operation goes to a trace: the figures are not those of the engine".into(),
        );
        told
    }
    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        self.engine.session(&mut |session| work(&mut Recording { session, trace: &self.trace }))
    }
    fn settle(&self) -> Result<()> {
        if self.filling.swap(false, Ordering::AcqRel) {
            note(&self.trace, &[Op::Measure])?;
        }
        self.engine.settle()
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.trace.into_inner().map_err(|_| "a recording thread panicked")?.finish()?;
        self.engine.close()
    }
    fn expiry(&self) -> Expiry {
        self.engine.expiry()
    }
    fn largest_value(&self) -> u64 {
        self.engine.largest_value()
    }
}

/// Writes operations as one piece.
fn note(trace: &Mutex<Writer>, ops: &[Op]) -> Result<()> {
    let mut trace = trace.lock().map_err(|_| "a recording thread panicked")?;
    ops.iter().try_for_each(|op| trace.write(op))
}

struct Recording<'a> {
    session: &'a mut dyn Session,
    trace: &'a Mutex<Writer>,
}

struct Noting<'a> {
    sink: &'a mut dyn Sink,
    ops: &'a mut Vec<Op>,
}

impl Sink for Noting<'_> {
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.ops.push(Op::Put { family, key: key.to_vec(), bytes: value.len() });
        self.sink.put(family, key, value)
    }
    fn delete(&mut self, family: usize, key: &[u8]) -> Result<()> {
        self.ops.push(Op::Delete { family, key: key.to_vec() });
        self.sink.delete(family, key)
    }
}

impl Session for Recording<'_> {
    fn write(&mut self, n: usize, fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>) -> Result<()> {
        let mut ops = Vec::with_capacity(n + 1);
        self.session.write(n, &mut |sink| fill(&mut Noting { sink, ops: &mut ops }))?;
        if ops.len() > 1 {
            ops.insert(0, Op::Batch { n: ops.len() });
        }
        note(self.trace, &ops)
    }
    fn get(&mut self, family: usize, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.session.get(family, key, see)?;
        note(self.trace, &[Op::Get { family, key: key.to_vec() }])
    }
    fn cursor(&mut self, family: usize, work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>) -> Result<()> {
        let trace = self.trace;
        self.session.cursor(family, &mut |cursor| work(&mut Walking { cursor, trace, family }))
    }
}

struct Walking<'a> {
    cursor: &'a mut dyn Cursor,
    trace: &'a Mutex<Writer>,
    family: usize,
}

impl Cursor for Walking<'_> {
    fn scan(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let mut entries = 0;
        self.cursor.scan(key, &mut |k, v| {
            entries += 1;
            see(k, v)
        })?;
        note(self.trace, &[Op::Scan { family: self.family, key: key.to_vec(), entries: entries.max(1) }])
    }
}
