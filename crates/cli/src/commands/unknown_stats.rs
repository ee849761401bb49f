//! Statistics that a read-only open cannot know: those of the process that has the database open
//! for writing, and those counted since the open. `stats` and `metrics` omit them and list them as
//! unknown. `docs/STATISTICS.md` has the same list.

use serde_json::{Value, json};

/// Fields of `stats --json` that are null.
const UNKNOWN_FIELDS: &[&str] = &[
    "durable_sequence",
    "snapshots",
    "transactions",
    "stall_reason",
    "memory_pressure",
    "background",
    "background_error",
    "scrub_errors",
    "running_jobs",
    "stalls",
    "io",
    "latency",
    "cache",
    "memory",
    "memory_budget_bytes",
    "process_resident_bytes",
    "counters",
];
/// Fields of each element of `families` that are null.
const UNKNOWN_FAMILY_FIELDS: &[&str] =
    &["immutable_memtables", "since_open", "is_flushing", "is_compacting"];

/// The unknown statistics in words.
pub const UNKNOWN_DESCRIPTION: &str = "counters, latencies, i/o, memory, cache, snapshots, \
    transactions, stalls and their reason, background work and its errors, the durable sequence number, \
    immutable memtables";

/// Metrics that a read-only open knows, because they describe the files.
const KNOWN_METRICS: &[&str] = &[
    "perigee_last_sequence",
    "perigee_disk_bytes",
    "perigee_tables",
    "perigee_wal_segments",
    "perigee_wal_size_bytes",
    "perigee_recovery_clean",
    "perigee_recovery_truncated_bytes",
    "perigee_memtable_bytes",
    "perigee_level_runs",
    "perigee_level_files",
    "perigee_level_size_bytes",
    "perigee_level_entries",
    "perigee_level_tombstones",
    "perigee_level_key_bytes",
    "perigee_level_value_bytes",
    "perigee_vlog_size_bytes",
    "perigee_vlog_referenced_bytes",
];

/// Replaces the unknown fields in the document of `stats --json` with null, and adds their list.
pub fn null_unknown_fields(stats: &mut Value) {
    let mut unknown: Vec<String> = Vec::new();
    for name in UNKNOWN_FIELDS {
        if let Some(field) = stats.get_mut(*name) {
            *field = Value::Null;
            unknown.push((*name).to_owned());
        }
    }
    for name in UNKNOWN_FAMILY_FIELDS {
        let families = stats["families"].as_array_mut().into_iter().flatten();
        let fields = families.filter_map(|f| f.get_mut(*name)).map(|field| *field = Value::Null);
        if fields.count() > 0 {
            unknown.push(format!("families[].{name}"));
        }
    }
    stats["unknown"] = json!(unknown);
}

/// Returns the OpenMetrics text without the unknown metrics. Since OpenMetrics has no comments, the
/// help of the metric `perigee_read_only_open` lists them.
pub fn remove_unknown_metrics(text: &str) -> String {
    let mut known = String::with_capacity(text.len());
    let mut unknown: Vec<&str> = Vec::new();
    let mut keep = true;
    for line in text.lines().filter(|l| *l != "# EOF") {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let name = rest.split(' ').next().unwrap_or_default();
            keep = KNOWN_METRICS.contains(&name);
            if !keep {
                unknown.push(name);
            }
        }
        if keep {
            known.push_str(line);
            known.push('\n');
        }
    }
    known.push_str("# TYPE perigee_read_only_open gauge\n");
    known.push_str(&format!(
        "# HELP perigee_read_only_open 1: the metrics describe the files, as seen by a read-only \
         open. Known only to the process that has the database open for writing, and therefore \
         left out: {}.\n",
        unknown.join(", ")
    ));
    known.push_str("perigee_read_only_open 1\n# EOF\n");
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_null_and_listed() {
        let mut stats = json!({"counters": {"gets": 0}, "disk_bytes": 7, "families": [{"name": "a", "immutable_memtables": 1}]});
        null_unknown_fields(&mut stats);
        let expected = json!({
            "counters": null, "disk_bytes": 7, "families": [{"name": "a", "immutable_memtables": null}],
            "unknown": ["counters", "families[].immutable_memtables"],
        });
        assert_eq!(stats, expected);
    }

    #[test]
    fn unknown_metrics_are_omitted_and_named() {
        let text = "# TYPE perigee_gets counter\n# HELP perigee_gets x\nperigee_gets_total 0\n\
                    # TYPE perigee_tables gauge\n# HELP perigee_tables y\nperigee_tables 3\n# EOF\n";
        let text = remove_unknown_metrics(text);
        assert!(
            text.starts_with(
                "# TYPE perigee_tables gauge\n# HELP perigee_tables y\nperigee_tables 3\n# TYPE"
            ),
            "{text}"
        );
        assert!(
            !text.contains("perigee_gets_total") && text.contains("left out: perigee_gets.\n"),
            "{text}"
        );
        assert!(text.ends_with("\nperigee_read_only_open 1\n# EOF\n"), "{text}");
    }

    #[test]
    fn docs_page_names_every_unknown_field() {
        let page = include_str!("../../../../docs/STATISTICS.md");
        let start = page.find("## Read-only").expect("the section");
        let section = &page[start..];
        let section = &section[..section[3..].find("\n## ").map_or(section.len(), |end| end + 3)];
        for name in UNKNOWN_FIELDS.iter().chain(UNKNOWN_FAMILY_FIELDS).chain(KNOWN_METRICS) {
            assert!(
                section.contains(&format!("`{name}`")),
                "docs/STATISTICS.md does not name {name}"
            );
        }
    }
}
