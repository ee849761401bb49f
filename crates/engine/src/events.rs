//! What happens that an operator may want to know, told in one place: to the log file, to the
//! user's listener, and (feature `tracing`) to whoever subscribed. Told after the fact; nothing
//! depends on it.

use crate::info_log::{InfoLog, sanitize_line};
use crate::log_listener::{ListenerQueue, LogLevel, LogListener};
use perigee_base::Error;
use std::fmt::{self, Display};

/// Something that happened.
#[derive(Debug)]
pub enum EngineEvent<'a> {
    /// The database is open.
    Opened {
        /// What recovery found and did, in words.
        recovery: String,
        /// Whether anything had to be cut.
        log_truncated: bool,
        /// The options, in words.
        options: String,
    },
    /// A job begins.
    JobStarted {
        /// What kind: a flush, a compaction.
        kind: &'a str,
        /// Its family, or families.
        family: &'a str,
        /// Why.
        reason: &'a str,
        /// Bytes of its inputs.
        bytes: u64,
    },
    /// A memtable became tables.
    Flushed {
        /// Its family.
        family: &'a str,
        /// Entries in it.
        entries: u64,
        /// Tables made.
        files: usize,
        /// Bytes written.
        bytes: u64,
        /// How long it took.
        us: u64,
    },
    /// Tables became tables.
    Compacted {
        /// Their family.
        family: &'a str,
        /// Why.
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
        /// How long it took.
        us: u64,
    },
    /// The scrub has read every file once.
    Scrubbed {
        /// Files read.
        files: u64,
        /// Their bytes.
        bytes: u64,
        /// Damaged ones among them.
        errors: u64,
        /// How long the pass took.
        us: u64,
    },
    /// A writer was stopped by back-pressure and goes on.
    Stalled {
        /// Why.
        reason: &'a str,
        /// For how long.
        us: u64,
    },
    /// Families were changed.
    FamilyChanged {
        /// How: `created`, `dropped`, ...
        what: &'a str,
        /// Which.
        name: &'a str,
    },
    /// Background work was held back or let go.
    JobsControlled {
        /// What was asked: `paused`, `resumed`, ...
        what: &'a str,
    },
    /// Something failed.
    Failed {
        /// What was done.
        what: &'a str,
        /// Why it failed.
        error: &'a Error,
    },
    /// The database is closed.
    Closed {
        /// Why it is not closed cleanly.
        error: Option<&'a Error>,
    },
}

impl EngineEvent<'_> {
    /// Its name: the first word of its line, and the name in traces.
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
    /// How much it matters.
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
                write!(f, "{kind} of family {family:?} ({reason}), {bytes} bytes")
            }
            EngineEvent::Flushed { family, entries, files, bytes, us } => {
                write!(
                    f,
                    "family {family:?}: {entries} entries to {files} tables, {bytes} bytes, {us} us"
                )
            }
            EngineEvent::Compacted { family, reason, from, to, files, bytes, entries, us } => {
                write!(
                    f,
                    "family {family:?} ({reason}): levels {from:?} to {to}, tables {} to {}, bytes {} to {}, entries {} to {}, \
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

/// Tells a listener that an open failed: there is nobody else yet, nor a log.
pub fn report_failed_open(listener: Option<LogListener>, error: &Error) {
    let (audience, event) =
        (ListenerQueue::new(listener), EngineEvent::Failed { what: "open", error });
    audience.enqueue(event.level(), || event_line(&event));
    audience.deliver();
}

fn event_line(event: &EngineEvent<'_>) -> String {
    sanitize_line(&format!("{:<11}{event}", event.name()))
}

/// Tells an event. The listener is not called here, this thread may hold locks: whether there is
/// something for it now.
pub fn emit(log: &InfoLog, audience: &ListenerQueue, event: &EngineEvent<'_>) -> bool {
    let level = event.level();
    if level > LogLevel::Debug {
        log.write_line(format_args!("{:<11}{event}", event.name()));
    }
    emit_trace(event);
    audience.enqueue(level, || event_line(event))
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

/// A span that lasts until it is dropped; without the feature nothing at all.
#[derive(Debug)]
pub struct TraceSpan {
    #[cfg(feature = "tracing")]
    _entered: tracing::span::EnteredSpan,
}

/// Enters a span: `open`, `recovery`, `flush`, `compaction`, `stall`, `family`; `subject` says
/// which, for example the family.
#[cfg(feature = "tracing")]
pub fn enter_span(name: &'static str, subject: &str) -> TraceSpan {
    TraceSpan {
        _entered: tracing::info_span!(target: "perigee", "perigee", what = name, subject).entered(),
    }
}

/// Without the feature nothing is entered.
#[cfg(not(feature = "tracing"))]
pub fn enter_span(_name: &'static str, _subject: &str) -> TraceSpan {
    TraceSpan {}
}
