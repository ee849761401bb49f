//! To which level a loaded table goes. Pure.
//!
//! A loaded entry is newer than everything in the tree, so its table must stand above every table that shares keys with
//! it: at best in the level over the first one that does. Where nothing is in the way it goes as deep as its bytes fit
//! without making a level larger than it may be, but not above the deepest level in use: there it would have to be moved.

use crate::compact::pick::Limits;
use crate::compact::pick::leveled::{capacity, overlapping};
use crate::compact::plan::Shape;
use perigee_base::cut::CutRef;
use perigee_base::{LevelNo, limits};

/// The level for a table of a load of `bytes` in all, whose keys are `first..=last`. 0: a new run there.
pub fn target(shape: &Shape, l: &Limits, first: &[u8], last: &[u8], bytes: u64) -> LevelNo {
    let (from, to) = (CutRef::Before(first), CutRef::After(last));
    let in_the_way = (0..limits::LEVELS).find(|level| overlapping(shape, *level, from, to).next().is_some());
    let lowest = match in_the_way {
        Some(level) => level.saturating_sub(1),
        None => limits::LEVELS - 1,
    };
    LevelNo(lowest.min(roomy(shape, l, bytes)) as u8)
}

/// The first level from the deepest in use on that has room for so many bytes.
fn roomy(shape: &Shape, l: &Limits, bytes: u64) -> usize {
    let deepest = (1..limits::LEVELS).rev().find(|level| shape.tables(*level).next().is_some()).unwrap_or(1);
    let fits = |level: &usize| shape.bytes(*level).saturating_add(bytes) <= capacity(*level, l);
    (deepest..limits::LEVELS - 1).find(fits).unwrap_or(limits::LEVELS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::plan::TableShape;
    use perigee_base::cut::Cut;
    use perigee_base::{FileId, KeyOrder, SeqNo};

    fn shape(tables: &[(usize, &str, &str, u64)]) -> Shape {
        let mut levels = vec![Vec::new(); limits::LEVELS];
        for (n, (level, first, last, bytes)) in tables.iter().enumerate() {
            let table = TableShape {
                id: FileId(n as u64),
                bytes: *bytes,
                first: Cut::Before(first.as_bytes().into()),
                last: Cut::After(last.as_bytes().into()),
                smallest: SeqNo(1),
                largest: SeqNo(1),
                ranges: None,
                vlogs: vec![],
            };
            levels[*level].push(vec![table]);
        }
        Shape { order: KeyOrder::Bytes, levels, vlogs: Default::default() }
    }

    #[test]
    fn as_deep_as_what_is_in_the_way_allows() {
        let l = Limits { level0_runs: 4, level1_bytes: 100, ratio: 10 };
        let at = |s: &Shape, first: &str, last: &str, bytes| {
            target(s, &l, first.as_bytes(), last.as_bytes(), bytes).0
        };
        let empty = shape(&[]);
        assert_eq!(at(&empty, "a", "z", 50), 1, "it fits into level 1");
        assert_eq!(at(&empty, "a", "z", 101), 2);
        assert_eq!(at(&empty, "a", "z", u64::MAX), 6);
        let some = shape(&[(0, "a", "c", 5), (2, "f", "h", 500), (3, "m", "p", 500)]);
        assert_eq!(at(&some, "b", "b", 10), 0, "over a run of level 0: a newer run");
        assert_eq!(at(&some, "g", "n", 10), 1, "over level 2");
        assert_eq!(at(&some, "h", "k", 10), 1, "the last key counts");
        assert_eq!(at(&some, "m", "z", 10), 2);
        assert_eq!(at(&some, "q", "z", 10), 3, "nothing in the way: beside the deepest");
        assert_eq!(at(&some, "q", "z", 99_700), 4, "level 3 holds 10,000");
    }
}
