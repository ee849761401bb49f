//! Churn: amplification over time while every key is overwritten repeatedly.

use super::record_set::{RecordSet, invalid_reason};
use super::{Grid, SuiteView};
use crate::record::{AmplificationSample, Record};
use crate::report::curves::log_chart;
use crate::report::svg::ChartLine;

/// Mean over the later half of a record, when a steady state is reached, weighted by the operations
/// between samples.
fn steady_state_mean(r: &Record, of: impl Fn(&AmplificationSample) -> f64) -> f64 {
    let half = r.ops / 2;
    let (mut sum, mut weight, mut before) = (0.0, 0.0, 0);
    for s in &r.amplification {
        if s.ops > half {
            let ops = (s.ops - before) as f64;
            (sum, weight) = (sum + of(s) * ops, weight + ops);
        }
        before = s.ops;
    }
    if weight > 0.0 { sum / weight } else { 0.0 }
}

pub fn view(all: &RecordSet<'_>) -> SuiteView {
    let header =
        ["engine", "ops/s (CPU us)", "write amp", "write amp, later half", "read amp, later half"];
    let mut grid = Grid::new("", &header);
    let more = ["space, later half", "peak", "at rest", "peak over rest", "p99 ms", "max ms"];
    grid.header.extend(more.map(str::to_owned));
    for engine in all.engines() {
        let of = all.with_engine(engine);
        grid.rows.push(vec![
            engine.to_owned(),
            of.rate(),
            of.cell(|r| r.write_amp),
            of.cell(|r| steady_state_mean(r, |s| s.write)),
            of.cell(|r| steady_state_mean(r, |s| s.read)),
            of.cell(|r| steady_state_mean(r, |s| s.space)),
            of.cell(|r| r.space_peak),
            of.cell(|r| r.space_amp),
            of.cell(|r| if r.space_amp > 0.0 { r.space_peak / r.space_amp } else { 0.0 }),
            of.cell(|r| r.p99_us / 1e3),
            of.cell(|r| r.max_us / 1e3),
        ]);
    }
    let rounds = all.records().iter().filter(|r| r.num > 0).map(|r| r.ops as f64 / r.num as f64);
    let rounds = rounds.fold(1.0, f64::max);
    let ticks = [0.0, 0.25, 0.5, 0.75, 1.0].map(|f| (f * rounds, format!("{:.1}", f * rounds)));
    let chart = |what: &str, of: fn(&AmplificationSample) -> f64| {
        let engines = all.engines();
        let line = |e: &&str| {
            let of_engine = all.with_engine(e);
            let r = of_engine.records().iter().copied().find(|r| invalid_reason(r).is_none())?;
            let at =
                |s: &AmplificationSample| (s.ops as f64 / r.num.max(1) as f64, of(s).max(0.01));
            Some(ChartLine {
                colour: all.colour_of(e),
                points: r.amplification.iter().map(at).collect(),
            })
        };
        log_chart(what, &engines.iter().filter_map(line).collect::<Vec<_>>(), &ticks)
    };
    SuiteView {
        title: "Churn",
        about: "Every key is overwritten repeatedly, uniformly, in batches of 100. Bytes written \
                and read per byte submitted (log included), \
                bytes on disk per live byte, log included and compressed where the engine \
                compresses (hence the size at rest beside it, once idle); \
                the peak is sampled ten times a second and includes what compaction has not \
                removed yet. \
                The x axis of the charts is the number of overwrites per key, so that engines of \
                different speed can be compared. The goal: \
                write amplification below 8, space below 1.25."
            .into(),
        grids: vec![grid],
        charts: vec![
            chart("bytes written per byte submitted, over rounds of overwrites", |s| s.write),
            chart("bytes on disk per live byte", |s| s.space),
            chart("bytes read per byte submitted (by compaction)", |s| s.read),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_half_is_weighted_by_operations() {
        let sample =
            |ops, write| AmplificationSample { ops, write, ..AmplificationSample::default() };
        let amplification = vec![sample(40, 100.0), sample(80, 2.0), sample(100, 5.0)];
        let r = Record { ops: 100, amplification, ..Record::default() };
        assert_eq!(steady_state_mean(&r, |s| s.write), 3.0);
        assert_eq!(steady_state_mean(&Record::default(), |s| s.write), 0.0);
    }
}
