//! Growth: cost of writes and reads as the number of keys grows tenfold with the same cache.

use super::record_set::{RecordSet, ratio_text};
use super::{Grid, SuiteView};
use crate::record::Record;
use crate::report::curves::log_chart;
use crate::report::summary::short_number;

/// Returns the requested number of keys, also for runs that were skipped.
fn key_count(r: &Record) -> u64 {
    r.settings.as_ref().map_or(r.num, |s| s.num)
}

pub fn view(all: &RecordSet<'_>) -> SuiteView {
    let mut sizes = all.distinct(key_count);
    sizes.sort_unstable();
    let mut grids = Vec::new();
    let mut charts = Vec::new();
    let names: Vec<String> = sizes.iter().map(|n| short_number(*n as f64)).collect();
    for workload in all.distinct(|r| r.workload.as_str()) {
        let of = all.with_workload(workload);
        grids.push(cost_grid(workload, &of, &sizes, &names));
        let ticks: Vec<_> =
            sizes.iter().zip(&names).map(|(n, s)| ((*n as f64).log10(), s.clone())).collect();
        let lines = of.chart_lines(|r| ((key_count(r) as f64).log10(), r.cpu_us_per_op));
        charts.push(log_chart(
            &format!("{workload}: CPU microseconds per operation"),
            &lines,
            &ticks,
        ));
    }
    let writes = all.filter(|r| r.write_amp > 0.0);
    if !writes.is_empty() {
        grids.push(amplification_grid(&writes, &sizes, &names));
    }
    SuiteView {
        title: "Growth",
        about: "Operations per second (CPU microseconds per operation, background included) as \
                the number of keys grows with the same memtable and cache; the \
                last columns give CPU and time per operation relative to the smallest size. \
                `read_random` hits the cache as often as it holds \
                the data; the blocks of `read_hot` are always in it. The goal at ten times the \
                data: writes below 1.5, cached gets below 1.3."
            .into(),
        grids,
        charts,
    }
}

fn cost_grid(workload: &str, of: &RecordSet<'_>, sizes: &[u64], names: &[String]) -> Grid {
    let mut grid = Grid::new(workload, &["engine"]);
    grid.header.extend(names.iter().cloned());
    let later = || names.iter().skip(1);
    grid.header.extend(later().map(|n| format!("CPU {n}")));
    grid.header.extend(later().map(|n| format!("time {n}")));
    for engine in of.engines() {
        let of = of.with_engine(engine);
        let at: Vec<RecordSet<'_>> =
            sizes.iter().map(|n| of.filter(|r| key_count(r) == *n)).collect();
        let mut row = vec![engine.to_owned()];
        row.extend(at.iter().map(RecordSet::rate));
        let Some((first, rest)) = at.split_first() else { continue };
        let cpu = |s: &RecordSet<'_>| s.median(|r| r.cpu_us_per_op);
        let rate = |s: &RecordSet<'_>| s.median(|r| r.ops_per_sec);
        row.extend(rest.iter().map(|s| ratio_text(cpu(s), cpu(first))));
        row.extend(rest.iter().map(|s| ratio_text(rate(first), rate(s))));
        grid.rows.push(row);
    }
    grid
}

fn amplification_grid(of: &RecordSet<'_>, sizes: &[u64], names: &[String]) -> Grid {
    let mut grid = Grid::new("writes: amplification and size", &["engine"]);
    grid.header.extend(names.iter().map(|n| format!("write amp {n}")));
    grid.header.extend(names.iter().map(|n| format!("bytes per entry {n}")));
    for engine in of.engines() {
        let of = of.with_engine(engine);
        let at: Vec<RecordSet<'_>> =
            sizes.iter().map(|n| of.filter(|r| key_count(r) == *n)).collect();
        let mut row = vec![engine.to_owned()];
        row.extend(at.iter().map(|s| s.cell(|r| r.write_amp)));
        row.extend(at.iter().map(|s| s.cell(|r| r.db_bytes as f64 / r.ops.max(1) as f64)));
        grid.rows.push(row);
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_smallest_size_and_killed_runs_are_shown() {
        let record = |engine: &str, num: &str, cpu: f64| Record {
            suite: "growth".into(),
            engine: engine.into(),
            workload: "write_random".into(),
            settings: Some(crate::settings::tests::parse_settings(&["--num", num])),
            ops: 10,
            ops_per_sec: 1e6 / cpu,
            cpu_us_per_op: cpu,
            db_bytes: 500,
            write_amp: 3.0,
            ..Record::default()
        };
        let mut records =
            vec![record("a", "10M", 3.0), record("a", "1M", 2.0), record("b", "1M", 4.0)];
        records.push(Record { killed: Some("by the system".into()), ..record("b", "10M", 1.0) });
        let view = view(&RecordSet::for_suite(&records, "growth"));
        assert_eq!(view.grids[0].header, ["engine", "1.00M", "10.0M", "CPU 10.0M", "time 10.0M"]);
        assert_eq!(view.grids[0].rows[0], ["a", "500k (2.00)", "333k (3.00)", "1.50", "1.50"]);
        assert_eq!(view.grids[0].rows[1], ["b", "250k (4.00)", "killed", "-", "-"]);
        assert_eq!(view.grids[1].rows[0], ["a", "3.00", "3.00", "50.0", "50.0"]);
        assert!(view.charts[0].contains("polyline"));
    }
}
