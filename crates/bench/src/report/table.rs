//! The terminal table, and CSV.

use super::summary::{groups, short_number};
use super::views::SuiteView;
use crate::record::Record;
use comfy_table::{CellAlignment, Table};

/// Returns one line per engine and workload; ratios are to the workload's first engine.
pub fn table(records: &[Record]) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header([
        "workload",
        "engine",
        "thr",
        "ops/s",
        "min..max",
        "ratio",
        "CPU us/op",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "max ms",
        "write amp",
        "disk MB",
        "RSS MB",
        "open ms",
        "failed",
    ]);
    let groups = groups(records);
    for g in &groups {
        let first =
            groups.iter().find(|f| f.missing_reason().is_none() && f.same_workload(g)).unwrap_or(g);
        if let Some(why) = g.missing_reason() {
            let mut row = vec![g.title(), g.engine.to_owned(), g.threads.to_string()];
            row.extend(std::iter::repeat_n("-".to_owned(), 12));
            row.push(why);
            table.add_row(row);
            continue;
        }
        let rate = g.spread_of(|r| r.ops_per_sec);
        let of = |f: fn(&Record) -> f64| short_number(g.spread_of(f).median);
        let (errors, wrong) = g.failures();
        table.add_row([
            g.title(),
            g.engine.to_owned(),
            g.threads.to_string(),
            short_number(rate.median),
            format!("{}..{}", short_number(rate.min), short_number(rate.max)),
            if g.failed() || first.failed() {
                "-".into()
            } else {
                format!("{:.2}", g.throughput_ratio(first))
            },
            format!("{:.2}", g.spread_of(|r| r.cpu_us_per_op).median),
            of(|r| r.p50_us),
            of(|r| r.p99_us),
            of(|r| r.p999_us),
            of(|r| r.max_us / 1e3),
            format!("{:.2}", g.spread_of(|r| r.write_amp).median),
            of(|r| r.db_bytes as f64 / 1e6),
            of(|r| r.peak_rss_mb),
            of(|r| r.open_ms),
            if let (Some(done), (0, 0)) = (g.cut_short(), (errors, wrong)) {
                format!("- (time was up, {:.0} % done)", done * 100.0)
            } else if errors + wrong == 0 {
                "-".into()
            } else {
                format!("{errors} errors, {wrong} WRONG")
            },
        ]);
    }
    for i in 2..15 {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// Formats a suite's view: its description and its tables.
pub fn view(view: &SuiteView) -> String {
    let mut text = format!("{}\n{}\n", view.title, view.about);
    for grid in &view.grids {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::ASCII_MARKDOWN);
        table.set_header(&grid.header);
        table.add_rows(&grid.rows);
        for i in 1..grid.header.len() {
            if let Some(column) = table.column_mut(i) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        text +=
            &format!("\n{}{}{table}\n", grid.title, if grid.title.is_empty() { "" } else { "\n" });
    }
    text
}

/// Returns one line per record.
pub fn csv(records: &[Record]) -> String {
    let mut text = String::from(
        "engine,engine_version,workload,threads,rep,ops,ops_per_sec,cpu_us_per_op,cpu_system_us_per_op,avg_us,p50_us,p95_us,\
         p99_us,p999_us,p9999_us,max_us,cv,peak_rss_mb,peak_anon_mb,write_amp,read_amp,space_amp,db_bytes,written_bytes,read_bytes,\
         load_seconds,settle_seconds,open_ms,stalls,errors,wrong\n",
    );
    for r in records.iter().filter(|r| r.skipped.is_none() && r.killed.is_none()) {
        let quoted = |s: &str| format!("\"{}\"", s.replace('"', "\"\""));
        let numbers = [
            r.threads as f64,
            f64::from(r.rep),
            r.ops as f64,
            r.ops_per_sec,
            r.cpu_us_per_op,
            r.cpu_system_us_per_op,
            r.avg_us,
            r.p50_us,
            r.p95_us,
            r.p99_us,
            r.p999_us,
            r.p9999_us,
            r.max_us,
            r.cv,
            r.peak_rss_mb,
            r.peak_anon_mb,
            r.write_amp,
            r.read_amp,
            r.space_amp,
            r.db_bytes as f64,
            r.written_bytes as f64,
            r.read_bytes as f64,
            r.load_seconds,
            r.settle_seconds,
            r.open_ms,
            r.stalls as f64,
            r.errors as f64,
            r.wrong as f64,
        ];
        let numbers: Vec<String> = numbers.iter().map(f64::to_string).collect();
        let names = [&r.engine, &r.engine_version, &r.workload].map(|s| quoted(s)).join(",");
        text.push_str(&format!("{names},{}\n", numbers.join(",")));
    }
    text
}

/// Compares the medians of two runs, for workloads that both measured.
pub fn compare(before: &[Record], after: &[Record]) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header([
        "workload",
        "engine",
        "thr",
        "ops/s before",
        "after",
        "ratio",
        "CPU us/op before",
        "after",
        "p99 us before",
        "after",
        "disk MB before",
        "after",
    ]);
    let before = groups(before);
    for g in groups(after) {
        let same = |b: &&super::summary::RunGroup<'_>| b.engine == g.engine && b.same_workload(&g);
        let Some(b) = before.iter().find(same) else { continue };
        let pair = |f: fn(&Record) -> f64| (b.spread_of(f).median, g.spread_of(f).median);
        let (rate, cpu, p99) =
            (pair(|r| r.ops_per_sec), pair(|r| r.cpu_us_per_op), pair(|r| r.p99_us));
        let disk = pair(|r| r.db_bytes as f64 / 1e6);
        table.add_row([
            g.title(),
            g.engine.to_owned(),
            g.threads.to_string(),
            short_number(rate.0),
            short_number(rate.1),
            format!("{:.2}", rate.1 / rate.0),
            short_number(cpu.0),
            short_number(cpu.1),
            short_number(p99.0),
            short_number(p99.1),
            short_number(disk.0),
            short_number(disk.1),
        ]);
    }
    table.to_string()
}
