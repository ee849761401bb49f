//! Renders the levels as one self-contained HTML page with one SVG per column family. Performs no
//! I/O.

use crate::size::{bytes, count};
use crate::text::escape;
use perigee::stats::{FamilyStats, FileStats};
use std::collections::BTreeSet;
use std::fmt::Write;

const WIDTH: f64 = 1000.0;
const ROW: f64 = 34.0;
const LEFT: f64 = 110.0;

/// Escapes text for HTML.
fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns the HTML page. The x axis is the key space: the distance between two adjacent bounds of
/// tables is constant, so boxes overlap horizontally exactly where their key ranges overlap.
pub fn page(path: &str, families: &[FamilyStats], files: &[FileStats]) -> String {
    let mut out = String::from(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Perigee levels</title>\n<style>\
         body{font:14px system-ui,sans-serif;margin:2em;color:#222;background:#fff}\
         h1{font-size:1.3em}h2{font-size:1.1em;margin-top:2em}\
         text{font:12px system-ui,sans-serif;fill:#444}rect{stroke:#fff;stroke-width:1}\
         @media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}text{fill:#bbb}rect{stroke:#181818}}\
         </style></head><body>\n",
    );
    let _ = writeln!(out, "<h1>Levels of {}</h1>", escape_html(path));
    out.push_str(
        "<p>Each box is a table. Its horizontal extent is its key range, from the smallest key on \
         the left to the largest on the right. Darker boxes hold more bytes, redder ones more \
         tombstones. Boxes above each other overlap in keys. Hover over a box for details.</p>\n",
    );
    for family in families {
        let own: Vec<&FileStats> = files.iter().filter(|f| f.family == family.name).collect();
        write_family_svg(&mut out, family, &own);
    }
    out.push_str("</body></html>\n");
    out
}

fn write_family_svg(out: &mut String, family: &FamilyStats, files: &[&FileStats]) {
    let total: u64 = files.iter().map(|f| f.bytes).sum();
    let name = escape_html(&escape(family.name.as_bytes()));
    let _ = writeln!(out, "<h2>{name}: {} tables, {}</h2>", files.len(), bytes(total));
    if files.is_empty() {
        return;
    }
    // The bounds of all tables, sorted bytewise. Under another comparator the diagram is correct,
    // but does not show the keys in their order.
    let bounds: Vec<&[u8]> = files
        .iter()
        .flat_map(|f| [f.first_key.as_slice(), f.last_key.as_slice()])
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let x = |key: &[u8]| {
        let index = bounds.binary_search(&key).unwrap_or_else(|i| i);
        LEFT + (WIDTH - LEFT) * index as f64 / bounds.len().max(2).saturating_sub(1) as f64
    };
    let mut rows: Vec<(u8, u64)> = files.iter().map(|f| (f.level, f.run)).collect();
    rows.sort_by_key(|(level, run)| (*level, std::cmp::Reverse(*run)));
    rows.dedup();
    let largest = files.iter().map(|f| f.bytes).max().unwrap_or(1).max(1);
    let height = rows.len() as f64 * ROW;
    let _ = writeln!(out, "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"100%\" role=\"img\">");
    for (i, (level, run)) in rows.iter().enumerate() {
        let y = i as f64 * ROW;
        let label =
            if *level == 0 { format!("level 0, run {run}") } else { format!("level {level}") };
        let _ = writeln!(out, "<text x=\"0\" y=\"{}\">{label}</text>", y + 20.0);
        for f in files.iter().filter(|f| (f.level, f.run) == (*level, *run)) {
            let (from, to) = (x(&f.first_key), x(&f.last_key));
            let _ = writeln!(
                out,
                "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"3\" fill=\"{}\"><title>{}</title></rect>",
                y + 4.0,
                (to - from).max(3.0),
                ROW - 8.0,
                file_color(f, largest),
                escape_html(&describe_file(f))
            );
        }
    }
    out.push_str("</svg>\n");
}

/// Returns the colour of a box: from blue to red with the share of tombstones, darker with size.
fn file_color(f: &FileStats, largest: u64) -> String {
    let share = f.tombstones as f64 / f.entries.max(1) as f64;
    let light = 75.0 - 35.0 * (f.bytes as f64 / largest as f64).sqrt();
    format!("hsl({:.0} 60% {light:.0}%)", 210.0 + 150.0 * share)
}

fn describe_file(f: &FileStats) -> String {
    format!(
        "{}: {}, {} entries, {} tombstones, sequence numbers {} to {}, {} in value logs; keys {} to \
         {}",
        f.file,
        bytes(f.bytes),
        count(f.entries),
        count(f.tombstones),
        f.sequences.first,
        f.sequences.last,
        bytes(f.separated_bytes),
        escape(&f.first_key),
        escape(&f.last_key)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_escaped_and_self_contained() {
        let text = page("<db>&", &[], &[]);
        assert!(text.contains("&lt;db&gt;&amp;") && text.ends_with("</html>\n"));
        assert!(!text.contains("http") && !text.contains("<script"));
    }
}
