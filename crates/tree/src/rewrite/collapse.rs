//! The only file that may drop an entry.

use crate::mvcc::Strata;
use perigee_base::bug::{self, Bug};
use perigee_base::{EntryRef, Expiry, KeyOrder, Now, ValueRef};

/// What becomes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Keep,
    /// A newer version hides it from every reader.
    Shadowed,
    /// A tombstone with nothing left to hide.
    SpentTombstone,
    /// Its time has passed, and there is nothing left to hide.
    Expired,
    /// Its time has passed: it goes on as a tombstone.
    Bury,
}

/// Decides entry by entry; entries come in entry order.
#[derive(Debug)]
pub struct Collapse<'a> {
    order: KeyOrder,
    strata: Strata,
    bottom: bool,
    /// Asked once, at the first entry that expires.
    now: &'a dyn Now,
    now_ms: Option<u64>,
    /// The last key and the stratum of its last version; `None` before the first.
    last: Option<(Vec<u8>, usize)>,
}

impl<'a> Collapse<'a> {
    /// `bottom`: below the output lies no older version of any key of the input.
    pub fn new(order: KeyOrder, strata: Strata, bottom: bool, now: &'a dyn Now) -> Collapse<'a> {
        let order = if bug::on(Bug::CollapseByBytes) { KeyOrder::Bytes } else { order };
        let bottom = bottom || bug::on(Bug::DropTombstoneEarly);
        Collapse { order, strata, bottom, now, now_ms: None, last: None }
    }

    fn passed(&mut self, expiry: Expiry) -> bool {
        let now = self.now;
        let ask = || if bug::on(Bug::ExpireDespiteJump) { now.now_ms() } else { now.settled_ms() };
        expiry.passed(*self.now_ms.get_or_insert_with(ask))
    }

    /// Whether a filter may be asked about the entry: it has a value that no snapshot sees.
    pub fn may_filter(&self, e: &EntryRef<'_>) -> bool {
        e.value != ValueRef::None && (self.strata.newest(e.seq) || bug::on(Bug::FilterUnderSnapshot))
    }
    /// Whether a tombstone in the place of the entry would have nothing to hide.
    pub fn spends(&self, e: &EntryRef<'_>) -> bool {
        self.bottom && self.strata.oldest(e.seq)
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
        let spent = self.bottom && stratum == 0;
        let verdict = match e.value.expiry() {
            Some(x) if self.passed(x) => {
                if spent {
                    Verdict::Expired
                } else {
                    Verdict::Bury
                }
            }
            _ if e.value == ValueRef::None && spent => Verdict::SpentTombstone,
            _ => Verdict::Keep,
        };
        (verdict, new_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::SeqNo;
    use perigee_base::expiry::Frozen;

    fn run(bottom: bool, snapshots: &[u64], entries: &[(&str, u64, bool)]) -> String {
        let strata = Strata::new(snapshots.iter().map(|s| SeqNo(*s)).collect(), SeqNo(100));
        let mut c = Collapse::new(KeyOrder::Bytes, strata, bottom, &Frozen(50));
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

    #[test]
    fn an_expired_version_hides_older_ones_until_there_is_nothing_to_hide() {
        let verdicts = |bottom, snapshots: &[u64], entries: &[(&[u8], u64, ValueRef<'_>)]| {
            let strata = Strata::new(snapshots.iter().map(|s| SeqNo(*s)).collect(), SeqNo(100));
            let mut c = Collapse::new(KeyOrder::Bytes, strata, bottom, &Frozen(50));
            entries
                .iter()
                .map(|(key, seq, value)| c.judge(&EntryRef { key, seq: SeqNo(*seq), value: *value }).0)
                .collect::<Vec<_>>()
        };
        let until = |ms| ValueRef::InlineUntil(b"v", Expiry(ms));
        let old = ValueRef::Inline(b"old");
        let entries = [(&b"a"[..], 9, until(50)), (b"a", 5, old), (b"b", 8, until(51)), (b"b", 2, old)];
        use Verdict::*;
        assert_eq!(verdicts(false, &[], &entries), [Bury, Shadowed, Keep, Shadowed]);
        assert_eq!(verdicts(true, &[], &entries), [Expired, Shadowed, Keep, Shadowed]);
        assert_eq!(verdicts(true, &[6], &entries), [Bury, Keep, Keep, Keep], "a reader sees the older one");
    }
}
