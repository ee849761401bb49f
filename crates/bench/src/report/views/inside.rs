//! Inside: every engine within the same memory, page cache included.

use super::record_set::{RecordSet, ratio_text};
use super::{Grid, SuiteView};
use crate::report::summary::spread;
use crate::report::svg::{self, Bar};

pub fn view(all: &RecordSet<'_>) -> SuiteView {
    let limits = all.distinct(|r| r.settings.as_ref().and_then(|s| s.memory).unwrap_or(0) >> 20);
    let limits: Vec<String> = limits.iter().map(|l| format!("{l} MB")).collect();
    let loose = all.records().iter().any(|r| r.notes.iter().any(|n| n.contains("NOT limited")));
    let workloads = all.distinct(|r| r.workload.as_str());
    let mut grid = Grid::new("", &["engine"]);
    grid.header.extend(workloads.iter().map(|w| (*w).to_owned()));
    let first = all.engines().first().copied().unwrap_or_default();
    grid.header.extend(workloads.iter().map(|w| format!("{first} over it, {w}")));
    grid.header.extend(
        ["write amp", "read amp (first read)", "peak own MB", "disk MB", "settle s"]
            .map(str::to_owned),
    );
    for engine in all.engines() {
        let of = all.with_engine(engine);
        let rate = |engine: &str, w: &str| {
            all.with_engine(engine).with_workload(w).median(|r| r.ops_per_sec)
        };
        let mut row = vec![engine.to_owned()];
        row.extend(workloads.iter().map(|w| of.with_workload(w).rate()));
        row.extend(workloads.iter().map(|w| ratio_text(rate(first, w), rate(engine, w))));
        let (writes, reads) = (of.filter(|r| r.user_bytes > 0), of.filter(|r| r.seen_bytes > 0));
        row.push(writes.cell(|r| r.write_amp));
        let first_read =
            reads.distinct(|r| r.workload.as_str()).first().map(|w| reads.with_workload(w));
        row.push(first_read.map_or("-".into(), |of| of.cell(|r| r.read_amp)));
        let most = of.records().iter().map(|r| r.peak_anon_mb).fold(0.0, f64::max);
        row.push(if most > 0.0 { format!("{most:.0}") } else { "-".into() });
        row.push(writes.cell(|r| r.db_bytes as f64 / 1e6));
        row.push(writes.cell(|r| r.settle_seconds));
        grid.rows.push(row);
    }
    let bars = |w: &&str| {
        let of = all.with_workload(w);
        let engines = of.engines();
        let bars: Vec<Bar<'_>> = (engines.iter())
            .map(|e| {
                let of = of.with_engine(e);
                let value = of.median(|r| r.ops_per_sec).unwrap_or(0.0);
                Bar {
                    name: e,
                    colour: all.colour_of(e),
                    value: spread(vec![value]),
                    label: of.rate(),
                }
            })
            .collect();
        svg::bars(&format!("{w}: operations per second (CPU us), longer is better"), &bars)
    };
    SuiteView {
        title: "Inside the same memory",
        about: format!(
            "Every engine with its page cache inside {}, by a cgroup{}. Perigee has half of it as \
             its memory budget. `killed`: the system \
             killed the process for lack of memory, or it was still running long after its time \
             limit. Where a percentage is given, the time limit was reached and the \
             figures cover the work done.",
            limits.join(" or "),
            if loose { ", WHICH IS NOT PERMITTED HERE: nothing was limited" } else { "" }
        ),
        grids: vec![grid],
        charts: workloads.iter().map(bars).collect(),
    }
}
