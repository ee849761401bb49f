//! Chooses the level that a bulk-loaded table goes to. Pure.
//!
//! A loaded entry is newer than everything in the tree, so its table must lie above every table
//! that overlaps it: at best directly above the first level with such a table. Without any overlap
//! it goes to the last level.

use crate::compact::TreeShape;
use crate::compact::{LAST_LEVEL, overlapping};
use perigee_base::{KeyBoundaryRef, LevelNo};
use std::ops::Range;

/// Returns the level for a loaded table with the given bounds, range tombstones included. Level 0
/// means a new run there.
pub fn target_level(shape: &TreeShape, keys: Range<KeyBoundaryRef<'_>>) -> LevelNo {
    let overlapping_level = (0..=LAST_LEVEL)
        .find(|level| overlapping(shape, *level, keys.start, keys.end).next().is_some());
    LevelNo(overlapping_level.map_or(LAST_LEVEL, |level| level.saturating_sub(1)) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::TableShape;
    use perigee_base::{FileId, KeyBoundary, limits};

    fn shape(tables: &[(usize, &str, &str, u64)]) -> TreeShape {
        let mut levels = vec![Vec::new(); limits::LEVELS];
        for (n, (level, first, last, bytes)) in tables.iter().enumerate() {
            let (first, last) = (
                KeyBoundary::Before(first.as_bytes().into()),
                KeyBoundary::After(last.as_bytes().into()),
            );
            let table = TableShape::new(FileId(n as u64), first, last, *bytes);
            levels[*level].push(vec![table]);
        }
        TreeShape { levels, ..TreeShape::default() }
    }

    #[test]
    fn target_level_is_above_first_overlap() {
        let at = |s: &TreeShape, first: &str, last: &str| {
            target_level(
                s,
                KeyBoundaryRef::Before(first.as_bytes())..KeyBoundaryRef::After(last.as_bytes()),
            )
            .0
        };
        assert_eq!(at(&shape(&[]), "a", "z"), 6);
        let some =
            shape(&[(0, "a", "c", 5), (2, "f", "h", 500), (3, "m", "p", 500), (6, "x", "z", 9)]);
        assert_eq!(at(&some, "b", "b"), 0, "overlaps a run of level 0: new run above it");
        assert_eq!(at(&some, "g", "n"), 1, "above level 2");
        assert_eq!(at(&some, "h", "k"), 1, "the last key is inclusive");
        assert_eq!(at(&some, "m", "o"), 2);
        assert_eq!(at(&some, "q", "x"), 5);
        assert_eq!(at(&some, "q", "v"), 6, "no overlap");
    }
}
