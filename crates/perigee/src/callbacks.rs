//! Users' code that options carry: compaction filters, and the log listener, which is told the
//! lines of the file `LOG` for a program that has a log of its own.

use crate::Options;
use perigee_engine::log_listener::{LogLevel, LogListener};
use perigee_tree::rewrite::CompactionFilter;
use std::sync::Arc;

impl Options {
    /// Registers the compaction filter of a family that exists or will be created: it is asked
    /// about entries as they are compacted. Its name is stored with the family, which from then on
    /// opens only with a filter of that name, so that nobody compacts by other rules unawares;
    /// [`Options::without_filter`] gives it up.
    ///
    /// It is asked about the newest version of a key if no snapshot sees it, in compactions only:
    /// not in flushes, bulk loads or where a table is moved unchanged. So entries that it would
    /// drop can be read until they are compacted, and a snapshot taken while a compaction runs may
    /// see its effect.
    ///
    /// ```
    /// # use perigee::{CompactionFilter, Db, FilterDecision, FilterEntry, Options, Result};
    /// # use std::sync::Arc;
    /// /// DropPrefixFilter sessions.
    /// struct Sessions;
    /// impl CompactionFilter for Sessions {
    ///     fn name(&self) -> &str {
    ///         "sessions"
    ///     }
    ///     fn decide(&self, entry: &FilterEntry<'_>) -> Result<FilterDecision> {
    ///         let drop = entry.key().starts_with(b"session/");
    ///         Ok(if drop { FilterDecision::Drop } else { FilterDecision::Keep })
    ///     }
    /// }
    /// # fn main() -> Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let options = Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() });
    /// let db = Db::open("/doc", options.compaction_filter("default", Arc::new(Sessions)))?;
    /// db.put("session/1", "...")?;
    /// db.put("user/1", "...")?;
    /// db.compact()?;
    /// assert_eq!(db.iter()?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn compaction_filter(mut self, family: &str, filter: Arc<dyn CompactionFilter>) -> Self {
        self.compaction_filters.register(family, Some(filter));
        self
    }
    /// The family has no compaction filter any more, whatever it had.
    #[must_use]
    pub fn without_filter(mut self, family: &str) -> Self {
        self.compaction_filters.register(family, None);
        self
    }
    /// From open to close `listener` is told every line that goes to the file `LOG` (whether that
    /// is written or not) and is at least as important as `level`, without its time: first a word
    /// that says what it is about, then what happened. With [`LogLevel::Debug`] it hears of more
    /// than the file. A failure to open is told, too.
    ///
    /// It runs on a thread of its own (and on those that open and close), one line at a time, in
    /// order, with nothing locked: it may call the database, but not close it (`InvalidArgument`),
    /// nor have its last handle. While it takes its time the others go on, and up to 1,024 lines
    /// wait; beyond that the oldest are lost, which it is told. If it panics that call ends. A
    /// close waits for it; after [`Db::close`](crate::Db::close) it is not called any more.
    ///
    /// ```
    /// # use perigee::{Db, LogLevel, Options};
    /// # use std::sync::{Arc, Mutex};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let options = Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() });
    /// let lines = Arc::new(Mutex::new(Vec::new()));
    /// let heard = Arc::clone(&lines);
    /// let listen = move |level: LogLevel, line: &str| heard.lock().unwrap().push(format!("{} {line}", level.name()));
    /// let db = Db::open("/doc", options.log_listener(LogLevel::Info, listen))?;
    /// db.put("moon", "full")?;
    /// db.flush()?;
    /// db.close()?;
    /// let lines = lines.lock().unwrap();
    /// assert!(lines[0].starts_with("info open "));
    /// assert!(lines.iter().any(|l| l.starts_with("info flush ")));
    /// assert!(lines.last().unwrap().starts_with("info close "));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn log_listener(
        mut self,
        level: LogLevel,
        listener: impl Fn(LogLevel, &str) + Send + Sync + 'static,
    ) -> Self {
        self.listener = Some(LogListener { level, callback: Arc::new(listener) });
        self
    }
}
