//! Threads: cost of an operation when 1, 2, 4 or 8 threads use one table.

use super::record_set::{RecordSet, ratio_text};
use super::{Grid, SuiteView};
use crate::report::curves::log_chart;

pub fn view(all: &RecordSet<'_>) -> SuiteView {
    let mut threads = all.distinct(|r| r.threads);
    threads.sort_unstable();
    let (mut grids, mut charts) = (Vec::new(), Vec::new());
    for workload in all.distinct(|r| r.workload.as_str()) {
        let of = all.with_workload(workload);
        let mut grid = Grid::new(workload, &["engine"]);
        grid.header.extend(threads.iter().map(|t| format!("{t} thr")));
        grid.header.extend(threads.iter().skip(1).map(|t| format!("CPU {t}")));
        grid.header.extend(threads.iter().skip(1).map(|t| format!("rate {t}")));
        for engine in of.engines() {
            let of = of.with_engine(engine);
            let at: Vec<RecordSet<'_>> = threads.iter().map(|t| of.with_threads(*t)).collect();
            let Some((first, rest)) = at.split_first() else { continue };
            let cpu = |s: &RecordSet<'_>| s.median(|r| r.cpu_us_per_op);
            let rate = |s: &RecordSet<'_>| s.median(|r| r.ops_per_sec);
            let mut row = vec![engine.to_owned()];
            row.extend(at.iter().map(RecordSet::rate));
            row.extend(rest.iter().map(|s| ratio_text(cpu(s), cpu(first))));
            row.extend(rest.iter().map(|s| ratio_text(rate(s), rate(first))));
            grid.rows.push(row);
        }
        grids.push(grid);
        let ticks: Vec<_> = threads.iter().map(|t| ((*t as f64).log2(), t.to_string())).collect();
        let lines = of.chart_lines(|r| ((r.threads as f64).log2(), r.cpu_us_per_op));
        charts.push(log_chart(
            &format!("{workload}: CPU us per operation, by threads"),
            &lines,
            &ticks,
        ));
    }
    SuiteView {
        title: "Cost of threads",
        about: "Operations per second of all threads together (CPU microseconds per operation), \
                in one table; then CPU per operation and total \
                throughput relative to one thread. Throughput cannot grow beyond the number of \
                cores; CPU per operation should not grow at all."
            .into(),
        grids,
        charts,
    }
}
