//! Events of interest to an operator, reported from one place: to the log file, to the user's
//! listener and (feature `tracing`) to subscribers. Events are reported after the fact; nothing
//! depends on them.

use crate::runtime::info_log::{InfoLog, sanitize_line};
use crate::runtime::listener_queue::ListenerQueue;
use crate::settings::log_listener::{LogLevel, LogListener};
use perigee_base::Error;
use std::fmt::{self, Display};

/// An event.
#[derive(Debug)]
pub enum EngineEvent<'a> {
    /// The database is open.
    Opened {
        /// What recovery found and did, as text.
        recovery: String,
        /// True if a damaged end of the log was cut off.
        log_truncated: bool,
        /// The options, as text.
        options: String,
    },
    /// A job starts.
    JobStarted {
        /// The kind of job: `flush` or `compaction`.
        kind: &'a str,
        /// Its column family or families.
        family: &'a str,
        /// The reason.
        reason: &'a str,
        /// Bytes of its inputs.
        bytes: u64,
    },
    /// A memtable was flushed.
    Flushed {
        /// Its column family.
        family: &'a str,
        /// Entries in the memtable.
        entries: u64,
        /// Tables written.
        files: usize,
        /// Bytes written.
        bytes: u64,
        /// Duration in microseconds.
        us: u64,
    },
    /// Tables were compacted.
    Compacted {
        /// Their column family.
        family: &'a str,
        /// The reason.
        reason: &'a str,
        /// Levels of the inputs.
        from: &'a [u8],
        /// Level of the outputs.
        to: u8,
        /// Tables before and after.
        files: (usize, usize),
        /// Bytes before and after.
        bytes: (u64, u64),
        /// Entries before and after.
        entries: (u64, u64),
        /// Duration in microseconds.
        us: u64,
    },
    /// The scrub has completed a pass over all files.
    Scrubbed {
        /// Files read.
        files: u64,
        /// Their bytes.
        bytes: u64,
        /// Damaged ones among them.
        errors: u64,
        /// Duration of the pass in microseconds.
        us: u64,
    },
    /// A writer that was stopped by back-pressure continues.
    Stalled {
        /// The reason.
        reason: &'a str,
        /// Duration of the stall in microseconds.
        us: u64,
    },
    /// A column family was changed.
    FamilyChanged {
        /// The change: `created`, `dropped`, ...
        what: &'a str,
        /// Name of the column family.
        name: &'a str,
    },
    /// Background work was paused, cancelled or resumed.
    JobsControlled {
        /// The action: `paused`, `cancelled`, ...
        what: &'a str,
    },
    /// An operation failed.
    Failed {
        /// The operation.
        what: &'a str,
        /// The error.
        error: &'a Error,
    },
    /// The database is closed.
    Closed {
        /// The error, if the database was not closed cleanly.
        error: Option<&'a Error>,
    },
}

impl EngineEvent<'_> {
    /// Returns its name: the first word of its line, and the name in traces.
    pub fn name(&self) -> &'static str {
        match self {
            EngineEvent::Opened { .. } => "open",
            EngineEvent::JobStarted { .. } => "begin",
            EngineEvent::Flushed { .. } => "flush",
            EngineEvent::Compacted { .. } => "compaction",
            EngineEvent::Scrubbed { .. } => "scrub",
            EngineEvent::Stalled { .. } => "stall",
            EngineEvent::FamilyChanged { .. } => "family",
            EngineEvent::JobsControlled { .. } => "control",
            EngineEvent::Failed { .. } => "error",
            EngineEvent::Closed { .. } => "close",
        }
    }
    /// Returns its log level.
    pub fn level(&self) -> LogLevel {
        match self {
            EngineEvent::Failed { .. } | EngineEvent::Closed { error: Some(_) } => LogLevel::Error,
            EngineEvent::Stalled { .. } | EngineEvent::Opened { log_truncated: true, .. } => {
                LogLevel::Warn
            }
            EngineEvent::Scrubbed { errors, .. } if *errors > 0 => LogLevel::Warn,
            EngineEvent::JobStarted { .. } => LogLevel::Debug,
            _ => LogLevel::Info,
        }
    }
}

impl Display for EngineEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineEvent::Opened { recovery, options, .. } => write!(f, "{recovery}; {options}"),
            EngineEvent::JobStarted { kind, family, reason, bytes } => {
                write!(f, "{kind} of column family {family:?} ({reason}), {bytes} bytes")
            }
            EngineEvent::Flushed { family, entries, files, bytes, us } => {
                write!(
                    f,
                    "column family {family:?}: {entries} entries to {files} tables, {bytes} bytes, \
                     {us} us"
                )
            }
            EngineEvent::Compacted { family, reason, from, to, files, bytes, entries, us } => {
                write!(
                    f,
                    "column family {family:?} ({reason}): levels {from:?} to {to}, tables {} to {}, \
                 bytes {} to {}, entries {} to {}, \
                 {us} us",
                    files.0, files.1, bytes.0, bytes.1, entries.0, entries.1
                )
            }
            EngineEvent::Scrubbed { files, bytes, errors, us } => {
                write!(f, "{files} files, {bytes} bytes, {errors} damaged, {us} us")
            }
            EngineEvent::Stalled { reason, us } => write!(f, "a writer waited {us} us ({reason})"),
            EngineEvent::FamilyChanged { what, name } => write!(f, "{name:?} {what}"),
            EngineEvent::JobsControlled { what } => write!(f, "background work {what}"),
            EngineEvent::Failed { what, error } => write!(f, "{what}: {error}"),
            EngineEvent::Closed { error: None } => write!(f, "cleanly"),
            EngineEvent::Closed { error: Some(e) } => write!(f, "not cleanly: {e}"),
        }
    }
}

/// Reports a failed open to the listener; there is no log file or tracing span yet.
pub fn report_failed_open(listener: Option<LogListener>, error: &Error) {
    let (listener_queue, event) =
        (ListenerQueue::new(listener), EngineEvent::Failed { what: "open", error });
    listener_queue.enqueue(event.level(), || event_line(&event));
    listener_queue.deliver();
}

fn event_line(event: &EngineEvent<'_>) -> String {
    sanitize_line(&format!("{:<11}{event}", event.name()))
}

/// Reports an event. The listener is not called here, because this thread may hold locks; returns
/// true if the event was queued for it.
pub fn emit(log: &InfoLog, listener_queue: &ListenerQueue, event: &EngineEvent<'_>) -> bool {
    let level = event.level();
    if level > LogLevel::Debug {
        log.write_line(format_args!("{:<11}{event}", event.name()));
    }
    emit_trace(event);
    listener_queue.enqueue(level, || event_line(event))
}

#[cfg(feature = "tracing")]
fn emit_trace(event: &EngineEvent<'_>) {
    match event.level() {
        LogLevel::Error => tracing::error!(target: "perigee", event = event.name(), "{event}"),
        LogLevel::Warn => tracing::warn!(target: "perigee", event = event.name(), "{event}"),
        LogLevel::Info => tracing::info!(target: "perigee", event = event.name(), "{event}"),
        LogLevel::Debug => tracing::debug!(target: "perigee", event = event.name(), "{event}"),
    }
}

#[cfg(not(feature = "tracing"))]
fn emit_trace(_: &EngineEvent<'_>) {}

/// A span that ends when it is dropped; empty without the feature `tracing`.
#[derive(Debug)]
pub struct TraceSpan {
    #[cfg(feature = "tracing")]
    _entered: tracing::span::EnteredSpan,
}

/// Enters a span: `open`, `recovery`, `flush`, `compaction`, `stall` or `family`; `subject`
/// identifies the object, for example the column family.
#[cfg(feature = "tracing")]
pub fn enter_span(name: &'static str, subject: &str) -> TraceSpan {
    TraceSpan {
        _entered: tracing::info_span!(target: "perigee", "perigee", what = name, subject).entered(),
    }
}

/// Does nothing without the feature `tracing`.
#[cfg(not(feature = "tracing"))]
pub fn enter_span(_name: &'static str, _subject: &str) -> TraceSpan {
    TraceSpan {}
}
