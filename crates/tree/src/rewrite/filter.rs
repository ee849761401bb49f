//! The compaction filter: a user's code that looks at entries as they are compacted, and keeps,
//! drops or changes them.
//!
//! It is asked only about the newest version of a key, and only if no snapshot that was there when
//! the compaction began can see it: what a snapshot sees stays. What it drops becomes a tombstone,
//! unless nothing older can lie beneath. A panic in it is an error of the compaction, which then
//! changes nothing.

use crate::get;
use crate::version::Version;
use perigee_base::pinned_slice::BytesPreview;
use perigee_base::{EntryRef, Error, LevelNo, PinnedSlice, Result, ValueRef, limits};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What becomes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterDecision {
    /// It stays.
    Keep,
    /// It goes: readers find nothing under the key.
    Drop,
    /// It stays with another value (and the same time to live).
    Change(Vec<u8>),
}

/// A user's decision about entries as they are compacted. The same entry may be asked about in
/// every compaction that it takes part in, or in none (a table that overlaps nothing is moved as it
/// is), and by several threads at once.
pub trait CompactionFilter: Send + Sync {
    /// Its name, stored with the family: a database whose family has a filter opens only with the
    /// filter of that name.
    fn name(&self) -> &str;
    /// Decides. An error ends the compaction, which changes nothing and is tried again later. It
    /// runs inside the compaction: it must not compact, load into, purge or write to the same
    /// database, which may wait for that very compaction.
    ///
    /// # Errors
    /// Whatever [`FilterEntry::value`] answered, or an error of its own.
    fn decide(&self, entry: &FilterEntry<'_>) -> Result<FilterDecision>;
}

/// An entry as a filter sees it.
pub struct FilterEntry<'a> {
    key: &'a [u8],
    value: ValueRef<'a>,
    level: LevelNo,
    version: &'a Version,
}

impl std::fmt::Debug for FilterEntry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FilterEntry({:?})", BytesPreview(self.key))
    }
}

impl FilterEntry<'_> {
    /// The key.
    pub fn key(&self) -> &[u8] {
        self.key
    }
    /// The level that the compaction writes to.
    pub fn level(&self) -> u8 {
        self.level.0
    }
    /// The length of the value, known without reading it.
    pub fn value_len(&self) -> u64 {
        let beside = self.value.inline_bytes().map_or(0, |v| v.len() as u64);
        self.value.vlog_pointer().map_or(beside, |p| p.value_bytes)
    }
    /// The value; read from the value log now if it is stored apart.
    pub fn value(&self) -> Result<PinnedSlice> {
        match self.value {
            ValueRef::Inline(v) | ValueRef::InlineExpiring(v, _) => {
                Ok(PinnedSlice::from(v.to_vec()))
            }
            ValueRef::Pointer(p) | ValueRef::PointerExpiring(p, _) => {
                get::fetch_value(self.version, &p)
            }
            _ => Err(Error::internal("a filter is asked about an entry without a value")),
        }
    }
}

/// The filter of a rewrite, and where its outputs go.
#[derive(Clone, Copy)]
pub struct RewriteFilter<'a> {
    /// The user's code.
    pub filter: &'a dyn CompactionFilter,
    /// The level of the outputs.
    pub level: LevelNo,
}

impl RewriteFilter<'_> {
    /// Asks about a put.
    pub fn decide(&self, e: &EntryRef<'_>, version: &Version) -> Result<FilterDecision> {
        let entry = FilterEntry { key: e.key, value: e.value, level: self.level, version };
        let decided =
            catch_unwind(AssertUnwindSafe(|| self.filter.decide(&entry))).unwrap_or_else(|panic| {
                Err(Error::internal(format!("it panicked: {}", panic_message(&*panic))))
            });
        let decided = decided.and_then(|d| match &d {
            FilterDecision::Change(v) if v.len() > limits::VALUE_BYTES_MAX => {
                Err(Error::invalid("the new value is too long")
                    .expected(format_args!("at most {} bytes", limits::VALUE_BYTES_MAX), v.len()))
            }
            _ => Ok(d),
        });
        decided.map_err(|e| {
            let kind = e.kind();
            e.wrap(kind, "the compaction filter failed")
        })
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
