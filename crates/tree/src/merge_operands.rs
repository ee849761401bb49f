//! Point reads of a key whose newest version is a merge operand: all operands down to the first
//! value, tombstone or end of data are merged onto that base. Sources are read newest first, as in
//! any point read; in each source all versions are read until one is a base. The cost is linear in
//! the number of operands, but those in a memtable are combined for the next reader. Independent of
//! scans: a cursor positioned on an operand calls this module.
//!
//! An operand has no expiry of its own, and a value keeps its expiry: an expired value counts as
//! absent, and the operands above it stay. The result therefore depends on the time, and not on
//! what compaction has done.

use crate::View;
use crate::fetch_value::fetch_value_with_cause;
use crate::limits::COMBINED_OPERANDS_MIN;
use crate::memtable::{CombinedOperand, Memtable};
use perigee_base::bug::Bug;
use perigee_base::{
    Error, Expiry, IoActivity, PinnedSlice, Result, SeqNo, ValueRef, VlogPointer, bug,
};
use perigee_file::EntryValue;
use std::sync::Arc;

/// A version of the key, as its source holds it.
#[derive(Debug)]
enum FoundVersion<'a> {
    /// In a memtable of the view.
    InMemory(ValueRef<'a>),
    /// Adjacent operands that an earlier reader has combined.
    Combined(Arc<CombinedOperand>),
    /// In a table.
    InTable(EntryValue),
}

impl FoundVersion<'_> {
    fn is_operand(&self) -> bool {
        match self {
            FoundVersion::InMemory(value) => value.is_operand(),
            FoundVersion::Combined(_) => true,
            FoundVersion::InTable(found) => found.is_operand(),
        }
    }
    fn is_tombstone(&self) -> bool {
        match self {
            FoundVersion::InMemory(value) => value.is_tombstone(),
            FoundVersion::Combined(_) => false,
            FoundVersion::InTable(found) => matches!(found, EntryValue::Tombstone),
        }
    }
    fn expiry(&self) -> Option<Expiry> {
        match self {
            FoundVersion::InMemory(value) => value.expiry(),
            FoundVersion::Combined(_) => None,
            FoundVersion::InTable(found) => found.expiry(),
        }
    }
    /// Returns the bytes, if they are in memory.
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            FoundVersion::InMemory(
                ValueRef::Inline(v) | ValueRef::InlineExpiring(v, _) | ValueRef::Operand(v),
            ) => Some(v),
            FoundVersion::Combined(combined) => Some(&combined.operand),
            FoundVersion::InTable(
                EntryValue::Value(v) | EntryValue::ValueExpiring(v, _) | EntryValue::Operand(v),
            ) => Some(v),
            _ => None,
        }
    }
    /// Returns the location of a value in a value log.
    fn vlog_pointer(&self) -> Option<VlogPointer> {
        match self {
            FoundVersion::InMemory(value) => value.vlog_pointer(),
            FoundVersion::Combined(_) => None,
            FoundVersion::InTable(found) => found.vlog_pointer(),
        }
    }
}

/// The versions found, newest first.
#[derive(Debug, Default)]
struct MergeContext<'a> {
    operands: Vec<FoundVersion<'a>>,
    /// The value that the operands are merged onto.
    base: Option<FoundVersion<'a>>,
    /// True once the base, or its absence, is known.
    is_complete: bool,
}

impl<'a> MergeContext<'a> {
    /// Adds a version from a source whose newest range tombstone over the key is `cover`. Returns
    /// true if older versions of the source matter.
    fn add_version(
        &mut self,
        view: &View,
        seq: SeqNo,
        found: FoundVersion<'a>,
        cover: Option<SeqNo>,
    ) -> bool {
        check_slow!(!self.is_complete, "no version is added after the base", seq);
        let hidden = cover.is_some_and(|cover| cover >= seq);
        if found.is_operand() && !hidden {
            self.operands.push(found);
            return !bug::is_active(Bug::OneOperandPerSource);
        }
        let expired = || found.expiry().is_some_and(|x| x.is_expired(view.now.now_ms()));
        if !found.is_tombstone() && !hidden && !expired() {
            self.base = Some(found);
        }
        self.is_complete = true;
        false
    }
    /// Ends a source. Returns true if older sources matter.
    fn needs_older_source(&mut self, cover: Option<SeqNo>) -> bool {
        self.is_complete |= cover.is_some();
        !self.is_complete
    }

    /// Adds the versions of a memtable, and combines its operands if there are many.
    fn add_memtable(
        &mut self,
        view: &View,
        memtable: &'a Memtable,
        key: &'a [u8],
        at: SeqNo,
        cover: Option<SeqNo>,
    ) {
        let first = self.operands.len();
        let mut versions = memtable.key_versions(key, at);
        let mut combined = None;
        // The newest operand, and the position after the oldest one.
        let (mut newest, mut end) = (None, None);
        while let Some((seq, value)) = versions.next() {
            if newest.is_none() {
                newest = Some(seq);
                let usable = |c: &Arc<CombinedOperand>| {
                    c.newest <= at || bug::is_active(Bug::CombinedOperandsUnderSnapshot)
                };
                let remembered = || memtable.combined_operand(key).filter(usable);
                combined = if cover.is_none() { remembered() } else { None };
            }
            check_slow!(seq <= at, "a version is visible to its reader", seq, at);
            let found = match combined.take_if(|c| seq <= c.newest) {
                Some(combined) => {
                    versions.continue_at(combined.next);
                    FoundVersion::Combined(combined)
                }
                None => FoundVersion::InMemory(value),
            };
            if !self.add_version(view, seq, found, cover) {
                break;
            }
            end = versions.position();
        }
        let merger = view.merge_operator.get().filter(|_| cover.is_none());
        let operands = self.operands.get(first..).unwrap_or_default();
        if let (Some(merger), Some(newest)) = (merger, newest)
            && operands.len() >= COMBINED_OPERANDS_MIN
        {
            let bytes = operands.iter().rev().map(FoundVersion::bytes).collect::<Option<Vec<_>>>();
            // Operands that the operator refuses to merge stay as they are.
            let operand = bytes.and_then(|bytes| merger.partial_merge(key, &bytes).ok());
            if let Some(operand) = operand {
                check_slow!(
                    self.base.is_none() || end.is_some(),
                    "the base follows the combined operands",
                    newest
                );
                let combined = Arc::new(CombinedOperand { newest, next: end, operand });
                memtable.remember_combined(key, &combined);
                self.operands.truncate(first);
                self.operands.push(FoundVersion::Combined(combined));
            }
        }
    }
}

fn collect_operands<'a>(
    view: &'a View,
    key: &'a [u8],
    at: SeqNo,
    cause: IoActivity,
) -> Result<MergeContext<'a>> {
    // A lost operation may have been below an operand, or between two of them.
    view.version.check_absent::<()>()?;
    let comparator = view.version.comparator;
    let hash = comparator.filter_hash(key);
    let mut context = MergeContext::default();
    if let Some(overlay) = &view.overlay {
        let cover = overlay.covering_tombstone(key);
        for (seq, value) in overlay.key_versions(key) {
            if !context.add_version(view, seq, FoundVersion::InMemory(value), cover) {
                break;
            }
        }
        if !context.needs_older_source(cover) {
            return Ok(context);
        }
    }
    for memtable in view.memtables() {
        let cover = memtable.covering_tombstone(key, at);
        context.add_memtable(view, memtable, key, at, cover);
        if !context.needs_older_source(cover) {
            return Ok(context);
        }
    }
    for table in view.version.runs().filter_map(|run| run.table_covering(comparator, key)) {
        let cover = table
            .reader
            .range_tombstones()
            .fragment_covering(comparator, key)
            .and_then(|f| f.newest_visible(at));
        if !table.reader.filter_excludes(hash) {
            let mut cursor = table.reader.cursor(true).caused_by(cause);
            cursor.seek(key, at)?;
            while cursor.valid() && cursor.key().equals(comparator, key) {
                // A table with a global sequence number may return versions that are too new.
                let seq = cursor.seq();
                let found = || FoundVersion::InTable(cursor.pinned_value());
                if seq <= at && !context.add_version(view, seq, found(), cover) {
                    break;
                }
                cursor.next()?;
            }
        }
        if !context.needs_older_source(cover) {
            return Ok(context);
        }
    }
    Ok(context)
}

/// Returns the value of `key`, whose newest version visible at `at` is an operand.
///
/// # Errors
/// Those of the merge operator, with its name and the key, and those of reads.
pub fn merged_value(view: &View, key: &[u8], at: SeqNo, cause: IoActivity) -> Result<PinnedSlice> {
    let context = collect_operands(view, key, at, cause)?;
    check_slow!(!context.operands.is_empty(), "a merged value has operands", key, at);
    let Some(merger) = view.merge_operator.get() else {
        return Err(Error::corruption(
            "the column family contains merge operands, but no merge operator is configured",
        ));
    };
    // Base first, then the operands from the oldest; those in value logs are read here.
    let found = || context.base.iter().chain(context.operands.iter().rev());
    let read: Vec<PinnedSlice> = found()
        .filter_map(FoundVersion::vlog_pointer)
        .map(|p| fetch_value_with_cause(&view.version, &p, cause))
        .collect::<Result<_>>()?;
    let mut read = read.iter();
    let bytes: Vec<&[u8]> = found()
        .map(|version| {
            let value = version.bytes().or_else(|| read.next().map(|slice| &**slice));
            value.ok_or_else(|| Error::internal("attempt to read the value of a tombstone"))
        })
        .collect::<Result<_>>()?;
    check!(
        bytes.len() == context.operands.len() + usize::from(context.base.is_some()),
        "every version has a value",
        bytes.len()
    );
    let (base, operands) = match &context.base {
        Some(_) => (bytes.first().copied(), bytes.get(1..).unwrap_or_default()),
        None => (None, &bytes[..]),
    };
    merger.full_merge(key, base, operands).map(PinnedSlice::from)
}
