//! Wraps any engine and writes every successful operation to a trace (`perigee-bench trace
//! record`).
//!
//! Operations of several threads are written in the order in which they end.

use crate::engine::{Cursor, EffectiveOptions, Engine, Result, Session, Sink, TtlSupport};
use crate::trace::{TraceOp, TraceWriter};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wraps `engine` and records its operations into `trace`. If `filled`, the trace is marked after
/// the first `wait_idle`, which ends the load.
pub fn record(engine: Box<dyn Engine>, trace: TraceWriter, filled: bool) -> Box<dyn Engine> {
    Box::new(RecordedEngine { engine, trace: Mutex::new(trace), loading: AtomicBool::new(filled) })
}

struct RecordedEngine {
    engine: Box<dyn Engine>,
    trace: Mutex<TraceWriter>,
    loading: AtomicBool,
}

impl Engine for RecordedEngine {
    fn version(&self) -> String {
        self.engine.version()
    }
    fn effective_options(&self) -> EffectiveOptions {
        let mut effective = self.engine.effective_options();
        effective.insert(
            "recorder".into(),
            "every operation goes to a trace: the figures are not those of the engine".into(),
        );
        effective
    }
    fn with_session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        self.engine.with_session(&mut |session| {
            work(&mut RecordingSession { session, trace: &self.trace })
        })
    }
    fn wait_idle(&self) -> Result<()> {
        if self.loading.swap(false, Ordering::AcqRel) {
            write_ops(&self.trace, &[TraceOp::Measure])?;
        }
        self.engine.wait_idle()
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.trace.into_inner().map_err(|_| "a recording thread panicked")?.finish()?;
        self.engine.close()
    }
    fn ttl_support(&self) -> TtlSupport {
        self.engine.ttl_support()
    }
    fn max_value_bytes(&self) -> u64 {
        self.engine.max_value_bytes()
    }
}

/// Writes operations without others in between.
fn write_ops(trace: &Mutex<TraceWriter>, ops: &[TraceOp]) -> Result<()> {
    let mut trace = trace.lock().map_err(|_| "a recording thread panicked")?;
    ops.iter().try_for_each(|op| trace.write(op))
}

struct RecordingSession<'a> {
    session: &'a mut dyn Session,
    trace: &'a Mutex<TraceWriter>,
}

struct RecordingSink<'a> {
    sink: &'a mut dyn Sink,
    ops: &'a mut Vec<TraceOp>,
}

impl Sink for RecordingSink<'_> {
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.ops.push(TraceOp::Put { family, key: key.to_vec(), bytes: value.len() });
        self.sink.put(family, key, value)
    }
    fn delete(&mut self, family: usize, key: &[u8]) -> Result<()> {
        self.ops.push(TraceOp::Delete { family, key: key.to_vec() });
        self.sink.delete(family, key)
    }
}

impl Session for RecordingSession<'_> {
    fn write(&mut self, n: usize, fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>) -> Result<()> {
        let mut ops = Vec::with_capacity(n + 1);
        self.session.write(n, &mut |sink| fill(&mut RecordingSink { sink, ops: &mut ops }))?;
        if ops.len() > 1 {
            ops.insert(0, TraceOp::Batch { n: ops.len() });
        }
        write_ops(self.trace, &ops)
    }
    fn get(&mut self, family: usize, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.session.get(family, key, see)?;
        write_ops(self.trace, &[TraceOp::Get { family, key: key.to_vec() }])
    }
    fn with_cursor(
        &mut self,
        family: usize,
        work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>,
    ) -> Result<()> {
        let trace = self.trace;
        self.session
            .with_cursor(family, &mut |cursor| work(&mut RecordingCursor { cursor, trace, family }))
    }
}

struct RecordingCursor<'a> {
    cursor: &'a mut dyn Cursor,
    trace: &'a Mutex<TraceWriter>,
    family: usize,
}

impl Cursor for RecordingCursor<'_> {
    fn scan(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let mut entries = 0;
        self.cursor.scan(key, &mut |k, v| {
            entries += 1;
            see(k, v)
        })?;
        write_ops(
            self.trace,
            &[TraceOp::Scan { family: self.family, key: key.to_vec(), entries: entries.max(1) }],
        )
    }
}
