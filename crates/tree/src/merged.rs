//! What a reader sees of a key whose newest version is an operand: every operand down to the first value, tombstone or end,
//! merged onto that. Sources are asked newest first, as in a point read; of each all versions are, until one says what is below.
//! The work grows with the operands, not faster. Must not know scans: a cursor that stands on an operand asks here.
//!
//! An operand has no end of its own, and a value that has one keeps it: when its time has passed it is as if it were not there, and the
//! operands above it stay. So the answer depends on the time and on nothing that compaction did.

use crate::View;
use crate::fetch::fetch_for;
use perigee_base::bug::{self, Bug};
use perigee_base::io::Cause;
use perigee_base::{Error, Result, SeqNo, Shared};
use perigee_file::Found;

/// What was found, the newest first.
#[derive(Debug, Default)]
struct Chain {
    operands: Vec<Found>,
    /// What they are merged onto.
    base: Option<Found>,
    /// Something said what is below.
    ended: bool,
}

impl Chain {
    /// Takes a version of a source whose newest range tombstone over the key is `cover`; whether an older one matters.
    fn take(&mut self, view: &View, seq: SeqNo, found: Found, cover: Option<SeqNo>) -> bool {
        let hidden = cover.is_some_and(|cover| cover >= seq);
        let gone = || found.expiry().is_some_and(|x| x.passed(view.now.now_ms()));
        match &found {
            Found::Operand(_) | Found::OperandPointer(_) if !hidden => {
                self.operands.push(found);
                return !bug::on(Bug::OneOperandPerSource);
            }
            Found::Tombstone => {}
            _ if hidden || gone() => {}
            _ => self.base = Some(found),
        }
        self.ended = true;
        false
    }
    /// A source has nothing more; whether older ones matter.
    fn goes_on(&mut self, cover: Option<SeqNo>) -> bool {
        self.ended |= cover.is_some();
        !self.ended
    }
}

fn gather(view: &View, key: &[u8], at: SeqNo, cause: Cause) -> Result<Chain> {
    // What was lost may have been below an operand, or between two of them.
    view.version.absent::<()>()?;
    let order = view.version.order;
    let hash = order.filter_hash(key);
    let mut chain = Chain::default();
    if let Some(own) = &view.own {
        let cover = own.cover(order, key);
        own.versions(key, |seq, found| chain.take(view, seq, found, cover));
        if !chain.goes_on(cover) {
            return Ok(chain);
        }
    }
    for memtable in view.memtables() {
        let cover = memtable.cover(key, at);
        memtable.versions(key, at, |seq, found| chain.take(view, seq, found, cover));
        if !chain.goes_on(cover) {
            return Ok(chain);
        }
    }
    for table in view.version.runs().filter_map(|run| run.covering(order, key)) {
        let cover = table.reader.ranges().covering(order, key).and_then(|f| f.newest(at));
        if !table.reader.rules_out(hash) {
            let mut cursor = table.reader.cursor(true).caused_by(cause);
            cursor.seek(key, at)?;
            while cursor.valid() && cursor.key().is(order, key) {
                // A table under a stamp may show what is too new.
                let seq = cursor.seq();
                if seq <= at && !chain.take(view, seq, cursor.found(), cover) {
                    break;
                }
                cursor.next()?;
            }
        }
        if !chain.goes_on(cover) {
            return Ok(chain);
        }
    }
    Ok(chain)
}

/// The value of `key`, whose newest version that a reader at `at` sees is an operand.
///
/// # Errors
/// The operator's, which names itself and the key; those of a read.
pub fn value(view: &View, key: &[u8], at: SeqNo, cause: Cause) -> Result<Shared> {
    let chain = gather(view, key, at, cause)?;
    let bytes = |found: &Found| match found {
        Found::Value(v) | Found::ValueUntil(v, _) | Found::Operand(v) => Ok(v.clone()),
        Found::Pointer(p) | Found::PointerUntil(p, _) | Found::OperandPointer(p) => {
            fetch_for(&view.version, p, cause)
        }
        Found::Tombstone => Err(Error::internal("a tombstone has no value")),
    };
    let base = chain.base.as_ref().map(bytes).transpose()?;
    let operands: Vec<Shared> = chain.operands.iter().rev().map(bytes).collect::<Result<_>>()?;
    let Some(merger) = view.merger.get() else {
        return Err(Error::corruption("the family has operands of merges, and no merge operator"));
    };
    let borrowed: Vec<&[u8]> = operands.iter().map(|o| &**o).collect();
    merger.fold(key, base.as_deref(), &borrowed).map(Shared::from)
}
