//! Commit hooks: application code that runs after each commit to a column family.

use crate::Family;
use perigee_engine::callbacks::HookEvent;
use perigee_engine::{BytesPreview, KeyBoundaryRef, ValueRef};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// An operation of a commit, as passed to a commit hook.
#[derive(Clone, Copy, PartialEq, Eq)]
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
        /// Expiry time in milliseconds since the Unix epoch; `None`: never expires.
        expires_at_ms: Option<u64>,
    },
    /// A key was deleted, by a delete or a single delete.
    Delete {
        /// Sequence number of the operation.
        sequence: u64,
        /// The key.
        key: &'a [u8],
    },
    /// An operand was merged into a key.
    Merge {
        /// Sequence number of the operation.
        sequence: u64,
        /// The key.
        key: &'a [u8],
        /// The operand. To get the resulting value, read the key.
        operand: &'a [u8],
    },
    /// A range of keys was deleted.
    DeleteRange {
        /// Sequence number of the operation.
        sequence: u64,
        /// Start of the range.
        start: Bound<&'a [u8]>,
        /// End of the range.
        end: Bound<&'a [u8]>,
    },
}

/// Prints only the first bytes of keys and values.
impl fmt::Debug for CommitOperation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            CommitOperation::Put { sequence, key, value, expires_at_ms: None } => {
                write!(f, "Put({sequence}, {:?}, {:?})", BytesPreview(key), BytesPreview(value))
            }
            CommitOperation::Put { sequence, key, value, expires_at_ms: Some(ms) } => {
                write!(
                    f,
                    "Put({sequence}, {:?}, {:?}, until {ms} ms)",
                    BytesPreview(key),
                    BytesPreview(value)
                )
            }
            CommitOperation::Delete { sequence, key } => {
                write!(f, "Delete({sequence}, {:?})", BytesPreview(key))
            }
            CommitOperation::Merge { sequence, key, operand } => {
                write!(f, "Merge({sequence}, {:?}, {:?})", BytesPreview(key), BytesPreview(operand))
            }
            CommitOperation::DeleteRange { sequence, start, end } => {
                write!(
                    f,
                    "DeleteRange({sequence}, {:?}, {:?})",
                    start.map(BytesPreview),
                    end.map(BytesPreview)
                )
            }
        }
    }
}

/// Converts a key boundary to the start bound (`begins`) or end bound of a range.
pub(crate) fn cut_to_bound(cut: KeyBoundaryRef<'_>, begins: bool) -> Bound<&[u8]> {
    match (cut, begins) {
        (KeyBoundaryRef::First | KeyBoundaryRef::Last, _) => Bound::Unbounded,
        (KeyBoundaryRef::Before(k), true) | (KeyBoundaryRef::After(k), false) => Bound::Included(k),
        (KeyBoundaryRef::After(k), true) | (KeyBoundaryRef::Before(k), false) => Bound::Excluded(k),
    }
}

/// The operations of one commit on one column family, passed to a commit hook
/// ([`Family::on_commit`]).
pub struct CommitEvent<'a>(&'a HookEvent);

/// Prints the sequence numbers, not the operations.
impl fmt::Debug for CommitEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommitEvent(sequence {}, commit {})", self.sequence(), self.commit_sequence())
    }
}

impl CommitEvent<'_> {
    /// Returns the sequence number of the first operation in this event.
    ///
    /// ```
    /// # use perigee::*;
    /// # use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let seen = Arc::new(AtomicU64::new(0));
    /// # let newest = Arc::clone(&seen);
    /// family.on_commit(move |event| newest.store(event.sequence(), Relaxed));
    /// family.put("moon", "full")?;
    /// assert_eq!(seen.load(Relaxed), 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn sequence(&self) -> u64 {
        self.0.first_seq().0
    }
    /// Returns the sequence number of the first operation of the whole commit. It is the same in
    /// the events of one commit for several column families, and increases with each commit.
    ///
    /// ```
    /// # use perigee::*;
    /// # use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let seen = Arc::new(AtomicU64::new(0));
    /// # let newest = Arc::clone(&seen);
    /// family.on_commit(move |event| newest.store(event.commit_sequence(), Relaxed));
    /// db.put("sun", "up")?;
    /// db.write([("moon", "full"), ("tide", "high")].into_iter().collect())?; // 2 and 3
    /// assert_eq!(seen.load(Relaxed), 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn commit_sequence(&self) -> u64 {
        self.0.batch_seq().0
    }
    /// Returns the number of entries added, deletes included, if the commit was a spilled
    /// transaction ([`TxnOptions::spill_bytes`](crate::TxnOptions::spill_bytes)); otherwise `None`.
    /// The entries of such a transaction are not listed: [`CommitEvent::operations`] is empty, and
    /// the hook has to read the column family.
    ///
    /// ```
    /// # use perigee::*;
    /// # use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let seen = Arc::new(AtomicU64::new(0));
    /// # let newest = Arc::clone(&seen);
    /// family.on_commit(move |event| {
    ///     let listed = event.operations().count() as u64;
    ///     newest.store(event.entries_loaded().unwrap_or(listed), Relaxed);
    /// });
    /// family.put("moon", "full")?;
    /// assert_eq!(seen.load(Relaxed), 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn entries_loaded(&self) -> Option<u64> {
        self.0.entries_loaded()
    }
    /// Returns the operations on this column family, in the order of the batch.
    ///
    /// ```
    /// # use perigee::*;
    /// # use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let seen = Arc::new(AtomicU64::new(0));
    /// # let newest = Arc::clone(&seen);
    /// family.on_commit(move |event| newest.store(event.operations().count() as u64, Relaxed));
    /// db.write([("moon", "full"), ("tide", "high")].into_iter().collect())?;
    /// assert_eq!(seen.load(Relaxed), 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn operations(&self) -> impl Iterator<Item = CommitOperation<'_>> {
        let buf = self.0.buffer();
        self.0.operations().map(move |(seq, op)| {
            let (sequence, key) = (seq.0, &buf[op.key.clone()]);
            if let Some((begin, end)) = op.deleted_range_in(buf) {
                return CommitOperation::DeleteRange {
                    sequence,
                    start: cut_to_bound(begin, true),
                    end: cut_to_bound(end, false),
                };
            }
            match op.value_in(buf) {
                Ok(ValueRef::Inline(value)) => {
                    CommitOperation::Put { sequence, key, value, expires_at_ms: None }
                }
                Ok(ValueRef::InlineExpiring(value, until)) => {
                    CommitOperation::Put { sequence, key, value, expires_at_ms: Some(until.0) }
                }
                Ok(ValueRef::Operand(operand)) => CommitOperation::Merge { sequence, key, operand },
                _ => CommitOperation::Delete { sequence, key },
            }
        })
    }
}

impl Family {
    /// Sets the commit hook of this column family. `hook` is called once for every batch that
    /// writes to it, in commit order, after the batch has become visible and as durable as
    /// requested. There is one hook per column family: a second call replaces the first. Hooks are
    /// not stored: set them after each open. Bulk loads and ingestions do not call the hook; for
    /// spilled transactions, see [`CommitEvent::entries_loaded`].
    ///
    /// The hook runs on the committing thread (never on another) before the commit returns, with no
    /// engine locks held. The thread first waits until the hook has finished for earlier commits to
    /// this column family: calls for one column family never overlap, a slow hook delays only
    /// writers of its own column family, and a hook must not wait for another thread's commit to
    /// it. The hook may read and write the database: commits made inside a hook return immediately,
    /// and their hooks run after it has returned. If a hook panics, only that call ends: the commit
    /// stands, and later batches call the hook as before.
    ///
    /// ```
    /// # use perigee::changes::CommitOperation;
    /// # use perigee::{Db, Options};
    /// # use std::sync::{Arc, Mutex};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let log = Arc::new(Mutex::new(Vec::new()));
    /// let received = Arc::clone(&log);
    /// db.default_family().on_commit(move |commit| {
    ///     for operation in commit.operations() {
    ///         if let CommitOperation::Put { key, .. } = operation {
    ///             received.lock().unwrap().push((commit.sequence(), key.to_vec()));
    ///         }
    ///     }
    /// });
    /// db.put("moon", "full")?;
    /// assert_eq!(*log.lock().unwrap(), [(1, b"moon".to_vec())]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_commit(&self, hook: impl Fn(&CommitEvent<'_>) + Send + Sync + 'static) {
        self.inner.set_hook(Some(Arc::new(move |event: &HookEvent| {
            check!(
                event.entries_loaded().is_some() || event.operations().next().is_some(),
                "a hook is called for commits that write to its column family",
                CommitEvent(event)
            );
            hook(&CommitEvent(event));
        })));
    }
    /// Removes the commit hook. The hook may still be called for batches committed before.
    ///
    /// ```
    /// # use perigee::*;
    /// # use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let seen = Arc::new(AtomicU64::new(0));
    /// # let newest = Arc::clone(&seen);
    /// family.on_commit(move |event| newest.store(event.sequence(), Relaxed));
    /// family.clear_commit_hook();
    /// family.put("moon", "full")?;
    /// assert_eq!(seen.load(Relaxed), 0); // not called
    /// # Ok::<(), Error>(())
    /// ```
    pub fn clear_commit_hook(&self) {
        self.inner.set_hook(None);
    }
}
