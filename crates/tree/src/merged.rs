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
use perigee_base::key::VlogPointer;
use perigee_base::{Error, Result, SeqNo, Shared, ValueRef};
use perigee_file::Found;

/// Bytes of a value or operand, where they are.
#[derive(Debug)]
enum Bytes<'v> {
    /// In a memtable.
    Here(&'v [u8]),
    /// In a block, which is held.
    Held(Shared),
    /// In a value log.
    Apart(VlogPointer),
}

impl Bytes<'_> {
    /// Those of a pointer were fetched.
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Here(bytes) => bytes,
            Bytes::Held(shared) => shared,
            Bytes::Apart(_) => &[],
        }
    }
}

/// What was found, the newest first.
#[derive(Debug, Default)]
struct Chain<'v> {
    operands: Vec<Bytes<'v>>,
    /// What they are merged onto.
    base: Option<Bytes<'v>>,
    /// Something said what is below.
    ended: bool,
}

impl<'v> Chain<'v> {
    /// Takes a version of a source whose newest range tombstone over the key is `cover`; whether an older one matters. `held`: its
    /// bytes, if they lie beside the entry.
    fn take(
        &mut self,
        view: &View,
        (seq, value): (SeqNo, ValueRef<'_>),
        cover: Option<SeqNo>,
        held: impl FnOnce() -> Bytes<'v>,
    ) -> bool {
        let hidden = cover.is_some_and(|cover| cover >= seq);
        let gone = || value.expiry().is_some_and(|x| x.passed(view.now.now_ms()));
        if !hidden && !value.is_tombstone() && !gone() {
            let bytes = value.apart().map_or_else(held, Bytes::Apart);
            if value.is_operand() {
                self.operands.push(bytes);
                return !bug::on(Bug::OneOperandPerSource);
            }
            self.base = Some(bytes);
        }
        self.ended = true;
        false
    }
    /// The same of a memtable.
    fn take_here(&mut self, view: &View, seq: SeqNo, value: ValueRef<'v>, cover: Option<SeqNo>) -> bool {
        self.take(view, (seq, value), cover, || Bytes::Here(value.beside().unwrap_or_default()))
    }
    /// A source has nothing more; whether older ones matter.
    fn goes_on(&mut self, cover: Option<SeqNo>) -> bool {
        self.ended |= cover.is_some();
        !self.ended
    }
}

fn gather<'v>(view: &'v View, key: &[u8], at: SeqNo, cause: Cause) -> Result<Chain<'v>> {
    let order = view.version.order;
    let hash = order.filter_hash(key);
    let mut chain = Chain::default();
    if let Some(own) = &view.own {
        let cover = own.cover(order, key);
        own.versions(key, hash, |seq, value| chain.take_here(view, seq, value, cover));
        if !chain.goes_on(cover) {
            return Ok(chain);
        }
    }
    for memtable in view.memtables() {
        let cover = memtable.cover(key, at);
        memtable.versions(key, hash, at, |seq, value| chain.take_here(view, seq, value, cover));
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
                let version = (cursor.seq(), cursor.value());
                if version.0 <= at && !chain.take(view, version, cover, || held(cursor.found())) {
                    break;
                }
                cursor.next()?;
            }
        }
        if !chain.goes_on(cover) {
            return Ok(chain);
        }
    }
    // What was lost may have been below.
    view.version.absent::<()>()?;
    Ok(chain)
}

fn held(found: Found) -> Bytes<'static> {
    match found {
        Found::Value(v) | Found::ValueUntil(v, _) | Found::Operand(v) => Bytes::Held(v),
        Found::Pointer(p) | Found::PointerUntil(p, _) | Found::OperandPointer(p) => Bytes::Apart(p),
        Found::Tombstone => Bytes::Here(&[]),
    }
}

/// The value of `key`, whose newest version that a reader at `at` sees is an operand.
///
/// # Errors
/// The operator's, which names itself and the key; those of a read.
#[cold]
pub fn value(view: &View, key: &[u8], at: SeqNo, cause: Cause) -> Result<Shared> {
    let mut chain = gather(view, key, at, cause)?;
    let Some(merger) = &view.merger else {
        return Err(Error::corruption("the family has operands of merges, and no merge operator"));
    };
    for bytes in chain.operands.iter_mut().chain(&mut chain.base) {
        if let Bytes::Apart(p) = bytes {
            *bytes = Bytes::Held(fetch_for(&view.version, p, cause)?);
        }
    }
    let base = chain.base.as_ref().map(Bytes::get);
    let operands: Vec<&[u8]> = chain.operands.iter().rev().map(Bytes::get).collect();
    merger.fold(key, base, &operands).map(Shared::from)
}
