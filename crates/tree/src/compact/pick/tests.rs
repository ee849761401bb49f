//! Plans as text.

use super::*;
use crate::compact::plan::TableShape;
use crate::mvcc::Strata;
use perigee_base::cut::Cut;
use perigee_base::{FileId, KeyOrder, SeqNo};
use perigee_file::Fragments;
use std::sync::Arc;

/// `L0: 3[a-f]10 | 2[a-c]10`: runs divided by `|`, tables as id[first-last]bytes.
fn shape(text: &str) -> Shape {
    let mut levels = vec![Vec::new(); perigee_base::limits::LEVELS];
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (level, runs) = line.split_once(':').unwrap();
        let level: usize = level[1..].parse().unwrap();
        for run in runs.split('|') {
            let table = |t: &str| {
                let (id, rest) = t.split_once('[').unwrap();
                let (range, bytes) = rest.split_once(']').unwrap();
                let (first, last) = range.split_once('-').unwrap();
                TableShape {
                    id: FileId(id.parse().unwrap()),
                    bytes: bytes.parse().unwrap(),
                    first: Cut::Before(first.into()),
                    last: Cut::After(last.into()),
                    smallest: SeqNo(1),
                    largest: SeqNo(1),
                    ranges: None,
                    vlogs: vec![],
                }
            };
            levels[level].push(run.split_whitespace().map(table).collect());
        }
    }
    Shape { order: KeyOrder::Bytes, levels, vlogs: Default::default() }
}

fn show(p: Option<Plan>) -> String {
    let Some(p) = p else { return "nothing".into() };
    let inputs: Vec<String> = p.inputs.iter().map(|(l, id)| format!("L{l}/{id}")).collect();
    let how = if p.trivial { "move" } else { "merge" };
    format!("{how} {} -> L{} ({})", inputs.join(" "), p.to, p.reason.name())
}

const LIMITS: Limits = Limits { level0_runs: 4, level1_bytes: 100, ratio: 10 };

#[test]
fn plans() {
    let cases = [
        ("", "nothing"),
        ("L0: 3[a-f]10 | 2[a-c]10 | 1[a-b]5", "nothing"),
        (
            "L0: 4[a-f]1 | 3[a-f]1 | 2[c-d]1 | 1[c-d]1\nL1: 5[a-b]10 6[f-f]10 7[g-z]10",
            "merge L0/4 L0/3 L0/2 L0/1 L1/5 L1/6 -> L1 (level 0 runs)",
        ),
        ("L1: 5[a-b]60 6[f-f]60\nL2: 7[a-c]500", "move L1/6 -> L2 (level bytes)"),
        ("L1: 5[a-b]60 6[f-g]60\nL2: 7[a-c]500 8[e-k]100", "merge L1/6 L2/8 -> L2 (level bytes)"),
    ];
    for (text, want) in cases {
        assert_eq!(show(pick(&shape(text), &LIMITS)), want, "{text}");
    }
}

#[test]
fn a_log_that_is_mostly_garbage_is_emptied_from_the_bottom() {
    let mut s = shape("L1: 5[a-b]6\nL2: 7[a-c]50 8[d-e]50");
    s.vlogs.insert(FileId(20), (1 << 20, 1 << 18));
    s.vlogs.insert(FileId(21), (1 << 20, 1 << 20));
    s.levels[1][0][0].vlogs = vec![FileId(20)];
    s.levels[2][0][1].vlogs = vec![FileId(20), FileId(21)];
    assert_eq!(show(pick(&s, &LIMITS)), "merge L2/8 -> L2 (value-log garbage)");
}

#[test]
fn tables_that_a_range_tombstone_hides_from_everybody_are_dropped() {
    let over = |begin: &str, end: &str, seq| {
        let mut f = Fragments::default();
        let (begin, end) = (Cut::Before(begin.into()), Cut::Before(end.into()));
        f.add(KeyOrder::Bytes, begin.as_ref(), end.as_ref(), SeqNo(seq));
        f
    };
    let two = over("b", "d", 50).merge(KeyOrder::Bytes, &over("d", "h", 60));
    let cases: [(Fragments, &[u64], &str); 7] = [
        (over("b", "h", 50), &[], "merge L1/5 L1/6 -> L1 (deleted ranges)"),
        (over("b", "c", 50), &[], "nothing"),
        (over("b", "c\0", 50), &[], "merge L1/5 -> L1 (deleted ranges)"),
        (over("b", "h", 20), &[], "nothing"),
        (two.clone(), &[], "merge L1/5 L1/6 -> L1 (deleted ranges)"),
        (two, &[55, 10], "nothing"),
        (over("b", "h", 50), &[9, 50], "merge L1/5 L1/6 -> L1 (deleted ranges)"),
    ];
    for (ranges, snapshots, want) in cases {
        let mut s = shape("L0: 9[a-z]1\nL1: 5[b-c]10 6[e-g]10 7[h-i]10");
        for t in s.levels[1][0].iter_mut() {
            (t.smallest, t.largest) = (SeqNo(10), SeqNo(20));
        }
        s.levels[0][0][0].ranges = Some(Arc::new(ranges.clone()));
        let strata = Strata::new(snapshots.iter().map(|s| SeqNo(*s)).collect(), SeqNo(100));
        assert_eq!(show(covered::pick(&s, &strata)), want, "{ranges:?} {snapshots:?}");
    }
}
