//! Transactions: commits and aborts at each level, by amount of contention.

use super::record_set::RecordSet;
use super::{Grid, SuiteView};
use crate::record::Record;
use crate::report::curves::log_chart;
use crate::settings::Level;

/// Returns the level of a record.
fn level_of(r: &Record) -> Option<Level> {
    r.settings.as_ref().map(|s| s.level)
}

/// Returns the number of hot keys of a workload, from its name.
fn hot_keys(r: &Record) -> Option<f64> {
    r.workload.strip_prefix("txn_rmw_")?.parse().ok()
}

pub fn view(all: &RecordSet<'_>) -> SuiteView {
    let (mut grids, mut charts) = (Vec::new(), Vec::new());
    for of_level in all.distinct(level_of) {
        let (Some(name), of) = (of_level, all.filter(|r| level_of(r) == of_level)) else {
            continue;
        };
        let workloads = of.distinct(|r| r.workload.as_str());
        let title = match name {
            Level::Snapshot => "snapshot: the second to commit fails",
            Level::Serializable => "serializable",
            Level::Locks => "locks: the second waits",
        };
        let mut commits = Grid::new(format!("{title}: commits/s (CPU us)"), &["engine"]);
        let mut aborts = Grid::new(format!("{title}: aborts per 100 commits, p99 us"), &["engine"]);
        for grid in [&mut commits, &mut aborts] {
            grid.header.extend(workloads.iter().map(|w| w.trim_start_matches("txn_").to_owned()));
        }
        for engine in of.engines() {
            let of = of.with_engine(engine);
            let cells = |cell: &dyn Fn(&RecordSet<'_>) -> String| {
                let cells = workloads.iter().map(|w| cell(&of.with_workload(w)));
                std::iter::once(engine.to_owned()).chain(cells).collect::<Vec<_>>()
            };
            commits.rows.push(cells(&|s| s.rate()));
            aborts.rows.push(cells(&|s| {
                let share = s.median(|r| 100.0 * r.aborts as f64 / r.ops.max(1) as f64);
                share.map_or_else(|| "-".into(), |n| format!("{n:.1}, {}", s.cell(|r| r.p99_us)))
            }));
        }
        grids.extend([commits, aborts]);
        let counted = of.filter(|r| hot_keys(r).is_some());
        let ticks = [1.0f64, 4.0, 16.0, 64.0].map(|n| (n.log2(), n.to_string())).to_vec();
        let lines = counted.chart_lines(|r| (hot_keys(r).unwrap_or(1.0).log2(), r.ops_per_sec));
        charts.push(log_chart(
            &format!("{title}: commits per second, by hot keys"),
            &lines,
            &ticks,
        ));
    }
    SuiteView {
        title: "Transactions",
        about: "Commits per second of all threads together (CPU microseconds per commit, failed \
                attempts included); then how many transactions lost a conflict \
                and were retried, per 100 commits, and the 99th percentile of the time from the \
                first attempt to the commit. `rmw_n`: two keys are read and incremented, \
                one of n hot ones and any; `rmw`: any two. LMDB and SQLite admit one writer at a \
                time, at every level. An engine that is not run has no such level. \
                All sums were compared after reopening."
            .into(),
        grids,
        charts,
    }
}
