//! Leveled compaction: level 0 merges as a whole into level 1; a level over its capacity merges the
//! table with the least overlap into the level below. The engine uses another picker
//! ([`perigee_tree::compact::pick`]); this one is for comparison.

use perigee_base::{LevelNo, limits};
use perigee_tree::compact::{
    CompactionPlan, CompactionReason, PickerOptions, TableShape, TreeShape, overlapping,
};

/// Capacity in bytes of a level (1 and deeper).
pub fn capacity(level: usize, l: &PickerOptions) -> u64 {
    (1..level).fold(l.level1_bytes.max(1), |c, _| c.saturating_mul(l.ratio.max(2)))
}

/// Returns the ratio of each level's size to its limit; a level is due for compaction at 1.0.
pub fn scores(shape: &TreeShape, l: &PickerOptions) -> Vec<f64> {
    let level0 = shape.levels.first().map_or(0, Vec::len) as f64 / l.level0_runs.max(1) as f64;
    let deeper = (1..limits::LEVELS - 1).map(|i| shape.bytes(i) as f64 / capacity(i, l) as f64);
    std::iter::once(level0).chain(deeper).collect()
}

/// Returns the plan for the level with the highest score, if that is at least 1.0.
pub fn pick(shape: &TreeShape, l: &PickerOptions) -> Option<CompactionPlan> {
    let scores = scores(shape, l);
    let (level, score) =
        scores.iter().enumerate().fold((0, 0.0), |b, (i, s)| if *s > b.1 { (i, *s) } else { b });
    if score < 1.0 {
        return None;
    }
    if level == 0 { Some(merge_level0(shape)) } else { push_down(shape, level) }
}

fn merge_level0(shape: &TreeShape) -> CompactionPlan {
    let mut inputs: Vec<_> = shape.tables(0).map(|t| (LevelNo(0), t.id)).collect();
    let comparator = shape.comparator;
    let first = shape.tables(0).map(|t| t.first.as_ref()).min_by(|a, b| a.cmp(comparator, *b));
    let last = shape.tables(0).map(|t| t.last.as_ref()).max_by(|a, b| a.cmp(comparator, *b));
    if let (Some(first), Some(last)) = (first, last) {
        inputs.extend(overlapping(shape, 1, first, last).map(|t| (LevelNo(1), t.id)));
    }
    CompactionPlan::merge(CompactionReason::Level0Runs, inputs, LevelNo(1))
}

fn push_down(shape: &TreeShape, level: usize) -> Option<CompactionPlan> {
    let cost = |t: &TableShape| {
        let below: u64 =
            overlapping(shape, level + 1, t.first.as_ref(), t.last.as_ref()).map(|b| b.bytes).sum();
        below as f64 / t.bytes.max(1) as f64
    };
    let table = shape.tables(level).min_by(|a, b| cost(a).total_cmp(&cost(b)))?;
    let below: Vec<_> = overlapping(shape, level + 1, table.first.as_ref(), table.last.as_ref())
        .map(|t| t.id)
        .collect();
    let (from, to) = (LevelNo(level as u8), LevelNo(level as u8 + 1));
    // A table with range tombstones is rewritten, which drops those that no longer hide anything.
    let trivial = below.is_empty() && table.range_tombstones.is_none();
    let inputs =
        std::iter::once((from, table.id)).chain(below.into_iter().map(|id| (to, id))).collect();
    Some(CompactionPlan {
        trivial_move: trivial,
        ..CompactionPlan::merge(CompactionReason::LevelBytes, inputs, to)
    })
}
