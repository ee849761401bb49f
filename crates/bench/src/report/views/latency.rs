//! Latency: up to the longest call, and when that occurred.

use super::record_set::{RecordSet, invalid_reason};
use super::{Grid, SuiteView};
use crate::record::Record;
use crate::report::curves::timeline_strip;

pub fn view(all: &RecordSet<'_>) -> SuiteView {
    let mut grid =
        Grid::new("", &["workload", "threads", "engine", "ops/s (CPU us)", "p50 us", "p99 us"]);
    grid.header.extend(["p99.9 us", "max ms", "stalled s"].map(str::to_owned));
    let mut writes = Grid::new(
        "writes only",
        &["workload", "threads", "engine", "p50 us", "p99 us", "p99.9 us", "max ms"],
    );
    let mut charts = Vec::new();
    for (workload, threads) in all.distinct(|r| (r.workload.as_str(), r.threads)) {
        let of = all.with_workload(workload).with_threads(threads);
        for engine in of.engines() {
            let of = of.with_engine(engine);
            let name = [workload.to_owned(), threads.to_string(), engine.to_owned()];
            let figures = [
                of.rate(),
                of.cell(|r| r.p50_us),
                of.cell(|r| r.p99_us),
                of.cell(|r| r.p999_us),
                of.cell(|r| r.max_us / 1e3),
                of.cell(|r| r.stalls as f64 / 10.0),
            ];
            grid.rows.push(name.iter().cloned().chain(figures).collect());
            if of.records().iter().any(|r| r.writes.is_some()) {
                let tail = |r: &Record| r.writes.unwrap_or_default();
                let figures = [
                    of.cell(|r| tail(r).p50_us),
                    of.cell(|r| tail(r).p99_us),
                    of.cell(|r| tail(r).p999_us),
                    of.cell(|r| tail(r).max_us / 1e3),
                ];
                writes.rows.push(name.into_iter().chain(figures).collect());
            }
            if let Some(r) = of.records().iter().find(|r| invalid_reason(r).is_none()) {
                let title = format!(
                    "{workload}, {threads} thr, {engine}: longest {:.1} ms",
                    r.max_us / 1e3
                );
                charts.push(timeline_strip(&title, all.colour_of(engine), &r.timeline, &r.worst));
            }
        }
    }
    let grids = if writes.rows.is_empty() { vec![grid] } else { vec![grid, writes] };
    SuiteView {
        title: "Latency up to the longest call",
        about: "A batch is one call (1000 operations in `write_random` and `large_4k`). Each \
                chart shows one engine and workload: above, operations \
                per second in each tenth of a second, to a scale of their own; below, the longest \
                of the calls that ended in that tenth, from 10 us to 10 s \
                in powers of ten, the same for all. Stalled: tenths of a second without a \
                completed operation. `write_random_b1` with 1 to 8 threads shows concurrent \
                writers."
            .into(),
        grids,
        charts,
    }
}
