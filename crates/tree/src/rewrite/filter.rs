//! The compaction filter: user code that examines entries during compaction, and keeps, drops or
//! changes them.
//!
//! It is called only for the newest version of a key, and only if no snapshot that existed when the
//! compaction began can see it: what a snapshot sees is kept. A dropped entry becomes a tombstone,
//! unless nothing older can lie below. A panic in the filter is an error of the compaction, which
//! then changes nothing.

use crate::get;
use crate::version::Version;
use perigee_base::{BytesPreview, EntryRef, Error, LevelNo, PinnedSlice, Result, ValueRef, limits};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Decision on an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterDecision {
    /// Keeps the entry.
    Keep,
    /// Drops the entry: readers no longer find the key.
    Drop,
    /// Replaces the value; the expiry stays.
    Change(Vec<u8>),
}

/// Decides which entries a compaction keeps, drops or changes. The filter may be called for the
/// same entry in every compaction that the entry takes part in, or in none (a table that overlaps
/// nothing is moved without a rewrite), and by several threads at once.
pub trait CompactionFilter: Send + Sync {
    /// Name of the filter, stored with the column family: the database opens only with a filter of
    /// the same name.
    fn name(&self) -> &str;
    /// Decides on an entry. An error ends the compaction, which changes nothing and is retried
    /// later. The filter runs inside the compaction: it must not compact, bulk load, purge or write
    /// in the same database, as these may wait for that very compaction.
    ///
    /// # Errors
    /// Errors of [`FilterEntry::value`], or the filter's own.
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
    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        self.key
    }
    /// Returns the level that the compaction writes to.
    pub fn level(&self) -> u8 {
        self.level.0
    }
    /// Returns the length of the value, without reading it.
    pub fn value_len(&self) -> u64 {
        let inline_len = self.value.inline_bytes().map_or(0, |v| v.len() as u64);
        self.value.vlog_pointer().map_or(inline_len, |p| p.value_bytes)
    }
    /// Returns the value; reads the value log if the value is separated.
    pub fn value(&self) -> Result<PinnedSlice> {
        match self.value {
            ValueRef::Inline(v) | ValueRef::InlineExpiring(v, _) => {
                Ok(PinnedSlice::from(v.to_vec()))
            }
            ValueRef::Pointer(p) | ValueRef::PointerExpiring(p, _) => {
                get::fetch_value(self.version, &p)
            }
            _ => Err(Error::internal("compaction filter called for an entry without a value")),
        }
    }
}

/// The filter of a rewrite, and the level of its outputs.
#[derive(Clone, Copy)]
pub struct RewriteFilter<'a> {
    /// The user's filter.
    pub filter: &'a dyn CompactionFilter,
    /// The level of the outputs.
    pub level: LevelNo,
}

impl RewriteFilter<'_> {
    /// Calls the filter for a put.
    pub fn decide(&self, e: &EntryRef<'_>, version: &Version) -> Result<FilterDecision> {
        let entry = FilterEntry { key: e.key, value: e.value, level: self.level, version };
        let decision = catch_unwind(AssertUnwindSafe(|| self.filter.decide(&entry)))
            .unwrap_or_else(|panic| {
                Err(Error::internal(format!("the filter panicked: {}", panic_message(&*panic))))
            });
        let decision = decision.and_then(|d| match &d {
            FilterDecision::Change(v) if v.len() > limits::VALUE_BYTES_MAX => {
                Err(Error::invalid("the filter's new value is too long")
                    .expected(format_args!("at most {} bytes", limits::VALUE_BYTES_MAX), v.len()))
            }
            _ => Ok(d),
        });
        decision.map_err(|e| {
            let kind = e.kind();
            e.wrap(kind, "the compaction filter failed")
        })
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
