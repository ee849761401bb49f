//! What a reader sees of a key whose newest version is an operand: every operand down to the first
//! value, tombstone or end, merged onto that. Sources are asked newest first, as in a point read;
//! of each all versions are, until one says what is below. The work grows with the operands, not
//! faster. Must not know scans: a cursor that stands on an operand asks here.
//!
//! An operand has no end of its own, and a value that has one keeps it: when its time has passed it
//! is as if it were not there, and the operands above it stay. So the answer depends on the time
//! and on nothing that compaction did.

use crate::View;
use crate::fetch_value::fetch_value_with_cause;
use perigee_base::bug::{self, Bug};
use perigee_base::io_stats::IoActivity;
use perigee_base::{Error, PinnedSlice, Result, SeqNo};
use perigee_file::EntryValue;

/// What was found, the newest first.
#[derive(Debug, Default)]
struct MergeContext {
    operands: Vec<EntryValue>,
    /// What they are merged onto.
    base: Option<EntryValue>,
    /// Something said what is below.
    is_complete: bool,
}

impl MergeContext {
    /// Takes a version of a source whose newest range tombstone over the key is `cover`; whether an
    /// older one matters.
    fn add_version(
        &mut self,
        view: &View,
        seq: SeqNo,
        found: EntryValue,
        cover: Option<SeqNo>,
    ) -> bool {
        let hidden = cover.is_some_and(|cover| cover >= seq);
        let gone = || found.expiry().is_some_and(|x| x.is_expired(view.now.now_ms()));
        match &found {
            EntryValue::Operand(_) | EntryValue::OperandPointer(_) if !hidden => {
                self.operands.push(found);
                return !bug::is_active(Bug::OneOperandPerSource);
            }
            EntryValue::Tombstone => {}
            _ if hidden || gone() => {}
            _ => self.base = Some(found),
        }
        self.is_complete = true;
        false
    }
    /// A source has nothing more; whether older ones matter.
    fn needs_older_source(&mut self, cover: Option<SeqNo>) -> bool {
        self.is_complete |= cover.is_some();
        !self.is_complete
    }
}

fn collect_operands(view: &View, key: &[u8], at: SeqNo, cause: IoActivity) -> Result<MergeContext> {
    // What was lost may have been below an operand, or between two of them.
    view.version.check_absent::<()>()?;
    let order = view.version.comparator;
    let hash = order.filter_hash(key);
    let mut chain = MergeContext::default();
    if let Some(own) = &view.overlay {
        let cover = own.covering_tombstone(order, key);
        own.for_each_version(key, |seq, found| chain.add_version(view, seq, found, cover));
        if !chain.needs_older_source(cover) {
            return Ok(chain);
        }
    }
    for memtable in view.memtables() {
        let cover = memtable.covering_tombstone(key, at);
        memtable.for_each_version(key, at, |seq, found| chain.add_version(view, seq, found, cover));
        if !chain.needs_older_source(cover) {
            return Ok(chain);
        }
    }
    for table in view.version.runs().filter_map(|run| run.table_covering(order, key)) {
        let cover = table
            .reader
            .range_tombstones()
            .fragment_covering(order, key)
            .and_then(|f| f.newest_visible(at));
        if !table.reader.filter_excludes(hash) {
            let mut cursor = table.reader.cursor(true).caused_by(cause);
            cursor.seek(key, at)?;
            while cursor.valid() && cursor.key().equals(order, key) {
                // A table under a stamp may show what is too new.
                let seq = cursor.seq();
                if seq <= at && !chain.add_version(view, seq, cursor.pinned_value(), cover) {
                    break;
                }
                cursor.next()?;
            }
        }
        if !chain.needs_older_source(cover) {
            return Ok(chain);
        }
    }
    Ok(chain)
}

/// The value of `key`, whose newest version that a reader at `at` sees is an operand.
///
/// # Errors
/// The operator's, which names itself and the key; those of a read.
pub fn merged_value(view: &View, key: &[u8], at: SeqNo, cause: IoActivity) -> Result<PinnedSlice> {
    let chain = collect_operands(view, key, at, cause)?;
    let bytes = |found: &EntryValue| match found {
        EntryValue::Value(v) | EntryValue::ValueExpiring(v, _) | EntryValue::Operand(v) => {
            Ok(v.clone())
        }
        EntryValue::Pointer(p)
        | EntryValue::PointerExpiring(p, _)
        | EntryValue::OperandPointer(p) => fetch_value_with_cause(&view.version, p, cause),
        EntryValue::Tombstone => Err(Error::internal("a tombstone has no value")),
    };
    let base = chain.base.as_ref().map(bytes).transpose()?;
    let operands: Vec<PinnedSlice> =
        chain.operands.iter().rev().map(bytes).collect::<Result<_>>()?;
    let Some(merger) = view.merge_operator.get() else {
        return Err(Error::corruption("the family has operands of merges, and no merge operator"));
    };
    let borrowed: Vec<&[u8]> = operands.iter().map(|o| &**o).collect();
    merger.full_merge(key, base.as_deref(), &borrowed).map(PinnedSlice::from)
}
