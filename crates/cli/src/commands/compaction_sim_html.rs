//! Renders the charts of a simulation as one self-contained HTML page. Performs no I/O.

use crate::size::{bytes, count};
use perigee_compaction_sim::{SimulationSample, with_previous};
use std::fmt::Write;

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 60.0;

/// A line of a chart: its label, colour and values.
type ChartLine = (&'static str, &'static str, Vec<f64>);

/// Returns the HTML page.
pub fn page(title: &str, samples: &[SimulationSample]) -> String {
    let mut out = String::from(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Compaction simulation</title>\n<style>\
         body{font:14px system-ui,sans-serif;margin:2em;color:#222;background:#fff}h1{font-size:1.3em}h2{font-size:1.1em}\
         text{font:12px system-ui,sans-serif;fill:#666}\
         @media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}text{fill:#aaa}}\
         </style></head><body>\n",
    );
    let _ = writeln!(out, "<h1>Compaction simulation: {title}</h1>");
    let pairs: Vec<(SimulationSample, &SimulationSample)> = with_previous(samples).collect();
    let values = |f: &dyn Fn(&(SimulationSample, &SimulationSample)) -> f64| {
        pairs.iter().map(f).collect::<Vec<f64>>()
    };
    let total = |s: &SimulationSample| s.write_amplification(&SimulationSample::default());
    let write = [
        ("since the last sample", "#2a78c8", values(&|(b, s)| s.write_amplification(b))),
        ("cumulative", "#9a9a9a", values(&|(_, s)| total(s))),
    ];
    chart(&mut out, "Write amplification", &write, samples);
    let space = [
        ("at rest", "#2a78c8", values(&|(_, s)| s.space_amplification())),
        ("peak", "#c8472a", values(&|(_, s)| s.peak_amplification())),
    ];
    chart(&mut out, "Space amplification", &space, samples);
    chart(
        &mut out,
        "Sorted runs read by a seek",
        &[("maximum", "#2a78c8", values(&|(_, s)| s.max_runs as f64))],
        samples,
    );
    if let Some(last) = samples.last() {
        let _ = writeln!(
            out,
            "<p>{} operations, {} written by users, {} by flushes, {} by {} compactions, {} moved \
             without rewriting.</p>",
            count(last.ops),
            bytes(last.totals.user_bytes),
            bytes(last.totals.flushed_bytes),
            bytes(last.totals.compacted_bytes),
            count(last.totals.merges),
            bytes(last.totals.moved_bytes)
        );
    }
    out.push_str("</body></html>\n");
    out
}

fn chart(out: &mut String, name: &str, lines: &[ChartLine], samples: &[SimulationSample]) {
    let top = lines.iter().flat_map(|(_, _, v)| v).copied().fold(1.0, f64::max).ceil();
    let ops = samples.last().map_or(1, |s| s.ops.max(1)) as f64;
    let y = |v: f64| HEIGHT - 20.0 - v / top * (HEIGHT - 50.0);
    let _ = writeln!(
        out,
        "<h2>{name}</h2>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"100%\" role=\"img\">"
    );
    for v in [0.0, top / 2.0, top] {
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{0:.1}\" y2=\"{0:.1}\" stroke=\"#8884\"/><text x=\"0\" y=\"{1:.1}\">{v:.1}</text>",
            y(v),
            y(v) + 4.0
        );
    }
    for (i, (label, color, values)) in lines.iter().enumerate() {
        let mut points = String::new();
        for (s, v) in samples.iter().zip(values) {
            let _ =
                write!(points, "{:.1},{:.1} ", LEFT + (WIDTH - LEFT) * s.ops as f64 / ops, y(*v));
        }
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"><title>{label}</title></polyline>\
             <text x=\"{:.0}\" y=\"14\" style=\"fill:{color}\">{label}</text>",
            points.trim_end(),
            LEFT + 160.0 * i as f64
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{WIDTH}\" y=\"{HEIGHT}\" text-anchor=\"end\">{} operations</text></svg>",
        count(ops as u64)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_complete_and_self_contained() {
        let samples = [SimulationSample {
            ops: 10,
            live_bytes: 5,
            stored_bytes: 6,
            peak_bytes: 7,
            max_runs: 2,
            ..SimulationSample::default()
        }];
        let text = page("random, spooky", &samples);
        assert!(text.contains("<polyline") && text.ends_with("</html>\n"));
        assert!(!text.contains("http") && !text.contains("<script") && !text.contains("NaN"));
    }
}
