//! The only file that may drop an entry.

use crate::mvcc::Strata;
use perigee_base::bug::{self, Bug};
use perigee_base::{EntryRef, KeyOrder, ValueRef};

/// What becomes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Keep,
    /// A newer version hides it from every reader.
    Shadowed,
    /// A tombstone with nothing left to hide.
    SpentTombstone,
}

/// Decides entry by entry; entries come in entry order.
#[derive(Debug)]
pub struct Collapse {
    order: KeyOrder,
    strata: Strata,
    bottom: bool,
    /// The last key and the stratum of its last version; `None` before the first.
    last: Option<(Vec<u8>, usize)>,
}

impl Collapse {
    /// `bottom`: below the output lies no older version of any key of the input.
    pub fn new(order: KeyOrder, strata: Strata, bottom: bool) -> Collapse {
        let order = if bug::on(Bug::CollapseByBytes) { KeyOrder::Bytes } else { order };
        Collapse { order, strata, bottom: bottom || bug::on(Bug::DropTombstoneEarly), last: None }
    }

    /// The verdict on the next entry, and whether it starts a new key.
    pub fn judge(&mut self, e: &EntryRef<'_>) -> (Verdict, bool) {
        let stratum = self.strata.of(e.seq);
        let new_key = match &mut self.last {
            Some((key, last)) if self.order.equal(key, e.key) => {
                if std::mem::replace(last, stratum) == stratum {
                    return (Verdict::Shadowed, false);
                }
                false
            }
            Some((key, last)) => {
                key.clear();
                key.extend_from_slice(e.key);
                *last = stratum;
                true
            }
            none => {
                *none = Some((e.key.to_vec(), stratum));
                true
            }
        };
        if e.value == ValueRef::None && self.bottom && stratum == 0 {
            return (Verdict::SpentTombstone, new_key);
        }
        (Verdict::Keep, new_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::SeqNo;

    fn run(bottom: bool, snapshots: &[u64], entries: &[(&str, u64, bool)]) -> String {
        let strata = Strata::new(snapshots.iter().map(|s| SeqNo(*s)).collect(), SeqNo(100));
        let mut c = Collapse::new(KeyOrder::Bytes, strata, bottom);
        let mut out = String::new();
        for (k, s, put) in entries {
            let value = if *put { ValueRef::Inline(b"") } else { ValueRef::None };
            let verdict = c.judge(&EntryRef { key: k.as_bytes(), seq: SeqNo(*s), value }).0;
            out.push_str(&format!("{k}{s}:{verdict:?} "));
        }
        out.trim_end().to_owned()
    }

    #[test]
    fn only_what_nobody_can_see_is_dropped() {
        let entries = [("a", 9, true), ("a", 5, true), ("a", 3, false), ("b", 8, false), ("b", 2, true)];
        assert_eq!(run(false, &[], &entries), "a9:Keep a5:Shadowed a3:Shadowed b8:Keep b2:Shadowed");
        assert_eq!(run(true, &[], &entries), "a9:Keep a5:Shadowed a3:Shadowed b8:SpentTombstone b2:Shadowed");
        assert_eq!(run(false, &[6, 3], &entries), "a9:Keep a5:Keep a3:Keep b8:Keep b2:Keep");
        assert_eq!(run(true, &[6, 3], &entries), "a9:Keep a5:Keep a3:SpentTombstone b8:Keep b2:Keep");
        assert_eq!(run(true, &[8], &entries), "a9:Keep a5:Keep a3:Shadowed b8:SpentTombstone b2:Shadowed");
    }
}
