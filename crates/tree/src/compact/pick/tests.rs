//! Tests of the pickers, with plans as text.

use super::*;
use crate::compact::plan::{TableShape, VlogShape};
use crate::mvcc::SnapshotStripes;
use perigee_base::{FileId, KeyBoundary, KeyComparator, SeqNo};
use perigee_file::RangeTombstones;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Parses a shape: `L0: 3[a-f]10 | 2[a-c]10` has runs divided by `|`, tables as
/// id[first-last]bytes.
fn shape(text: &str) -> TreeShape {
    let mut levels = vec![Vec::new(); perigee_base::limits::LEVELS];
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (level, runs) = line.split_once(':').unwrap();
        let level: usize = level[1..].parse().unwrap();
        for run in runs.split('|') {
            let table = |t: &str| {
                let (id, rest) = t.split_once('[').unwrap();
                let (range, bytes) = rest.split_once(']').unwrap();
                let (first, last) = range.split_once('-').unwrap();
                let (first, last) =
                    (KeyBoundary::Before(first.into()), KeyBoundary::After(last.into()));
                TableShape::new(FileId(id.parse().unwrap()), first, last, bytes.parse().unwrap())
            };
            levels[level].push(run.split_whitespace().map(table).collect());
        }
    }
    TreeShape { levels, ..TreeShape::default() }
}

fn format_plan(p: Option<CompactionPlan>) -> String {
    let Some(p) = p else { return "nothing".into() };
    let inputs: Vec<String> = p.inputs.iter().map(|(l, id)| format!("L{l}/{id}")).collect();
    let how = if p.trivial_move { "move" } else { "merge" };
    format!("{how} {} -> L{} ({})", inputs.join(" "), p.target_level, p.reason.name())
}

fn pick_vlog_garbage(shape: &TreeShape, percent: u64) -> Option<CompactionPlan> {
    let limits = PickerOptions {
        level0_runs: 4,
        level1_bytes: 1,
        ratio: 10,
        table_bytes: 1,
        vlog_garbage_percent: percent,
    };
    vlog_garbage::pick(shape, &limits)
}

/// Three value logs with 16.3 % of garbage together; the second one has the largest share.
#[test]
fn excess_garbage_is_collected_from_the_vlog_with_the_largest_share() {
    let mut s = shape("L1: 5[a-b]6\nL2: 7[a-c]50 8[d-e]50");
    for (id, kib, referenced_kib) in [(20, 1000, 850), (21, 200, 150), (22, 300, 290)] {
        let vlog = VlogShape { bytes: kib << 10, referenced_bytes: referenced_kib << 10 };
        s.vlogs.insert(FileId(id), vlog);
    }
    // Without live bytes: it is deleted with its last reader.
    s.vlogs.insert(FileId(23), VlogShape { bytes: 9 << 20, referenced_bytes: 0 });
    s.levels[2][0][0].vlogs = vec![FileId(20), FileId(22)];
    s.levels[2][0][1].vlogs = vec![FileId(21)];
    assert_eq!(format_plan(pick_vlog_garbage(&s, 0)), "nothing", "none is mostly garbage");
    assert_eq!(format_plan(pick_vlog_garbage(&s, 17)), "nothing", "210 of 1,290");
    let plan = pick_vlog_garbage(&s, 16).unwrap();
    assert_eq!(plan.relocate_vlogs, BTreeSet::from([FileId(21)]));
    assert_eq!(format_plan(Some(plan)), "merge L2/8 -> L2 (value-log garbage)");
    // Its table is in level 0: the next one.
    s.levels[2][0][1].vlogs.clear();
    let plan = pick_vlog_garbage(&s, 16).unwrap();
    assert_eq!(plan.relocate_vlogs, BTreeSet::from([FileId(20)]));
    // Shares of an eighth and less are left.
    s.vlogs.insert(FileId(20), VlogShape { bytes: 1000 << 10, referenced_bytes: 880 << 10 });
    assert_eq!(format_plan(pick_vlog_garbage(&s, 5)), "nothing");
}

/// One rewrite of a table moves the values of all value logs that are due, up to a quarter of the
/// allowed garbage below the limit, and no more.
#[test]
fn several_vlogs_of_a_table_are_collected_at_once() {
    let mut s = shape("L2: 7[a-c]50");
    let ids: Vec<FileId> = (20..26).map(FileId).collect();
    for id in &ids {
        s.vlogs.insert(*id, VlogShape { bytes: 1000 << 10, referenced_bytes: 800 << 10 });
    }
    s.levels[2][0][0].vlogs = ids.clone();
    // 1,200 of 4,800 KiB: at 20 % the limit is 960 KiB, and three have to go to be below 720.
    let relocated = |percent| pick_vlog_garbage(&s, percent).map(|plan| plan.relocate_vlogs.len());
    assert_eq!(relocated(25), None, "exactly what is allowed");
    assert_eq!(relocated(20), Some(3));
    assert_eq!(relocated(1), Some(6));
}

#[test]
fn vlog_garbage_is_collected_from_deepest_level() {
    let mut s = shape("L1: 5[a-b]6\nL2: 7[a-c]50 8[d-e]50");
    s.vlogs.insert(FileId(20), VlogShape { bytes: 1 << 20, referenced_bytes: 1 << 18 });
    s.vlogs.insert(FileId(21), VlogShape { bytes: 1 << 20, referenced_bytes: 1 << 20 });
    s.levels[1][0][0].vlogs = vec![FileId(20)];
    s.levels[2][0][1].vlogs = vec![FileId(20), FileId(21)];
    assert_eq!(format_plan(pick_vlog_garbage(&s, 0)), "merge L2/8 -> L2 (value-log garbage)");
}

/// A table of level 1 with two entries over one of the last level with a hundred, which references
/// `vlog_bytes`; `change` changes the two.
fn picked_beside_separated_values(
    vlog_bytes: u64,
    change: impl FnOnce(&mut TableShape, &mut TableShape),
) -> String {
    let mut s = shape("L1: 5[a-b]300\nL6: 7[a-c]50000 8[d-e]50000");
    s.vlogs.insert(FileId(20), VlogShape { bytes: vlog_bytes, referenced_bytes: vlog_bytes });
    let (mut newer, mut older) = (s.levels[1][0][0].clone(), s.levels[6][0][0].clone());
    (newer.entries, older.entries) = (2, 100);
    (older.vlogs, older.vlog_bytes) = (vec![FileId(20)], vlog_bytes);
    change(&mut newer, &mut older);
    (s.levels[1][0][0], s.levels[6][0][0]) = (newer, older);
    format_plan(pick_vlog_garbage(&s, 0))
}

#[test]
fn tables_are_merged_if_they_may_hide_much_larger_values() {
    let merged = "merge L1/5 L6/7 -> L6 (value-log garbage)";
    type Change = fn(&mut TableShape, &mut TableShape);
    let picked = |vlog_bytes, change: Change| picked_beside_separated_values(vlog_bytes, change);
    // Replaced values.
    assert_eq!(picked(100 << 20, |newer, _| newer.vlog_bytes = 2 << 20), merged);
    assert_eq!(
        picked(100 << 20, |newer, _| newer.vlog_bytes = 1 << 19),
        "nothing",
        "too few bytes"
    );
    assert_eq!(picked(1 << 19, |newer, _| newer.vlog_bytes = 2 << 20), "nothing", "few are there");
    let costly = |newer: &mut TableShape, older: &mut TableShape| {
        (newer.vlog_bytes, older.bytes) = (2 << 20, 200_000);
    };
    assert_eq!(picked(100 << 20, costly), "nothing", "the merge costs more than a sixteenth");
    // Deleted values: two of a hundred, then one that has its own file among small ones.
    assert_eq!(picked(100 << 20, |newer, _| newer.tombstones = 2), merged);
    assert_eq!(picked(40 << 20, |newer, _| newer.tombstones = 2), "nothing");
    let long = |newer: &mut TableShape, older: &mut TableShape| {
        (newer.tombstones, older.long_values, older.long_value_bytes) = (2, 1, 4 << 20);
    };
    assert_eq!(picked(5 << 20, long), merged);
    let mixed = |newer: &mut TableShape, older: &mut TableShape| {
        (newer.tombstones, newer.entries) = (2, 100_000);
        (older.long_values, older.long_value_bytes) = (1, 4 << 20);
    };
    assert_eq!(picked(5 << 20, mixed), "nothing", "the next merge of its level does it");
    assert_eq!(picked(100 << 20, |_, _| ()), "nothing", "two puts of short values");
}

#[test]
fn versions_of_long_values_above_other_data_are_merged() {
    let mut s = shape("L4: 5[b-b]300\nL5: 6[b-b]300\nL6: 7[a-c]50000 8[d-e]50000");
    s.vlogs.insert(FileId(20), VlogShape { bytes: 4 << 20, referenced_bytes: 4 << 20 });
    s.levels[6][0][0].entries = 100;
    s.levels[5][0][0].entries = 1;
    s.levels[5][0][0].vlog_bytes = 4 << 20;
    assert_eq!(format_plan(pick_vlog_garbage(&s, 0)), "nothing", "the only version");
    s.levels[4][0][0].entries = 1;
    s.levels[4][0][0].vlog_bytes = 4 << 20;
    let merged = "merge L6/7 L4/5 L5/6 -> L6 (value-log garbage)";
    assert_eq!(format_plan(pick_vlog_garbage(&s, 0)), merged);
    (s.levels[4][0][0].vlog_bytes, s.levels[4][0][0].tombstones) = (0, 1);
    (s.levels[5][0][0].long_values, s.levels[5][0][0].long_value_bytes) = (1, 4 << 20);
    assert_eq!(format_plan(pick_vlog_garbage(&s, 0)), merged, "deleted");
}

#[test]
fn tables_covered_by_range_tombstone_are_dropped() {
    let range_tombstone = |begin: &str, end: &str, seq| {
        let mut f = RangeTombstones::default();
        let (begin, end) = (KeyBoundary::Before(begin.into()), KeyBoundary::Before(end.into()));
        f.add(KeyComparator::Bytes, begin.as_ref(), end.as_ref(), SeqNo(seq));
        f
    };
    let two =
        range_tombstone("b", "d", 50).merge(KeyComparator::Bytes, &range_tombstone("d", "h", 60));
    let cases: [(RangeTombstones, &[u64], &str); 7] = [
        (range_tombstone("b", "h", 50), &[], "merge L1/5 L1/6 -> L1 (deleted ranges)"),
        (range_tombstone("b", "c", 50), &[], "nothing"),
        (range_tombstone("b", "c\0", 50), &[], "merge L1/5 -> L1 (deleted ranges)"),
        (range_tombstone("b", "h", 20), &[], "nothing"),
        (two.clone(), &[], "merge L1/5 L1/6 -> L1 (deleted ranges)"),
        (two, &[55, 10], "nothing"),
        (range_tombstone("b", "h", 50), &[9, 50], "merge L1/5 L1/6 -> L1 (deleted ranges)"),
    ];
    for (ranges, snapshots, want) in cases {
        let mut s = shape("L0: 9[a-z]1\nL1: 5[b-c]10 6[e-g]10 7[h-i]10");
        for t in s.levels[1][0].iter_mut() {
            (t.smallest_seq, t.largest_seq) = (SeqNo(10), SeqNo(20));
        }
        s.levels[0][0][0].range_tombstones = Some(Arc::new(ranges.clone()));
        let stripes =
            SnapshotStripes::new(snapshots.iter().map(|s| SeqNo(*s)).collect(), SeqNo(100));
        assert_eq!(
            format_plan(range_deleted::pick_range_deleted(&s, &stripes)),
            want,
            "{ranges:?} {snapshots:?}"
        );
    }
}

/// Plans of Spooky, each for a given shape.
#[test]
fn spooky_picker_plans() {
    let limits = PickerOptions {
        level0_runs: 2,
        level1_bytes: 50,
        ratio: 10,
        table_bytes: 160,
        vlog_garbage_percent: 0,
    };
    let cases = [
        ("", "nothing"),
        ("L0: 2[a-c]10", "nothing"),
        // Little data: merged directly into the last level, and cut there.
        ("L0: 2[a-c]10 | 1[b-d]10", "merge L0/2 L0/1 -> L6 (level 0 runs) cut at 21"),
        // No overlap: moved together without a rewrite.
        ("L0: 2[a-c]10 | 1[d-f]10", "move L0/2 L0/1 -> L6 (level 0 runs)"),
        ("L0: 2[a-c]10 | 1[d-f]10\nL6: 3[x-z]40", "move L0/2 L0/1 -> L6 (level 0 runs)"),
        // One group at a time; the tables of the last level are too large for a merge into it at
        // once.
        (
            "L0: 4[a-b]25 5[m-n]5 | 2[b-c]25 3[n-o]5\nL6: 6[a-d]150 7[f-k]150 8[l-p]150",
            "merge L0/4 L0/2 -> L5 (level 0 runs) cut at 20 []",
        ),
        // The first level with capacity for all: level 5 has capacity 100, level 4 has 10.
        (
            "L0: 2[a-c]4 | 1[b-d]4\nL6: 3[a-h]500 4[i-z]500",
            "merge L0/2 L0/1 -> L4 (level 0 runs) cut at 31 []",
        ),
        (
            "L0: 2[a-k]20 | 1[b-m]20\nL5: 9[c-d]20\nL6: 3[a-h]500 4[i-z]500",
            "merge L0/2 L0/1 L5/9 -> L5 (level 0 runs) cut at 31 [i]",
        ),
        // Level 5 is full: all of it is due, but level 0 is too coarse for the last level at once.
        (
            "L0: 2[a-k]20 | 1[b-m]20\nL5: 9[c-d]80\nL6: 3[a-h]500 4[i-z]500",
            "merge L0/2 L0/1 L5/9 -> L5 (level 0 runs) cut at 31 [i]",
        ),
        // Too coarse for a move: it is cut at the last level's boundaries.
        (
            "L0: 2[a-y]60 | 1[z-z]60\nL6: 3[a-b]250 4[c-d]250 5[e-f]250 6[g-h]250 7[i-z]200",
            "merge L0/2 -> L5 (level 0 runs) cut at 37 [c e g i]",
        ),
        // A level over its capacity, group by group; tables without overlap are moved.
        (
            "L5: 5[a-b]70 6[i-j]40\nL6: 3[a-h]500 4[k-z]500",
            "merge L5/5 L6/3 -> L6 (level bytes) cut at 45",
        ),
        ("L5: 5[a-b]70 6[i-j]40\nL6: 3[c-h]500 4[k-z]500", "move L5/5 L5/6 -> L6 (level bytes)"),
        // Adjacent small tables.
        (
            "L6: 1[a-b]4 2[c-d]4 3[e-f]4 4[g-h]4 5[i-j]150",
            "merge L6/1 L6/2 L6/3 L6/4 -> L6 (small tables)",
        ),
    ];
    let picked = |text| {
        spooky::pick(&shape(text), &limits, &PickerProgress::default()).map(|(plan, _)| plan)
    };
    let got: Vec<String> =
        cases.iter().map(|(text, _)| format_plan_with_cuts(picked(text))).collect();
    assert_eq!(got, cases.map(|(_, want)| want));
}

fn format_plan_with_cuts(p: Option<CompactionPlan>) -> String {
    let at =
        p.as_ref().and_then(|p| p.table_bytes).map_or(String::new(), |n| format!(" cut at {n}"));
    let cuts = p.as_ref().map_or(String::new(), |p| {
        let name = |c: &KeyBoundary| {
            if let KeyBoundary::Before(k) = c {
                String::from_utf8_lossy(k).into_owned()
            } else {
                "?".into()
            }
        };
        let names: Vec<String> = p.cuts.iter().map(name).collect();
        if p.target_level.0 < 6 { format!(" [{}]", names.join(" ")) } else { String::new() }
    });
    format_plan(p) + &at + &cuts
}

#[test]
fn level_merge_resumes_where_it_stopped() {
    let limits = PickerOptions {
        level0_runs: 2,
        level1_bytes: 5000,
        ratio: 10,
        table_bytes: 160,
        vlog_garbage_percent: 0,
    };
    let before = shape("L0: 4[a-b]5 5[m-n]5 | 2[b-c]5 3[n-o]5\nL6: 6[a-d]150 7[f-k]150 8[l-p]150");
    let (_, progress) = spooky::pick(&before, &limits, &PickerProgress::default()).unwrap();
    // A newer run arrived in the meantime, and level 0 is under its limit: the merge still
    // continues, without that run.
    let mut after = shape("L0: 9[a-z]5 | 5[m-n]5\nL6: 16[a-d]155 7[f-k]150 8[l-p]150");
    after.levels[0][0][0].run = perigee_base::RunId(7);
    let (plan, progress) = spooky::pick(&after, &limits, &progress).unwrap();
    assert_eq!(format_plan(Some(plan)), "merge L6/8 L0/5 -> L6 (level 0 runs)");
    let mut done = shape("L0: 9[a-z]5\nL6: 16[a-d]155 7[f-k]150 18[l-p]155");
    done.levels[0][0][0].run = perigee_base::RunId(7);
    assert_eq!(spooky::pick(&done, &limits, &progress), None, "a single run is not worth a merge");
}

#[test]
fn overwritten_entries_trigger_compaction() {
    let limits = PickerOptions {
        level0_runs: 4,
        level1_bytes: 500,
        ratio: 10,
        table_bytes: 160,
        vlog_garbage_percent: 0,
    };
    let mut s = shape("L0: 9[a-z]30\nL6: 1[a-f]80 2[g-z]80");
    for t in s.levels.iter_mut().flatten().flatten() {
        t.entries = t.bytes * 100;
    }
    let plan = |s: &TreeShape| {
        format_plan(spooky::pick(s, &limits, &PickerProgress::default()).map(|(plan, _)| plan))
    };
    assert_eq!(plan(&s), "nothing", "keys not counted");
    s.distinct_keys = Some(18_000);
    assert_eq!(plan(&s), "nothing", "all keys are distinct");
    s.distinct_keys = Some(16_000);
    assert_eq!(plan(&s), "merge L0/9 L6/1 L6/2 -> L6 (overwritten entries)");
}

#[test]
fn tombstone_dense_tables_are_compacted() {
    let mut s = shape("L0: 9[a-c]10\nL5: 5[m-p]9\nL6: 1[a-f]80 2[g-z]80");
    s.levels[0][0][0].entries = 2000;
    s.levels[0][0][0].tombstones = 1400;
    s.levels[0][0][0].largest_seq = SeqNo(20);
    let at = |snapshots: Vec<u64>| {
        format_plan(dense_tombstones::pick_dense_tombstones(
            &s,
            &SnapshotStripes::new(snapshots.into_iter().map(SeqNo).collect(), SeqNo(100)),
        ))
    };
    assert_eq!(at(vec![]), "merge L0/9 L6/1 -> L6 (tombstones)");
    assert_eq!(at(vec![20]), "merge L0/9 L6/1 -> L6 (tombstones)");
    assert_eq!(at(vec![19]), "nothing", "a snapshot still sees what they hide");
}

#[test]
fn tombstones_skipped_by_scans_are_compacted() {
    let mut s = shape("L0: 9[a-c]10\nL6: 1[a-b]50 2[f-g]50");
    let set = |s: &mut TreeShape, skipped, entries| {
        let t = &mut s.levels[0][0][0];
        (t.entries, t.tombstones, t.skipped_tombstones, t.largest_seq) =
            (10, 5, skipped, SeqNo(20));
        s.levels[6][0][0].entries = entries;
    };
    let at = |s: &TreeShape, snapshots: Vec<u64>| {
        format_plan(skipped_tombstones::pick_skipped_tombstones(
            s,
            &SnapshotStripes::new(snapshots.into_iter().map(SeqNo).collect(), SeqNo(100)),
        ))
    };
    set(&mut s, crate::limits::SKIPPED_MIN, 1000);
    assert_eq!(at(&s, vec![]), "merge L0/9 L6/1 -> L6 (skipped tombstones)");
    assert_eq!(at(&s, vec![19]), "nothing", "a snapshot still sees what they hide");
    set(&mut s, crate::limits::SKIPPED_MIN - 1, 1000);
    assert_eq!(at(&s, vec![]), "nothing", "too few skips");
    set(&mut s, crate::limits::SKIPPED_MIN, crate::limits::SKIPPED_MIN);
    assert_eq!(at(&s, vec![]), "nothing", "the merge costs more than the skips did");
}
