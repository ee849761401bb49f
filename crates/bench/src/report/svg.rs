//! Charts as inline SVG: no scripts; colours come from the page's style, so that dark mode works.
//!
//! Each chart is 100 % wide with a viewBox, so it fits any screen; text sizes are in viewBox units.

use super::summary::{Spread, short_number};
use std::fmt::Write;

/// Width of every chart in viewBox units.
pub(super) const WIDTH: f64 = 360.0;

/// Escapes text for HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The bar of one engine.
#[derive(Debug)]
pub struct Bar<'a> {
    pub name: &'a str,
    /// Index of its colour.
    pub colour: usize,
    pub value: Spread,
    pub label: String,
}

/// Horizontal bars with whiskers from the smallest to the largest repetition.
pub fn bars(title: &str, bars: &[Bar<'_>]) -> String {
    const LEFT: f64 = 62.0;
    let most = bars.iter().map(|b| b.value.max).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let scale = |v: f64| v / most * (WIDTH - LEFT - 62.0);
    let height = bars.len() as f64 * 20.0 + 4.0;
    let mut s = svg_open(title, height);
    for (i, b) in bars.iter().enumerate() {
        let (y, w) = (i as f64 * 20.0 + 2.0, scale(b.value.median).max(1.0));
        let (c, name, label) = (b.colour, escape(b.name), escape(&b.label));
        let _ = write!(
            s,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{name}</text>\
             <rect class=\"e{c}\" x=\"{LEFT}\" y=\"{y:.0}\" width=\"{w:.1}\" height=\"15\" rx=\"2\"/>",
            LEFT - 5.0,
            y + 12.0
        );
        let (from, to) = (LEFT + scale(b.value.min), LEFT + scale(b.value.max));
        if to - from > 1.0 {
            let m = y + 7.5;
            let _ = write!(
                s,
                "<path class=\"whisker\" d=\"M{from:.1} {m}H{to:.1}M{from:.1} {0}v6M{to:.1} {0}v6\"/>",
                m - 3.0
            );
        }
        let x = LEFT + scale(b.value.max.max(b.value.median)) + 5.0;
        let _ = write!(s, "<text x=\"{x:.1}\" y=\"{:.0}\">{label}</text>", y + 12.0);
    }
    s + "</svg>"
}

/// The line of one engine.
#[derive(Debug)]
pub struct ChartLine {
    pub colour: usize,
    pub points: Vec<(f64, f64)>,
}

/// Draws latency over percentile, both on logarithmic axes (`x` is the number of nines).
pub fn latency(title: &str, lines: &[ChartLine]) -> String {
    let nines = |p: f64| -((1.0 - p / 100.0).max(1e-5)).log10();
    let drawn: Vec<ChartLine> = (lines.iter())
        .map(|l| ChartLine {
            colour: l.colour,
            points: l
                .points
                .iter()
                .filter(|p| p.1 > 0.0)
                .map(|p| (nines(p.0), p.1.log10()))
                .collect(),
        })
        .collect();
    let x_ticks =
        [(0.301, "p50"), (1.0, "p90"), (2.0, "p99"), (3.0, "p99.9"), (4.0, "p99.99"), (5.0, "max")];
    let x_ticks: Vec<(f64, String)> = x_ticks.iter().map(|(x, t)| (*x, (*t).to_owned())).collect();
    let ys = drawn.iter().flat_map(|l| l.points.iter().map(|p| p.1));
    let (low, high) = ys.fold((f64::MAX, f64::MIN), |(a, b), y| (a.min(y), b.max(y)));
    if low > high {
        return String::new();
    }
    let (low, high) = (low.floor(), high.ceil().max(low.floor() + 1.0));
    let y_ticks: Vec<(f64, String)> =
        (low as i32..=high as i32).map(|e| (f64::from(e), micros(10f64.powi(e)))).collect();
    plot(title, &drawn, (0.0, 5.0), (low, high), &x_ticks, &y_ticks)
}

pub(super) fn micros(us: f64) -> String {
    match us {
        u if u >= 1e6 => format!("{} s", u / 1e6),
        u if u >= 1e3 => format!("{} ms", u / 1e3),
        u if u >= 0.999 => format!("{u:.0} us"),
        u => format!("{:.0} ns", u * 1e3),
    }
}

/// Draws operations per second over time, in seconds.
pub fn timeline(title: &str, lines: &[ChartLine]) -> String {
    let points = || lines.iter().flat_map(|l| l.points.iter());
    let x = points().map(|p| p.0).fold(0.0, f64::max);
    let y = points().map(|p| p.1).fold(0.0, f64::max);
    if x <= 0.0 || y <= 0.0 {
        return String::new();
    }
    let x_ticks = [0.0, 0.5, 1.0].map(|f| (x * f, format!("{:.1} s", x * f)));
    let y_ticks = [0.0, 0.5, 1.0].map(|f| (y * f, short_number(y * f)));
    plot(title, lines, (0.0, x), (0.0, y), &x_ticks, &y_ticks)
}

/// Draws a ratio over time in seconds, on a logarithmic axis if engines differ widely.
pub fn ratio_over_time(title: &str, lines: &[ChartLine]) -> String {
    // Zero has no logarithm; a hundredth stands for it.
    const NOTHING: f64 = 0.01;
    let values = || lines.iter().flat_map(|l| l.points.iter().map(|p| p.1.max(NOTHING)));
    let (low, high) = values().fold((f64::MAX, NOTHING), |(a, b), y| (a.min(y), b.max(y)));
    let x = lines.iter().flat_map(|l| l.points.iter().map(|p| p.0)).fold(0.0, f64::max);
    if high / low < 8.0 || x <= 0.0 {
        return timeline(title, lines);
    }
    let logged = |l: &ChartLine| ChartLine {
        colour: l.colour,
        points: l.points.iter().map(|p| (p.0, p.1.max(NOTHING).log10())).collect(),
    };
    let (low, high) = (low.log10().floor(), high.log10().ceil());
    let x_ticks = [0.0, 0.5, 1.0].map(|f| (x * f, format!("{:.1} s", x * f)));
    let y_ticks: Vec<(f64, String)> =
        (low as i32..=high as i32).map(|e| (f64::from(e), short_number(10f64.powi(e)))).collect();
    plot(
        title,
        &lines.iter().map(logged).collect::<Vec<_>>(),
        (0.0, x),
        (low, high),
        &x_ticks,
        &y_ticks,
    )
}

pub(super) fn plot(
    title: &str,
    lines: &[ChartLine],
    x: (f64, f64),
    y: (f64, f64),
    x_ticks: &[(f64, String)],
    y_ticks: &[(f64, String)],
) -> String {
    const LEFT: f64 = 48.0;
    const TOP: f64 = 8.0;
    const RIGHT: f64 = 14.0;
    const BOTTOM: f64 = 20.0;
    const HEIGHT: f64 = 150.0;
    let px = |v: f64| LEFT + (v - x.0) / (x.1 - x.0) * (WIDTH - LEFT - RIGHT);
    let py = |v: f64| HEIGHT - BOTTOM - (v - y.0) / (y.1 - y.0) * (HEIGHT - BOTTOM - TOP);
    let mut s = svg_open(title, HEIGHT);
    for (v, text) in y_ticks {
        let at = py(*v);
        let _ = write!(
            s,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{:.0}\"/><text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 4.0,
            at + 3.5,
            escape(text)
        );
    }
    for (v, text) in x_ticks {
        let _ = write!(
            s,
            "<text x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            px(*v),
            HEIGHT - 5.0,
            escape(text)
        );
    }
    for line in lines {
        let points: Vec<String> =
            line.points.iter().map(|p| format!("{:.1},{:.1}", px(p.0), py(p.1))).collect();
        let _ = write!(s, "<polyline class=\"l{}\" points=\"{}\"/>", line.colour, points.join(" "));
    }
    s + "</svg>"
}

pub(super) fn svg_open(title: &str, height: f64) -> String {
    format!(
        "<h4>{0}</h4><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{0}\">",
        escape(title)
    )
}
