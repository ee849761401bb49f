//! Point reads of a key whose newest version is a merge operand: all operands down to the first
//! value, tombstone or end of data are merged onto that base. Sources are read newest first, as in
//! any point read; in each source all versions are read until one is a base. The cost is linear in
//! the number of operands. Independent of scans: a cursor positioned on an operand calls this
//! module.
//!
//! An operand has no expiry of its own, and a value keeps its expiry: an expired value counts as
//! absent, and the operands above it stay. The result therefore depends on the time, and not on
//! what compaction has done.

use crate::View;
use crate::fetch_value::fetch_value_with_cause;
use perigee_base::bug::Bug;
use perigee_base::{Error, IoActivity, PinnedSlice, Result, SeqNo, bug};
use perigee_file::EntryValue;

/// The versions found, newest first.
#[derive(Debug, Default)]
struct MergeContext {
    operands: Vec<EntryValue>,
    /// The value that the operands are merged onto.
    base: Option<EntryValue>,
    /// True once the base, or its absence, is known.
    is_complete: bool,
}

impl MergeContext {
    /// Adds a version from a source whose newest range tombstone over the key is `cover`. Returns
    /// true if older versions of the source matter.
    fn add_version(
        &mut self,
        view: &View,
        seq: SeqNo,
        found: EntryValue,
        cover: Option<SeqNo>,
    ) -> bool {
        check_slow!(!self.is_complete, "no version is added after the base", seq);
        let hidden = cover.is_some_and(|cover| cover >= seq);
        let expired = || found.expiry().is_some_and(|x| x.is_expired(view.now.now_ms()));
        match &found {
            EntryValue::Operand(_) | EntryValue::OperandPointer(_) if !hidden => {
                self.operands.push(found);
                return !bug::is_active(Bug::OneOperandPerSource);
            }
            EntryValue::Tombstone => {}
            _ if hidden || expired() => {}
            _ => self.base = Some(found),
        }
        self.is_complete = true;
        false
    }
    /// Ends a source. Returns true if older sources matter.
    fn needs_older_source(&mut self, cover: Option<SeqNo>) -> bool {
        self.is_complete |= cover.is_some();
        !self.is_complete
    }
}

fn collect_operands(view: &View, key: &[u8], at: SeqNo, cause: IoActivity) -> Result<MergeContext> {
    // A lost operation may have been below an operand, or between two of them.
    view.version.check_absent::<()>()?;
    let comparator = view.version.comparator;
    let hash = comparator.filter_hash(key);
    let mut context = MergeContext::default();
    if let Some(overlay) = &view.overlay {
        let cover = overlay.covering_tombstone(comparator, key);
        overlay.for_each_version(key, |seq, found| context.add_version(view, seq, found, cover));
        if !context.needs_older_source(cover) {
            return Ok(context);
        }
    }
    for memtable in view.memtables() {
        let cover = memtable.covering_tombstone(key, at);
        memtable
            .for_each_version(key, at, |seq, found| context.add_version(view, seq, found, cover));
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
                if seq <= at && !context.add_version(view, seq, cursor.pinned_value(), cover) {
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
    let bytes = |found: &EntryValue| match found {
        EntryValue::Value(v) | EntryValue::ValueExpiring(v, _) | EntryValue::Operand(v) => {
            Ok(v.clone())
        }
        EntryValue::Pointer(p)
        | EntryValue::PointerExpiring(p, _)
        | EntryValue::OperandPointer(p) => fetch_value_with_cause(&view.version, p, cause),
        EntryValue::Tombstone => Err(Error::internal("attempt to read the value of a tombstone")),
    };
    check_slow!(!context.operands.is_empty(), "a merged value has operands", key, at);
    let base = context.base.as_ref().map(bytes).transpose()?;
    let operands: Vec<PinnedSlice> =
        context.operands.iter().rev().map(bytes).collect::<Result<_>>()?;
    let Some(merger) = view.merge_operator.get() else {
        return Err(Error::corruption(
            "the column family contains merge operands, but no merge operator is configured",
        ));
    };
    let borrowed: Vec<&[u8]> = operands.iter().map(|o| &**o).collect();
    merger.full_merge(key, base.as_deref(), &borrowed).map(PinnedSlice::from)
}
