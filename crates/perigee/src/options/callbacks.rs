//! Options that register application code: compaction filters, the log listener, which receives
//! the lines of the info log, and the provider of encryption keys.

use crate::Options;
use perigee_engine::callbacks::{CompactionFilter, LogLevel, LogListener};
use perigee_engine::encryption::encrypt_env;
use perigee_engine::env::encryption::KeyProvider;
use std::sync::Arc;

impl Options {
    /// Registers the compaction filter of the column family `family`, which may be created later.
    /// The filter's name is stored with the column family. From then on the database opens only
    /// with a filter of that name, so entries cannot be compacted under other rules by mistake. Use
    /// [`Options::without_filter`] to remove the filter.
    ///
    /// The filter sees the newest version of a key if no snapshot needs it, and only in compactions
    /// that rewrite the entry: not in flushes or bulk loads, and not when a table is moved to
    /// another level unchanged. Entries that the filter would drop stay readable until they are
    /// compacted. A snapshot taken while a compaction runs may see its effects.
    ///
    /// ```
    /// # use perigee::{CompactionFilter, Db, FilterDecision, FilterEntry, Options, Result};
    /// # use std::sync::Arc;
    /// /// Drops the sessions.
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
    /// db.admin().compact()?;
    /// assert_eq!(db.iter()?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn compaction_filter(mut self, family: &str, filter: Arc<dyn CompactionFilter>) -> Self {
        self.compaction_filters.register(family, Some(filter));
        self
    }
    /// Removes the compaction filter of the column family `family`, if it has one.
    #[must_use]
    pub fn without_filter(mut self, family: &str) -> Self {
        self.compaction_filters.register(family, None);
        self
    }
    /// Calls `listener` for every line of the info log (the file `LOG`) with at least the given
    /// level, from open to close, even if the file is not written. A line is passed without its
    /// timestamp: first a word for the subject, such as `flush`, then the details.
    /// [`LogLevel::Debug`] adds lines that the file does not contain. A failed open is reported
    /// too.
    ///
    /// The listener runs on a thread of its own, and on the threads that open and close the
    /// database. It receives one line at a time, in order, and is called with no locks held. It may
    /// call the database, but must not close it (`InvalidArgument`) or own its last handle. A slow
    /// listener does not delay the database: up to 1,024 lines are queued. Beyond that the oldest
    /// are dropped, and the listener gets a line with their number. If it panics, only that call
    /// ends. [`Db::close`](crate::Db::close) waits until the queued lines are delivered; afterwards
    /// the listener is not called again.
    ///
    /// ```
    /// # use perigee::{Db, LogLevel, Options};
    /// # use std::sync::{Arc, Mutex};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let options = Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() });
    /// let lines = Arc::new(Mutex::new(Vec::new()));
    /// let received = Arc::clone(&lines);
    /// let listen = move |level: LogLevel, line: &str| {
    ///     received.lock().unwrap().push(format!("{} {line}", level.name()));
    /// };
    /// let db = Db::open("/doc", options.log_listener(LogLevel::Info, listen))?;
    /// db.put("moon", "full")?;
    /// db.admin().flush()?;
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
    /// Encrypts the files of the database with AES-256, with the keys of `keys`. Protects keys,
    /// values and names of column families on a stolen disk or backup; does not hide file names and
    /// sizes, and does not detect a deliberate change of the files. The info log
    /// (`LOG`) is not encrypted; it contains names of column families, but no keys or values.
    ///
    /// Every later open needs the keys, and so do checkpoints and backups, which are encrypted too
    /// (open those of another process with [`encrypt_env`](crate::encryption::encrypt_env)).
    /// A database that exists is encrypted file by file, as compactions rewrite it. Sets
    /// [`Options::env`], so call it after choosing the environment. Not stored in options files.
    ///
    /// ```
    /// use perigee::encryption::KeyRing;
    /// use perigee::{Db, ErrorKind, Options};
    /// use std::sync::Arc;
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
    ///
    /// // An application gets its keys from a key management service or a protected file.
    /// let keys = KeyRing::new([0x5A; 32]);
    /// let options = Options::in_env(env.clone()).encryption(Arc::new(keys.clone()));
    /// let db = Db::open("/doc", options)?;
    /// db.put("card", "4000 1234")?;
    /// db.close()?;
    /// // Without the keys, the database cannot be opened.
    /// let e = Db::open("/doc", Options::in_env(env.clone())).unwrap_err();
    /// assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    /// assert!(e.to_string().contains("the file is encrypted"));
    /// // Rotation: new files use version 2, existing files stay readable with version 1.
    /// let rotated = keys.with_version(2, [0xA5; 32]);
    /// let db = Db::open("/doc", Options::in_env(env).encryption(Arc::new(rotated)))?;
    /// assert_eq!(db.get("card")?.as_deref(), Some(&b"4000 1234"[..]));
    /// # Ok::<(), perigee::Error>(())
    /// ```
    #[must_use]
    pub fn encryption(mut self, keys: Arc<dyn KeyProvider>) -> Self {
        self.env = encrypt_env(self.env, keys);
        self
    }
}
