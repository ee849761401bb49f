//! Tests of the pickers on the model: every plan keeps the order of versions and loses no entry.

use crate::leveled;
use crate::{LsmModel, ModelEntry, PickerKind};
use perigee_base::{FileId, KeyBoundary, limits};
use perigee_tree::compact::{CompactionPlan, PickerOptions, TableShape, TreeShape};

/// Table `id` with the keys `first` to `last`.
fn table(id: u64, first: &str, last: &str, bytes: u64) -> TableShape {
    let (first, last) = (KeyBoundary::Before(first.into()), KeyBoundary::After(last.into()));
    TableShape::new(FileId(id), first, last, bytes)
}

/// A tree whose level `i` has the runs `levels[i]`.
fn tree(levels: Vec<Vec<Vec<TableShape>>>) -> TreeShape {
    let mut levels = levels;
    levels.resize(limits::LEVELS, Vec::new());
    TreeShape { levels, ..TreeShape::default() }
}

fn format_plan(plan: Option<CompactionPlan>) -> String {
    let Some(plan) = plan else { return "nothing".into() };
    let inputs: Vec<String> = plan.inputs.iter().map(|(l, id)| format!("L{l}/{id}")).collect();
    let how = if plan.trivial_move { "move" } else { "merge" };
    format!("{how} {} -> L{} ({})", inputs.join(" "), plan.target_level, plan.reason.name())
}

#[test]
fn leveled_picker_plans() {
    const LIMITS: PickerOptions = PickerOptions {
        level0_runs: 4,
        level1_bytes: 100,
        ratio: 10,
        table_bytes: 10,
        vlog_garbage_percent: 0,
    };
    let runs = |n: u64| (1..=n).map(|id| vec![table(id, "a", "f", 1)]).collect::<Vec<_>>();
    let level1 = || vec![vec![table(5, "a", "b", 60), table(6, "f", "g", 60)]];
    let cases = [
        (tree(vec![]), "nothing"),
        (tree(vec![runs(3)]), "nothing"),
        (
            tree(vec![
                runs(4),
                vec![vec![table(5, "a", "b", 10), table(6, "f", "f", 10), table(7, "g", "z", 10)]],
            ]),
            "merge L0/1 L0/2 L0/3 L0/4 L1/5 L1/6 -> L1 (level 0 runs)",
        ),
        (
            tree(vec![vec![], level1(), vec![vec![table(7, "a", "c", 500)]]]),
            "move L1/6 -> L2 (level bytes)",
        ),
        (
            tree(vec![
                vec![],
                level1(),
                vec![vec![table(7, "a", "c", 500), table(8, "e", "k", 100)]],
            ]),
            "merge L1/6 L2/8 -> L2 (level bytes)",
        ),
    ];
    for (shape, want) in cases {
        assert_eq!(format_plan(leveled::pick(&shape, &LIMITS)), want, "{shape:?}");
    }
}

#[test]
fn plans_preserve_version_order_and_data() {
    for seed in 1..40u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = move |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % n
        };
        let limits = PickerOptions {
            level0_runs: 1 + next(4) as usize,
            level1_bytes: next(3) * 200,
            ratio: 2 + next(4),
            table_bytes: 50 + next(400),
            vlog_garbage_percent: 0,
        };
        let picker = if seed % 5 == 0 { PickerKind::Leveled } else { PickerKind::Spooky };
        let mut model = LsmModel::new(picker, limits, 10);
        let mut expected = std::collections::BTreeMap::new();
        let mut seq = 0;
        let span = 1 + next(3000);
        for _ in 0..60 {
            let (start, n) = (next(span), 1 + next(40));
            let mut entries = Vec::new();
            for i in 0..n {
                seq += 1;
                let (key, is_tombstone) =
                    (if next(2) == 0 { start + i } else { next(span) } as u32, next(4) == 0);
                entries.push(ModelEntry { key, seq, is_tombstone });
                if is_tombstone {
                    expected.remove(&key)
                } else {
                    expected.insert(key, seq)
                };
            }
            model.flush(entries);
            for _ in 0..next(6) {
                model.compact_parallel(if seed % 5 == 0 { 0 } else { next(4) as usize });
                assert!(model.is_ordered(), "seed {seed}");
            }
            assert_eq!(model.contents(), expected, "seed {seed}");
        }
        let mut steps = 0;
        while model.compact().is_some() {
            steps += 1;
            assert!(steps < 10_000, "seed {seed}: compaction does not terminate");
        }
        assert!(model.is_ordered() && model.contents() == expected, "seed {seed}");
    }
}
