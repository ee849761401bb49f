//! What happens that an operator may want to know, told in one place: to the log file, to the user's listener, and (feature
//! `tracing`) to whoever subscribed. Told after the fact; nothing depends on it.

use crate::info_log::{InfoLog, one_line};
use crate::listener::{Audience, Listener, LogLevel};
use perigee_base::Error;
use std::fmt::{self, Display};

/// Something that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// The database is open.
    Opened {
        /// What recovery found and did, in words.
        recovery: String,
        /// Whether anything had to be cut.
        cut: bool,
        /// The options, in words.
        options: String,
    },
    /// A job begins.
    Begun {
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
    Family {
        /// How: `created`, `dropped`, ...
        what: &'a str,
        /// Which.
        name: &'a str,
    },
    /// Background work was held back or let go.
    Control {
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

impl Event<'_> {
    /// Its name: the first word of its line, and the name in traces.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Opened { .. } => "open",
            Event::Begun { .. } => "begin",
            Event::Flushed { .. } => "flush",
            Event::Compacted { .. } => "compaction",
            Event::Scrubbed { .. } => "scrub",
            Event::Stalled { .. } => "stall",
            Event::Family { .. } => "family",
            Event::Control { .. } => "control",
            Event::Failed { .. } => "error",
            Event::Closed { .. } => "close",
        }
    }
    /// How much it matters.
    pub fn level(&self) -> LogLevel {
        match self {
            Event::Failed { .. } | Event::Closed { error: Some(_) } => LogLevel::Error,
            Event::Stalled { .. } | Event::Opened { cut: true, .. } => LogLevel::Warn,
            Event::Scrubbed { errors, .. } if *errors > 0 => LogLevel::Warn,
            Event::Begun { .. } => LogLevel::Debug,
            _ => LogLevel::Info,
        }
    }
}

impl Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Opened { recovery, options, .. } => write!(f, "{recovery}; {options}"),
            Event::Begun { kind, family, reason, bytes } => {
                write!(f, "{kind} of family {family:?} ({reason}), {bytes} bytes")
            }
            Event::Flushed { family, entries, files, bytes, us } => {
                write!(f, "family {family:?}: {entries} entries to {files} tables, {bytes} bytes, {us} us")
            }
            Event::Compacted { family, reason, from, to, files, bytes, entries, us } => write!(
                f,
                "family {family:?} ({reason}): levels {from:?} to {to}, tables {} to {}, bytes {} to {}, entries {} to {}, \
                 {us} us",
                files.0, files.1, bytes.0, bytes.1, entries.0, entries.1
            ),
            Event::Scrubbed { files, bytes, errors, us } => {
                write!(f, "{files} files, {bytes} bytes, {errors} damaged, {us} us")
            }
            Event::Stalled { reason, us } => write!(f, "a writer waited {us} us ({reason})"),
            Event::Family { what, name } => write!(f, "{name:?} {what}"),
            Event::Control { what } => write!(f, "background work {what}"),
            Event::Failed { what, error } => write!(f, "{what}: {error}"),
            Event::Closed { error: None } => write!(f, "cleanly"),
            Event::Closed { error: Some(e) } => write!(f, "not cleanly: {e}"),
        }
    }
}

/// Tells a listener that an open failed: there is nobody else yet, nor a log.
pub fn refused(listener: Option<Listener>, error: &Error) {
    let (audience, event) = (Audience::new(listener), Event::Failed { what: "open", error });
    audience.push(event.level(), || line(&event));
    audience.call();
}

fn line(event: &Event<'_>) -> String {
    one_line(&format!("{:<11}{event}", event.name()))
}

/// Tells an event. The listener is not called here, this thread may hold locks: whether there is something for it now.
pub fn tell(log: &InfoLog, audience: &Audience, event: &Event<'_>) -> bool {
    let level = event.level();
    if level > LogLevel::Debug {
        log.line(format_args!("{:<11}{event}", event.name()));
    }
    trace(event);
    audience.push(level, || line(event))
}

#[cfg(feature = "tracing")]
fn trace(event: &Event<'_>) {
    match event.level() {
        LogLevel::Error => tracing::error!(target: "perigee", event = event.name(), "{event}"),
        LogLevel::Warn => tracing::warn!(target: "perigee", event = event.name(), "{event}"),
        LogLevel::Info => tracing::info!(target: "perigee", event = event.name(), "{event}"),
        LogLevel::Debug => tracing::debug!(target: "perigee", event = event.name(), "{event}"),
    }
}

#[cfg(not(feature = "tracing"))]
fn trace(_: &Event<'_>) {}

/// A span that lasts until it is dropped; without the feature nothing at all.
#[derive(Debug)]
pub struct Span {
    #[cfg(feature = "tracing")]
    _entered: tracing::span::EnteredSpan,
}

/// Enters a span: `open`, `recovery`, `flush`, `compaction`, `stall`, `family`; `subject` says which, for example the family.
#[cfg(feature = "tracing")]
pub fn span(name: &'static str, subject: &str) -> Span {
    Span { _entered: tracing::info_span!(target: "perigee", "perigee", what = name, subject).entered() }
}

/// Without the feature nothing is entered.
#[cfg(not(feature = "tracing"))]
pub fn span(_name: &'static str, _subject: &str) -> Span {
    Span {}
}
