//! Users' code inside the database: commit hooks (compaction filters are registered in [`crate::Options`]).

use crate::{Db, Family};
use perigee_base::ValueRef;
use perigee_engine::hooks::Event;
use std::sync::Arc;

/// An operation of a commit, as a hook hears it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommitOperation<'a> {
    /// A key was set.
    Put {
        /// Sequence number of the operation.
        sequence: u64,
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// A key was removed.
    Delete {
        /// Sequence number of the operation.
        sequence: u64,
        /// The key.
        key: &'a [u8],
    },
}

/// What one batch did to one family.
#[derive(Debug)]
pub struct CommitEvent<'a>(&'a Event);

impl CommitEvent<'_> {
    /// Sequence number of the first operation.
    pub fn sequence(&self) -> u64 {
        self.0.sequence().0
    }
    /// The operations, in the order of the batch.
    pub fn operations(&self) -> impl Iterator<Item = CommitOperation<'_>> {
        self.0.operations().map(|(seq, key, value)| match value {
            Ok(ValueRef::Inline(value) | ValueRef::InlineUntil(value, _)) => {
                CommitOperation::Put { sequence: seq.0, key, value }
            }
            _ => CommitOperation::Delete { sequence: seq.0, key },
        })
    }
}

impl Family {
    /// From now on `hook` hears of every batch that writes to this family, once each, in commit order, after the batch has
    /// become visible and as durable as its writer asked. One hook a family: a second one replaces the first. It is not
    /// stored: set it after each open. A bulk load or an ingest is not told.
    ///
    /// It runs on the thread of some writer, with no lock held, perhaps after the `write` that caused it has returned on
    /// another thread: that writer's own time is what a slow hook takes, so hand long work to a thread. It may read and
    /// write the database: what it writes is told (to it as well) when it has returned. If it panics that call ends, the
    /// commit stands, and the next batches are told as before.
    ///
    /// ```
    /// # use perigee::{CommitOperation, Db, Options};
    /// # use std::sync::{Arc, Mutex};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let log = Arc::new(Mutex::new(Vec::new()));
    /// let heard = Arc::clone(&log);
    /// db.default_family().on_commit(move |commit| {
    ///     for operation in commit.operations() {
    ///         if let CommitOperation::Put { key, .. } = operation {
    ///             heard.lock().unwrap().push((commit.sequence(), key.to_vec()));
    ///         }
    ///     }
    /// });
    /// db.put("moon", "full")?;
    /// assert_eq!(*log.lock().unwrap(), [(1, b"moon".to_vec())]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_commit(&self, hook: impl Fn(&CommitEvent<'_>) + Send + Sync + 'static) {
        self.inner.set_hook(Some(Arc::new(move |event: &Event| hook(&CommitEvent(event)))));
    }
    /// Takes the commit hook away. Batches committed before may still be told.
    pub fn clear_commit_hook(&self) {
        self.inner.set_hook(None);
    }
}

impl Db {
    /// How many calls of commit hooks have panicked since the database was opened.
    pub fn commit_hook_panics(&self) -> u64 {
        self.default_family().engine.hook_panics()
    }
}
