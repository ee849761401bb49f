//! The HTML report: one file that works without a network and without scripts, on small screens and
//! in dark mode.

use super::summary::{RunGroup, groups, short_number, spread};
use super::svg::{self, Bar, ChartLine, escape};
use super::views::{SuiteView, views};
use crate::record::Record;
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");

/// Returns the whole page.
pub fn page(records: &[Record]) -> String {
    let groups = groups(records);
    let mut engines: Vec<&str> = Vec::new();
    let mut sections: Vec<&RunGroup<'_>> = Vec::new();
    for g in &groups {
        if !engines.contains(&g.engine) {
            engines.push(g.engine);
        }
        if !sections.iter().any(|s| s.same_workload(g)) {
            sections.push(g);
        }
    }
    let mut s = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>perigee-bench</title><style>{STYLE}</style></head><body>\
         <h1>perigee-bench</h1>"
    );
    s += &page_head(records);
    s += &legend(&engines);
    s += &summary(&groups, &engines, &sections);
    for view in views(records) {
        s += &view_section(&view);
    }
    s += "<h2>Workloads</h2><div class=\"panels\">";
    for (at, section) in sections.iter().enumerate() {
        let of: Vec<&RunGroup<'_>> = groups.iter().filter(|g| g.same_workload(section)).collect();
        s += &panel(at, section, &of, &engines);
    }
    s += "</div>";
    s += &options(records, &engines);
    s + "</body></html>\n"
}

fn colour(engine: &str, engines: &[&str]) -> usize {
    engines.iter().position(|e| *e == engine).unwrap_or(0) % 8
}

fn page_head(records: &[Record]) -> String {
    let failures: Vec<&Record> = records.iter().filter(|r| r.errors + r.wrong > 0).collect();
    let mut s = String::new();
    if !failures.is_empty() {
        s += "<div class=\"failed\"><strong>FAILED.</strong> An engine refused work or answered wrongly; its figures are invalid.<ul>";
        for r in failures {
            let _ = write!(
                s,
                "<li>{} on {}: {} errors, {} wrong answers. {}</li>",
                escape(&r.workload),
                escape(&r.engine),
                r.errors,
                r.wrong,
                escape(r.first_failure.as_deref().unwrap_or(""))
            );
        }
        s += "</ul></div>";
    }
    let Some(first) = records.first() else { return s };
    let h = &first.host;
    let load = spread(records.iter().map(|r| r.host.load).collect());
    let _ = write!(
        s,
        "<p class=\"where\">{} records, {}. {}, {} cores, {} MB, Linux {}, {}. Load average when \
         repetitions began: median {:.1}, \
         at most {:.1}.</p>",
        records.len(),
        date(h.at),
        escape(&h.cpu),
        h.cores,
        h.memory_mb,
        escape(&h.kernel),
        escape(&h.file_system),
        load.median,
        load.max
    );
    if let Some(t) = &first.settings {
        let _ = write!(
            s,
            "<p class=\"where\">{} keys, {:?} keys, {:?} values, sync {:?}, {:?} compression, \
             memtable {} MB, cache {} MB, seed {}. \
             Where runs differ, the difference is shown beside the workload. Every value read and \
             every key found was compared.</p>",
            short_number(t.num as f64),
            t.keys,
            t.values,
            t.sync,
            t.compression,
            t.memtable >> 20,
            t.cache >> 20,
            t.seed
        );
    }
    let _ = write!(s, "<p>Again:</p><pre>{}</pre>", escape(&first.command));
    s
}

/// Converts days since 1970 to a date (Hinnant's civil_from_days).
fn date(seconds: u64) -> String {
    let z = (seconds / 86_400) as i64 + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    format!("{year}-{month:02}-{:02}", doy - (153 * mp + 2) / 5 + 1)
}

fn legend(engines: &[&str]) -> String {
    let mut s = String::from("<p class=\"legend\">");
    for e in engines {
        let _ = write!(s, "<span><i class=\"b{}\"></i>{}</span>", colour(e, engines), escape(e));
    }
    s + "</p>"
}

/// Section of a suite: its tables, then its charts side by side.
fn view_section(view: &SuiteView) -> String {
    let mut s = format!("<h2>{}</h2><p>{}</p>", escape(view.title), code_spans(&view.about));
    for grid in &view.grids {
        let _ = write!(
            s,
            "<h4>{}</h4><div class=\"wide\"><table class=\"ratios\"><tr>",
            escape(&grid.title)
        );
        grid.header.iter().for_each(|h| s += &format!("<th>{}</th>", escape(h)));
        s += "</tr>";
        for row in &grid.rows {
            let cells: String = row.iter().map(|c| format!("<td>{}</td>", escape(c))).collect();
            let _ = write!(s, "<tr>{cells}</tr>");
        }
        s += "</table></div>";
    }
    s += "<div class=\"panels\">";
    for chart in view.charts.iter().filter(|c| !c.is_empty()) {
        let _ = write!(s, "<section>{chart}</section>");
    }
    s + "</div>"
}

/// Table of throughput ratios to the first engine over all workloads, shaded greener where the
/// first is ahead.
fn summary(groups: &[RunGroup<'_>], engines: &[&str], sections: &[&RunGroup<'_>]) -> String {
    let Some((base, peers)) = engines.split_first() else { return String::new() };
    let mut s = format!(
        "<h2>{0} beside each peer</h2><p>How many times the peer's throughput {0} reaches: above \
         1, {0} is faster. \
         Medians of neighbouring repetitions.</p><div class=\"wide\"><table \
         class=\"ratios\"><tr><th>workload</th><th class=\"more\">thr</th>\
         <th class=\"more\">{0} ops/s</th>",
        escape(base)
    );
    for p in peers {
        let _ = write!(s, "<th><span class=\"more\">vs </span>{}</th>", escape(p));
    }
    s += "</tr>";
    let mut last = "";
    for (at, section) in sections.iter().enumerate() {
        let find = |e: &str| {
            groups
                .iter()
                .find(|g| g.engine == e && g.same_workload(section) && g.missing_reason().is_none())
        };
        let Some(ours) = find(base) else { continue };
        if section.label != last {
            last = &section.label;
            let columns = 3 + peers.len();
            let _ =
                write!(s, "<tr class=\"sub\"><th colspan=\"{columns}\">{}</th></tr>", escape(last));
        }
        let _ = write!(
            s,
            "<tr><td><a href=\"#w{at}\">{}</a></td><td class=\"more\">{}</td><td class=\"more\">{}</td>",
            escape(section.workload),
            section.threads,
            short_number(ours.spread_of(|r| r.ops_per_sec).median)
        );
        for p in peers {
            let theirs = find(p);
            s += &match theirs
                .map(|theirs| ours.throughput_ratio(theirs))
                .filter(|r| r.is_finite() && *r > 0.0)
            {
                _ if ours.failed() || theirs.is_some_and(RunGroup::failed) => {
                    "<td class=\"wrong\">wrong</td>".to_owned()
                }
                Some(r) => ratio_cell(r),
                None => "<td>-</td>".to_owned(),
            };
        }
        s += "</tr>";
    }
    s + "</table></div>"
}

/// Formats text between backquotes as code.
fn code_spans(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts
        .map(|(i, t)| if i % 2 == 1 { format!("<code>{}</code>", escape(t)) } else { escape(t) })
        .collect()
}

/// Settings that distinguish this run from others of its workload, in small type.
fn label(g: &RunGroup<'_>) -> String {
    if g.label.is_empty() {
        String::new()
    } else {
        format!("<small class=\"label\">{}</small>", escape(&g.label))
    }
}

/// Cell with a bar from the middle: to the right if ahead, to the left if behind, in powers of two.
fn ratio_cell(ratio: f64) -> String {
    let reach = (ratio.log2() / 3.0).clamp(-1.0, 1.0) * 40.0;
    let (x, class) = if reach < 0.0 { (40.0 + reach, "behind") } else { (40.0, "ahead") };
    format!(
        "<td><svg viewBox=\"0 0 80 14\" class=\"cell\" aria-hidden=\"true\"><rect class=\"{class}\" x=\"{x:.1}\" y=\"2\" width=\"{:.1}\" \
         height=\"10\" rx=\"1\"/><path class=\"axis\" d=\"M40 0v14\"/></svg><span class=\"{class}\">{}</span></td>",
        reach.abs().max(0.5),
        if ratio >= 10.0 { format!("{ratio:.0}") } else { format!("{ratio:.2}") }
    )
}

fn panel(at: usize, section: &RunGroup<'_>, groups: &[&RunGroup<'_>], engines: &[&str]) -> String {
    let about = crate::workload::find_workload(section.workload).map_or("", |w| w.about);
    let mut s = format!(
        "<section id=\"w{at}\"><h3>{0} <small>{1} {2}</small></h3>{3}<p>{4}</p>",
        escape(section.workload),
        section.threads,
        if section.threads == 1 { "thread" } else { "threads" },
        label(section),
        code_spans(about)
    );
    for g in groups {
        if let Some(why) = g.missing_reason() {
            let _ = write!(s, "<p>{}: {}.</p>", escape(g.engine), escape(&why));
        }
    }
    let groups: Vec<&RunGroup<'_>> =
        groups.iter().copied().filter(|g| g.missing_reason().is_none()).collect();
    if groups.is_empty() {
        return s + "</section>";
    }
    let bars = |title: &str, measure: fn(&Record) -> f64, label: fn(f64) -> String| {
        let bars: Vec<Bar<'_>> = (groups.iter())
            .map(|g| {
                let value = g.spread_of(measure);
                let mark = if g.failed() { " WRONG" } else { "" };
                let label = format!("{}{mark}", label(value.median));
                Bar { name: g.engine, colour: colour(g.engine, engines), value, label }
            })
            .collect();
        if bars.iter().all(|b| b.value.max <= 0.0) {
            String::new()
        } else {
            svg::bars(title, &bars)
        }
    };
    s += &bars("operations per second (longer is better)", |r| r.ops_per_sec, short_number);
    s += &bars(
        "CPU microseconds per operation (shorter is better)",
        |r| r.cpu_us_per_op,
        |v| format!("{v:.2}"),
    );
    let middle = |g: &RunGroup<'_>| -> Option<usize> {
        let median = g.spread_of(|r| r.ops_per_sec).median;
        let off = |r: &&Record| (r.ops_per_sec - median).abs();
        (0..g.records.len()).min_by(|a, b| off(&g.records[*a]).total_cmp(&off(&g.records[*b])))
    };
    let lines = |points: CurveFn| -> Vec<ChartLine> {
        let of = |g: &&RunGroup<'_>| {
            let r = g.records[middle(g)?];
            Some(ChartLine { colour: colour(g.engine, engines), points: points(r) })
        };
        groups.iter().filter_map(of).collect()
    };
    let batch = groups.first().and_then(|g| g.records.first()).map_or(1, |r| r.batch);
    let call = if batch > 1 {
        format!("latency of a batch of {batch}")
    } else {
        "latency of an operation".into()
    };
    s += &svg::latency(&format!("{call}, median repetition"), &lines(|r| r.curve.clone()));
    let timed = lines(|r| {
        let whole = r.timeline.len().saturating_sub(1);
        r.timeline[..whole]
            .iter()
            .enumerate()
            .map(|(i, n)| (i as f64 / 10.0, *n as f64 * 10.0))
            .collect()
    });
    if timed.iter().any(|l| l.points.len() > 4) {
        s += &svg::timeline("operations per second over time", &timed);
    }
    s += &amplification(&lines);
    s += "<details><summary>size, memory, latency, opening</summary><div class=\"wide\"><table><tr><th></th><th>p50 us</th><th>p99 us</th>\
          <th>p99.9 us</th><th>max ms</th><th>write amp</th><th>read amp</th><th>disk MB</th><th>space amp</th><th>RSS MB</th><th>own MB</th><th>open ms</th>\
          <th>settle s</th><th>stalls</th></tr>";
    for g in &groups {
        let of = |f: fn(&Record) -> f64| short_number(g.spread_of(f).median);
        let cells = [
            of(|r| r.p50_us),
            of(|r| r.p99_us),
            of(|r| r.p999_us),
            of(|r| r.max_us / 1e3),
            of(|r| r.write_amp),
            of(|r| r.read_amp),
            of(|r| r.db_bytes as f64 / 1e6),
            of(|r| r.space_amp),
            of(|r| r.peak_rss_mb),
            of(|r| r.peak_anon_mb),
            of(|r| r.open_ms),
            of(|r| r.settle_seconds),
            of(|r| r.stalls as f64),
        ];
        let _ =
            write!(s, "<tr><td>{}</td><td>{}</td></tr>", escape(g.engine), cells.join("</td><td>"));
    }
    s + "</table></div></details></section>"
}

/// Extracts a curve from a record.
type CurveFn = fn(&Record) -> Vec<(f64, f64)>;

/// Charts of amplification over time, if it was recorded.
fn amplification(lines: &dyn Fn(CurveFn) -> Vec<ChartLine>) -> String {
    let write = lines(|r| r.amplification.iter().map(|a| (a.seconds, a.write)).collect());
    let space = lines(|r| r.amplification.iter().map(|a| (a.seconds, a.space)).collect());
    let read = lines(|r| r.amplification.iter().map(|a| (a.seconds, a.read)).collect());
    if !write.iter().any(|l| l.points.len() > 2) {
        return String::new();
    }
    svg::ratio_over_time("bytes written per byte submitted, over time", &write)
        + &svg::ratio_over_time("bytes on disk per live byte", &space)
        + &svg::ratio_over_time("bytes read per byte submitted (compaction and reads)", &read)
}

/// Table of the options of each engine, side by side.
fn options(records: &[Record], engines: &[&str]) -> String {
    let shown: Vec<&Record> = engines
        .iter()
        .filter_map(|e| records.iter().find(|r| r.engine == *e && !r.options.is_empty()))
        .collect();
    let mut names: Vec<&String> = shown.iter().flat_map(|r| r.options.keys()).collect();
    names.sort();
    names.dedup();
    let mut s = String::from(
        "<h2>Options of each engine</h2><div class=\"wide\"><table class=\"options\"><tr><th></th>",
    );
    for r in &shown {
        let _ = write!(s, "<th>{} {}</th>", escape(&r.engine), escape(&r.engine_version));
    }
    s += "</tr>";
    for name in names {
        let _ = write!(s, "<tr><td>{}</td>", escape(name));
        for r in &shown {
            let _ = write!(
                s,
                "<td>{}</td>",
                r.options.get(name).map_or(String::from("-"), |v| escape(v))
            );
        }
        s += "</tr>";
    }
    s += "</table></div>";
    let mut notes: Vec<&String> = records.iter().flat_map(|r| &r.notes).collect();
    notes.sort();
    notes.dedup();
    for note in notes.iter().take(20) {
        let _ = write!(s, "<p class=\"where\">{}</p>", escape(note));
    }
    s
}
