//! Users' code inside the database: commit hooks (compaction filters are registered in
//! [`crate::Options`]).

use crate::{Db, Family};
use perigee_base::ValueRef;
use perigee_base::key_boundary::KeyBoundaryRef;
use perigee_base::pinned_slice::BytesPreview;
use perigee_engine::commit_hooks::HookEvent;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// An operation of a commit, as a hook hears it.
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
        /// When it expires, in milliseconds since the Unix epoch; `None`: never.
        expires_at_ms: Option<u64>,
    },
    /// A key was removed (by a single delete too).
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
        /// The operand; what the value is then, only a read says.
        operand: &'a [u8],
    },
    /// A range of keys was removed.
    DeleteRange {
        /// Sequence number of the operation.
        sequence: u64,
        /// Where it begins.
        start: Bound<&'a [u8]>,
        /// Where it ends.
        end: Bound<&'a [u8]>,
    },
}

/// Short: the first bytes of keys and values.
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

/// A cut of the keys as the bound of a range that begins, or ends, there.
pub(crate) fn cut_to_bound(cut: KeyBoundaryRef<'_>, begins: bool) -> Bound<&[u8]> {
    match (cut, begins) {
        (KeyBoundaryRef::First | KeyBoundaryRef::Last, _) => Bound::Unbounded,
        (KeyBoundaryRef::Before(k), true) | (KeyBoundaryRef::After(k), false) => Bound::Included(k),
        (KeyBoundaryRef::After(k), true) | (KeyBoundaryRef::Before(k), false) => Bound::Excluded(k),
    }
}

/// What one batch did to one family.
pub struct CommitEvent<'a>(&'a HookEvent);

/// Short: its number, not its operations.
impl fmt::Debug for CommitEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommitEvent(sequence {}, commit {})", self.sequence(), self.commit_sequence())
    }
}

impl CommitEvent<'_> {
    /// Sequence number of the first operation.
    pub fn sequence(&self) -> u64 {
        self.0.first_seq().0
    }
    /// Number of the whole commit, by which events of several families are known to belong
    /// together. It only grows.
    pub fn commit_sequence(&self) -> u64 {
        self.0.batch_seq().0
    }
    /// A transaction larger than memory was committed, which brought so many entries (deletes of
    /// keys among them) into the family: they are not listed, [`CommitEvent::operations`] is empty.
    /// Read the family to know more.
    pub fn entries_loaded(&self) -> Option<u64> {
        self.0.entries_loaded()
    }
    /// The operations, in the order of the batch.
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
    /// From now on `hook` hears of every batch that writes to this family, once each, in commit
    /// order, after the batch has become visible and as durable as its writer asked. One hook a
    /// family: a second one replaces the first. It is not stored: set it after each open. A bulk
    /// load or an ingest is not told; of a transaction larger than memory it hears that it came,
    /// not its operations ([`CommitEvent::entries_loaded`]).
    ///
    /// It runs on the thread that committed the batch, before the commit returns, with no lock of
    /// the engine held; no other thread runs it. The thread waits first until the hook has run for
    /// earlier commits to this family, so a slow hook delays the writers of its family and no
    /// others; a hook must not wait for another thread's commit to its own family. It may read and
    /// write the database: the commits that it makes itself return at once, and their hooks (itself
    /// among them) run when it has returned. If it panics that call ends, the commit stands, and
    /// the next batches are told as before.
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
        self.inner.set_hook(Some(Arc::new(move |event: &HookEvent| hook(&CommitEvent(event)))));
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
