//! Charts of the suite views: lines on a logarithmic axis, and timelines in tenths of a second.

use super::summary::short_number;
use super::svg::{ChartLine, WIDTH, escape, micros, plot, svg_open};
use std::fmt::Write;

/// Draws lines with a logarithmic y axis and a linear x axis with the given ticks.
pub fn log_chart(title: &str, lines: &[ChartLine], x_ticks: &[(f64, String)]) -> String {
    let points = || lines.iter().flat_map(|l| l.points.iter()).filter(|p| p.1 > 0.0);
    let (low, high) = points().fold((f64::MAX, f64::MIN), |(a, b), p| (a.min(p.1), b.max(p.1)));
    let (from, to) = points().fold((f64::MAX, f64::MIN), |(a, b), p| (a.min(p.0), b.max(p.0)));
    if low > high {
        return String::new();
    }
    let to = if to > from { to } else { from + 1.0 };
    let (bottom, top) = (low.log10().floor(), high.log10().ceil());
    let top = if top > bottom { top } else { bottom + 1.0 };
    let drawn = lines.iter().map(|l| ChartLine {
        colour: l.colour,
        points: l.points.iter().filter(|p| p.1 > 0.0).map(|p| (p.0, p.1.log10())).collect(),
    });
    let y_ticks: Vec<_> =
        (bottom as i32..=top as i32).map(|e| (f64::from(e), short_number(10f64.powi(e)))).collect();
    plot(title, &drawn.collect::<Vec<_>>(), (from, to), (bottom, top), x_ticks, &y_ticks)
}

/// Maximum number of columns of a strip; in a long run, one column covers several tenths of a
/// second.
const COLUMNS: usize = 170;
/// Latency range of a strip, as powers of ten of microseconds: 10 us to 10 s, the same for all
/// strips so that they can be compared.
const FASTEST_LOG_US: f64 = 1.0;
const SLOWEST_LOG_US: f64 = 7.0;

/// Draws a run over time: above, the operations in each tenth of a second (to their own scale);
/// below, the longest call of each.
pub fn timeline_strip(title: &str, colour: usize, ops: &[u64], worst: &[f64]) -> String {
    const LEFT: f64 = 48.0;
    const RIGHT: f64 = 10.0;
    const TOP: (f64, f64) = (4.0, 40.0);
    const BELOW: (f64, f64) = (48.0, 92.0);
    let n = ops.len().min(worst.len());
    if n == 0 {
        return String::new();
    }
    let each = n.div_ceil(COLUMNS);
    let width = (WIDTH - LEFT - RIGHT) / n.div_ceil(each) as f64;
    let rates: Vec<f64> = ops[..n]
        .chunks(each)
        .map(|c| c.iter().sum::<u64>() as f64 * 10.0 / c.len() as f64)
        .collect();
    let most = rates.iter().copied().fold(1.0, f64::max);
    let mut s = svg_open(title, 108.0);
    let (mut above, mut below) = (String::new(), String::new());
    for (i, (rate, calls)) in rates.iter().zip(worst[..n].chunks(each)).enumerate() {
        let x = LEFT + i as f64 * width;
        let high = rate / most * (TOP.1 - TOP.0);
        let _ = write!(above, "M{x:.1} {:.1}h{width:.1}v{high:.1}h-{width:.1}z", TOP.1 - high);
        let us = calls.iter().copied().fold(0.0, f64::max).max(1e-3).log10();
        let high = (us - FASTEST_LOG_US).clamp(0.0, SLOWEST_LOG_US - FASTEST_LOG_US)
            / (SLOWEST_LOG_US - FASTEST_LOG_US)
            * (BELOW.1 - BELOW.0);
        let _ = write!(below, "M{x:.1} {:.1}h{width:.1}v{high:.1}h-{width:.1}z", BELOW.1 - high);
    }
    let _ = write!(
        s,
        "<path class=\"e{colour}\" d=\"{above}\"/><path class=\"e{colour} late\" d=\"{below}\"/>"
    );
    let mut text = |y: f64, t: &str| {
        let _ = write!(
            s,
            "<text x=\"{:.0}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 4.0,
            escape(t)
        );
    };
    text(TOP.0 + 9.0, &format!("{}/s", short_number(most)));
    let at = |power: f64| {
        BELOW.1 - (power - FASTEST_LOG_US) / (SLOWEST_LOG_US - FASTEST_LOG_US) * (BELOW.1 - BELOW.0)
    };
    for power in [1.0, 3.0, 5.0, 7.0] {
        text(at(power) + 3.5, &micros(10f64.powf(power)));
    }
    for power in [1.0, 3.0, 5.0, 7.0] {
        let _ =
            write!(s, "<path class=\"grid\" d=\"M{LEFT} {:.1}H{:.0}\"/>", at(power), WIDTH - RIGHT);
    }
    let _ = write!(
        s,
        "<text x=\"{LEFT}\" y=\"104\">0</text><text x=\"{:.0}\" y=\"104\" text-anchor=\"end\">{:.1} s</text></svg>",
        WIDTH - RIGHT,
        n as f64 / 10.0
    );
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strip_shows_stall_and_the_call_that_ended_it() {
        let strip = timeline_strip("run", 0, &[1000, 0, 0, 1000], &[50.0, 0.0, 0.0, 300_000.0]);
        assert!(strip.contains("10k/s") || strip.contains("10.0k/s"), "{strip}");
        assert_eq!(strip.matches('z').count(), 8, "four columns above and four below");
    }
}
