//! Churn: amplification over time, while every key is overwritten again and again.

use super::set::{Set, outcome};
use super::{Grid, View};
use crate::record::{Record, Sample};
use crate::report::curves::by_powers;
use crate::report::svg::Line;

/// Of a record's later half, when a steady state is reached: what was measured, weighed by the operations between samples.
fn late(r: &Record, of: impl Fn(&Sample) -> f64) -> f64 {
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

pub fn view(all: &Set<'_>) -> View {
    let header = ["engine", "ops/s (CPU us)", "write amp", "write amp, later half", "read amp, later half"];
    let mut grid = Grid::new("", &header);
    let more = ["space, later half", "space, worst moment", "space at the end", "p99 ms", "max ms"];
    grid.header.extend(more.map(str::to_owned));
    for engine in all.engines() {
        let of = all.engine(engine);
        grid.rows.push(vec![
            engine.to_owned(),
            of.rate(),
            of.cell(|r| r.write_amp),
            of.cell(|r| late(r, |s| s.write)),
            of.cell(|r| late(r, |s| s.read)),
            of.cell(|r| late(r, |s| s.space)),
            of.cell(|r| r.space_peak),
            of.cell(|r| r.space_amp),
            of.cell(|r| r.p99_us / 1e3),
            of.cell(|r| r.max_us / 1e3),
        ]);
    }
    let rounds = all.records().iter().filter(|r| r.num > 0).map(|r| r.ops as f64 / r.num as f64);
    let rounds = rounds.fold(1.0, f64::max);
    let ticks = [0.0, 0.25, 0.5, 0.75, 1.0].map(|f| (f * rounds, format!("{:.1}", f * rounds)));
    let chart = |what: &str, of: fn(&Sample) -> f64| {
        let engines = all.engines();
        let line = |e: &&str| {
            let of_engine = all.engine(e);
            let r = of_engine.records().iter().copied().find(|r| outcome(r).is_none())?;
            let at = |s: &Sample| (s.ops as f64 / r.num.max(1) as f64, of(s).max(0.01));
            Some(Line { colour: all.colour(e), points: r.amplification.iter().map(at).collect() })
        };
        by_powers(what, &engines.iter().filter_map(line).collect::<Vec<_>>(), &ticks)
    };
    View {
        title: "Churn",
        about: "Every key is overwritten again and again, uniformly, in batches of 100. Bytes written and read for each byte given (log included), \
                bytes on disk for each live byte; the worst moment is looked for ten times a second and includes what compaction has not removed yet. \
                The pictures go by how many times over every key was overwritten, so that engines of different speed can be compared. The goal: \
                write amplification below 8, space below 1.25."
            .into(),
        grids: vec![grid],
        charts: vec![
            chart("bytes written for each byte given, over rounds of overwrites", |s| s.write),
            chart("bytes on disk for each live byte", |s| s.space),
            chart("bytes read for each byte given (by compaction)", |s| s.read),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_half_is_weighed_by_operations() {
        let sample = |ops, write| Sample { ops, write, ..Sample::default() };
        let amplification = vec![sample(40, 100.0), sample(80, 2.0), sample(100, 5.0)];
        let r = Record { ops: 100, amplification, ..Record::default() };
        assert_eq!(late(&r, |s| s.write), 3.0);
        assert_eq!(late(&Record::default(), |s| s.write), 0.0);
    }
}
