//! Perigee beside SQLite: typical operations of SQLite applications, with the goal for each.

use super::record_set::{RecordSet, ratio_text};
use super::{Grid, SuiteView};

/// Description, workload, threads, and the goal as a multiple of SQLite's throughput (0: none).
const GOALS: &[(&str, &str, usize, f64)] = &[
    ("bulk load, sorted", "bulk_seq", 1, 2.0),
    ("bulk load, unsorted", "bulk_random", 1, 3.0),
    ("transactions of 1,000 rows, sorted", "write_seq", 1, 0.0),
    ("transactions of 1,000 rows, random", "write_random", 1, 3.0),
    ("warm get, one read transaction", "read_view", 1, 1.5),
    ("warm get, autocommit", "read_random", 1, 3.0),
    ("Zipf gets", "read_zipf", 1, 3.0),
    ("missing keys", "read_missing", 1, 4.0),
    ("range of 100", "range100_random", 1, 2.5),
    ("durable commits, 1 thread", "write_durable_b1", 1, 1.0),
    ("durable commits, 8 threads", "write_durable_b1", 8, 3.0),
];
/// Goal for SQLite's bytes per row relative to Perigee's.
const ROW_SIZE_GOAL: f64 = 1.7;

pub fn view(all: &RecordSet<'_>) -> SuiteView {
    let mut grid = Grid::new(
        "",
        &[
            "operation",
            "perigee",
            "sqlite",
            "times the throughput",
            "times the CPU",
            "goal",
            "reached",
        ],
    );
    let reached = |r: Option<f64>, goal: f64| match r {
        Some(r) if goal > 0.0 => (if r >= goal { "yes" } else { "NO" }).to_owned(),
        _ => "-".into(),
    };
    let shown = |goal: f64| if goal > 0.0 { format!("{goal}") } else { "-".into() };
    for (what, workload, threads, goal) in GOALS {
        let of = all.with_workload(workload).with_threads(*threads);
        if of.is_empty() {
            continue;
        }
        let (ours, theirs) = (of.with_engine("perigee"), of.with_engine("sqlite"));
        let rates = (ours.median(|r| r.ops_per_sec), theirs.median(|r| r.ops_per_sec));
        let times = rates.0.zip(rates.1).map(|(a, b)| a / b);
        grid.rows.push(vec![
            (*what).to_owned(),
            ours.rate(),
            theirs.rate(),
            ratio_text(rates.0, rates.1),
            ratio_text(theirs.median(|r| r.cpu_us_per_op), ours.median(|r| r.cpu_us_per_op)),
            shown(*goal),
            reached(times, *goal),
        ]);
    }
    let written = all.with_workload("write_random");
    let row = |e: &str| written.with_engine(e).median(|r| r.db_bytes as f64 / r.ops.max(1) as f64);
    let (ours, theirs) = (row("perigee"), row("sqlite"));
    let bytes = |b: Option<f64>| b.map_or("-".into(), |b| format!("{b:.1}"));
    let times = ours.zip(theirs).map(|(a, b)| b / a);
    grid.rows.push(vec![
        "bytes per row on disk".into(),
        bytes(ours),
        bytes(theirs),
        ratio_text(theirs, ours),
        "-".into(),
        shown(ROW_SIZE_GOAL),
        reached(times, ROW_SIZE_GOAL),
    ]);
    SuiteView {
        title: "Perigee beside SQLite",
        about: "Operations per second (CPU microseconds per operation). SQLite as its \
                documentation recommends: write-ahead log, prepared statements, a table \
                without row ids, the same cache and the same durability (`synchronous` off where \
                nothing is synced, full where every commit is). \
                Bulk load: one transaction, beside `bulk_load`. Reads are warm: done once before \
                they are measured. Times the CPU: SQLite's over ours."
            .into(),
        grids: vec![grid],
        charts: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    #[test]
    fn goals_are_compared_with_throughput() {
        let record = |engine: &str, rate: f64| Record {
            suite: "sqlite".into(),
            engine: engine.into(),
            workload: "write_random".into(),
            threads: 1,
            ops: 10,
            ops_per_sec: rate,
            cpu_us_per_op: 1.0,
            db_bytes: if engine == "sqlite" { 1500 } else { 1000 },
            ..Record::default()
        };
        let records = [record("perigee", 400.0), record("sqlite", 100.0)];
        let view = view(&RecordSet::for_suite(&records, "sqlite"));
        let rows = &view.grids[0].rows;
        assert_eq!(rows[0][3..], ["4.00", "1.00", "3", "yes"]);
        assert_eq!(rows[1], ["bytes per row on disk", "100.0", "150.0", "1.50", "-", "1.7", "NO"]);
    }
}
