//! The user's log listener: a callback that receives the lines of the info log, for applications
//! with a log of their own. How lines are delivered: [`crate::runtime::listener_queue`].

use perigee_base::{Error, Result};
use std::sync::Arc;

/// Severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LogLevel {
    /// A job starts. Passed to listeners only, not written to the file `LOG`.
    Debug,
    /// Regular events: open, flush, compaction, changes of column families, close.
    Info,
    /// Needs attention: writers were stopped, the end of a log was cut off.
    Warn,
    /// An operation failed.
    Error,
}

impl LogLevel {
    /// Returns its name: `debug`, `info`, `warn` or `error`.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        }
    }
}

/// Formats as [`LogLevel::name`].
impl std::fmt::Display for LogLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Parses a name.
///
/// # Errors
/// `InvalidArgument` for another text.
impl std::str::FromStr for LogLevel {
    type Err = Error;
    fn from_str(text: &str) -> Result<LogLevel> {
        use LogLevel::{Debug, Error as Severe, Info, Warn};
        let level = [Debug, Info, Warn, Severe].into_iter().find(|level| level.name() == text);
        level.ok_or_else(|| {
            Error::invalid(format!(
                "{text:?} is not one of \"debug\", \"info\", \"warn\", \"error\""
            ))
        })
    }
}

/// The user's callback.
pub type LogListenerFn = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;

/// A callback with the lowest level that it receives.
#[derive(Clone)]
pub struct LogListener {
    /// The lowest level.
    pub level: LogLevel,
    /// The callback.
    pub callback: LogListenerFn,
}

impl std::fmt::Debug for LogListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogListener(from {})", self.level.name())
    }
}
