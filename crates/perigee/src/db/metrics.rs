//! Statistics as OpenMetrics text, for Prometheus. Metric names are stable: changes are listed in
//! the release notes.
//!
//! Invariants: every metric family has HELP and TYPE (and UNIT, if it has one) before its samples,
//! and its samples are contiguous; names of counters end in `_total`; the text ends with `# EOF`.

use crate::db::limits::LATENCY_BUCKETS_MAX;
use crate::stats::Stats;
use std::fmt::Write;

/// Name, type, unit and help text of a metric family.
struct MetricHead {
    name: &'static str,
    kind: &'static str,
    unit: &'static str,
    help: &'static str,
}

/// The text written so far.
#[derive(Default)]
struct MetricsText(String);

/// Escapes a label value: backslash, quote and line feed.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl MetricsText {
    fn write_header(&mut self, h: &MetricHead) {
        let _ = writeln!(self.0, "# TYPE {} {}", h.name, h.kind);
        if !h.unit.is_empty() {
            let _ = writeln!(self.0, "# UNIT {} {}", h.name, h.unit);
        }
        let _ = writeln!(self.0, "# HELP {} {}", h.name, h.help);
    }
    fn write_sample(
        &mut self,
        name: &str,
        suffix: &str,
        labels: &[(&str, &str)],
        value: impl std::fmt::Display,
    ) {
        let labels: Vec<String> =
            labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escape(v))).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{suffix}{labels} {value}");
    }
    /// Writes a metric family with one sample per item; writes nothing if there are no items.
    fn write_family<'a, T: 'a>(
        &mut self,
        h: &MetricHead,
        items: impl IntoIterator<Item = &'a T>,
        sample: impl Fn(&'a T) -> (Vec<(&'static str, String)>, String),
    ) {
        let suffix = if h.kind == "counter" { "_total" } else { "" };
        let mut items = items.into_iter().peekable();
        if items.peek().is_some() {
            self.write_header(h);
        }
        for item in items {
            let (labels, value) = sample(item);
            let labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
            self.write_sample(h.name, suffix, &labels, value);
        }
    }
    fn write_value(
        &mut self,
        name: &'static str,
        kind: &'static str,
        unit: &'static str,
        help: &'static str,
        value: u64,
    ) {
        self.write_family(&MetricHead { name, kind, unit, help }, &[value], |v| {
            (vec![], v.to_string())
        });
    }
}

/// Formats microseconds as seconds, without rounding.
fn us_to_seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// Formats the statistics as OpenMetrics text.
pub(crate) fn render(s: &Stats) -> String {
    let mut t = MetricsText::default();
    write_database(&mut t, s);
    write_family_metrics(&mut t, s);
    write_labelled_metrics(&mut t, s);
    write_latencies(&mut t, s);
    write_counters(&mut t, s);
    t.0.push_str("# EOF\n");
    t.0
}

fn write_database(t: &mut MetricsText, s: &Stats) {
    t.write_value(
        "perigee_last_sequence",
        "gauge",
        "",
        "Sequence number of the last visible operation.",
        s.last_sequence,
    );
    t.write_value(
        "perigee_durable_sequence",
        "gauge",
        "",
        "Everything up to this sequence number is on stable storage.",
        s.durable_sequence,
    );
    t.write_value("perigee_disk_bytes", "gauge", "bytes", "Bytes of all files.", s.disk_bytes);
    t.write_value("perigee_snapshots", "gauge", "", "Open snapshots.", s.snapshots as u64);
    t.write_value("perigee_tables", "gauge", "", "Table files.", s.tables as u64);
    write_transactions(t, s);
    t.write_value("perigee_wal_segments", "gauge", "", "Log segments.", s.wal.segments as u64);
    t.write_value(
        "perigee_wal_size_bytes",
        "gauge",
        "bytes",
        "Bytes of the log segments.",
        s.wal.bytes,
    );
    t.write_value(
        "perigee_cache_capacity_bytes",
        "gauge",
        "bytes",
        "Capacity of the block cache.",
        s.cache.capacity,
    );
    t.write_value(
        "perigee_cache_used_bytes",
        "gauge",
        "bytes",
        "Bytes used by the block cache.",
        s.cache.used,
    );
    t.write_value(
        "perigee_cache_blocks",
        "gauge",
        "",
        "Blocks in the block cache.",
        s.cache.blocks,
    );
    t.write_value(
        "perigee_cache_evictions",
        "counter",
        "",
        "Blocks evicted from the block cache.",
        s.cache.evictions,
    );
    write_row_cache(t, s);
    let failed = u64::from(s.background_error.is_some());
    t.write_value(
        "perigee_background_error",
        "gauge",
        "",
        "1 if background work failed or writes are stopped.",
        failed,
    );
    t.write_value(
        "perigee_recovery_clean",
        "gauge",
        "",
        "1 if the last close was clean.",
        u64::from(s.recovery.clean),
    );
    let help = "Bytes cut off at the end of the log at open.";
    t.write_value(
        "perigee_recovery_truncated_bytes",
        "gauge",
        "bytes",
        help,
        s.recovery.truncated_bytes,
    );
}

fn write_row_cache(t: &mut MetricsText, s: &Stats) {
    let c = &s.row_cache;
    let mut gauge = |name, unit, help, n| t.write_value(name, "gauge", unit, help, n);
    gauge("perigee_row_cache_capacity_bytes", "bytes", "Capacity of the row cache.", c.capacity);
    gauge("perigee_row_cache_used_bytes", "bytes", "Bytes used by the row cache.", c.used);
    gauge("perigee_row_cache_rows", "", "Rows in the row cache.", c.rows);
    let mut counter = |name, help, n| t.write_value(name, "counter", "", help, n);
    counter("perigee_row_cache_hits", "Lookups that found the row in the row cache.", c.hits);
    counter("perigee_row_cache_misses", "Lookups that missed the row cache.", c.misses);
    counter("perigee_row_cache_invalidations", "Cached rows that were changed.", c.invalidations);
    counter("perigee_row_cache_evictions", "Rows evicted from the row cache.", c.evictions);
}

fn write_transactions(t: &mut MetricsText, s: &Stats) {
    let all = &s.transactions;
    t.write_value("perigee_transactions_open", "gauge", "", "Open transactions.", all.open);
    let help = "Memory used by the writes of open transactions.";
    t.write_value("perigee_transactions_write_bytes", "gauge", "bytes", help, all.bytes);
    t.write_value(
        "perigee_transactions_prepared",
        "gauge",
        "",
        "Prepared transactions that are neither committed nor rolled back.",
        all.prepared,
    );
    let oldest =
        all.oldest_prepared.map_or(0, |t| u64::try_from(t.as_micros()).unwrap_or(u64::MAX));
    let help = "Age of the oldest prepared transaction; 0 if there is none.";
    let h = MetricHead {
        name: "perigee_prepared_oldest_age_seconds",
        kind: "gauge",
        unit: "seconds",
        help,
    };
    t.write_family(&h, &[oldest], |us| (vec![], us_to_seconds(*us)));
    let help = "Column families that need a compaction and have none running.";
    t.write_value(
        "perigee_compactions_due",
        "gauge",
        "",
        help,
        s.background.compactions_due as u64,
    );
    let help = "Memory pressure, 0 to 3; writers are slowed from 2 on.";
    t.write_value("perigee_memory_pressure", "gauge", "", help, u64::from(s.memory_pressure));
}

fn write_family_metrics(t: &mut MetricsText, s: &Stats) {
    let gauge = |name, unit, help| MetricHead { name, kind: "gauge", unit, help };
    let label = |f: &crate::stats::FamilyStats| vec![("family", f.name.clone())];
    let h = gauge("perigee_memtable_bytes", "bytes", "Bytes of the active memtable.");
    t.write_family(&h, &s.families, |f| (label(f), f.memtable.bytes.to_string()));
    let h = gauge("perigee_immutable_memtables", "", "Immutable memtables waiting for a flush.");
    t.write_family(&h, &s.families, |f| (label(f), f.immutable_memtables.count.to_string()));
    let levels: Vec<(&str, &crate::stats::LevelStats)> =
        s.families.iter().flat_map(|f| f.levels.iter().map(|l| (f.name.as_str(), l))).collect();
    let metrics: [(&str, &str, &str, fn(&crate::stats::LevelStats) -> u64); 7] = [
        ("perigee_level_runs", "", "Sorted runs of a level.", |l| l.runs as u64),
        ("perigee_level_files", "", "Table files of a level.", |l| l.files as u64),
        ("perigee_level_size_bytes", "bytes", "Bytes of a level's tables.", |l| l.bytes),
        ("perigee_level_entries", "", "Entries of a level, tombstones included.", |l| l.entries),
        ("perigee_level_tombstones", "", "Tombstones of a level.", |l| l.tombstones),
        ("perigee_level_key_bytes", "bytes", "Uncompressed bytes of keys of a level.", |l| {
            l.raw_key_bytes
        }),
        ("perigee_level_value_bytes", "bytes", "Uncompressed bytes of values of a level.", |l| {
            l.raw_value_bytes
        }),
    ];
    for (name, unit, help, value) in metrics {
        t.write_family(&MetricHead { name, kind: "gauge", unit, help }, &levels, |(family, l)| {
            (
                vec![("family", (*family).to_owned()), ("level", l.level.to_string())],
                value(l).to_string(),
            )
        });
    }
    type FamilyCounter = fn(&crate::stats::FamilyStats) -> u64;
    let metrics: [(&str, &str, &str, FamilyCounter); 6] = [
        (
            "perigee_family_user_written_bytes",
            "bytes",
            "Bytes of keys and values committed to a column family or replayed by recovery.",
            |f| f.user_bytes_written,
        ),
        ("perigee_family_flush_tables", "", "Tables written by flushes.", |f| f.flush_tables),
        ("perigee_family_flush_written_bytes", "bytes", "Bytes written by flushes.", |f| {
            f.flush_bytes_written
        }),
        ("perigee_family_compaction_tables", "", "Tables written by compactions.", |f| {
            f.compaction_tables
        }),
        (
            "perigee_family_compaction_read_bytes",
            "bytes",
            "Bytes of tables read by compactions.",
            |f| f.compaction_bytes_read,
        ),
        (
            "perigee_family_compaction_written_bytes",
            "bytes",
            "Bytes written by compactions.",
            |f| f.compaction_bytes_written,
        ),
    ];
    for (name, unit, help, value) in metrics {
        t.write_family(&MetricHead { name, kind: "counter", unit, help }, &s.families, |f| {
            (label(f), value(f).to_string())
        });
    }
    let h = gauge("perigee_vlog_size_bytes", "bytes", "Size of the value logs.");
    t.write_family(&h, &s.families, |f| (label(f), f.vlogs.bytes.to_string()));
    let h = gauge(
        "perigee_vlog_referenced_bytes",
        "bytes",
        "Bytes of value logs that tables reference.",
    );
    t.write_family(&h, &s.families, |f| (label(f), f.vlogs.referenced_bytes.to_string()));
}

fn write_labelled_metrics(t: &mut MetricsText, s: &Stats) {
    let h = MetricHead {
        name: "perigee_memory_bytes",
        kind: "gauge",
        unit: "bytes",
        help: "Memory by owner.",
    };
    t.write_family(&h, &s.memory, |m| {
        (vec![("owner", m.owner.replace(' ', "_"))], m.bytes.to_string())
    });
    let metrics: [(&str, &str, &str, fn(&crate::stats::IoStats) -> u64); 4] = [
        ("perigee_io_reads", "", "Read calls by cause.", |io| io.reads),
        ("perigee_io_read_bytes", "bytes", "Bytes read by cause.", |io| io.bytes_read),
        ("perigee_io_writes", "", "Write calls by cause.", |io| io.writes),
        ("perigee_io_written_bytes", "bytes", "Bytes written by cause.", |io| io.bytes_written),
    ];
    for (name, unit, help, value) in metrics {
        t.write_family(&MetricHead { name, kind: "counter", unit, help }, &s.io, |io| {
            (vec![("cause", io.cause.to_owned())], value(io).to_string())
        });
    }
    let metrics: [(&str, &str, &str, fn(&crate::stats::StallStats) -> String); 4] = [
        ("perigee_stall_delays", "", "Writes delayed, by reason.", |s| s.delays.to_string()),
        (
            "perigee_stall_delay_seconds",
            "seconds",
            "Total time of delayed writes, by reason.",
            |s| us_to_seconds(s.delay_us),
        ),
        ("perigee_stall_stops", "", "Writes stopped, by reason.", |s| s.stops.to_string()),
        (
            "perigee_stall_stop_seconds",
            "seconds",
            "Total time of stopped writes, by reason.",
            |s| us_to_seconds(s.stop_us),
        ),
    ];
    for (name, unit, help, value) in metrics {
        t.write_family(&MetricHead { name, kind: "counter", unit, help }, &s.stalls, |s| {
            (vec![("reason", s.reason.replace(' ', "_"))], value(s))
        });
    }
    let jobs: Vec<(&str, u64)> = ["flush", "compaction"]
        .map(|k| (k, s.running_jobs.iter().filter(|j| j.kind == k).count() as u64))
        .to_vec();
    let h = MetricHead {
        name: "perigee_jobs_running",
        kind: "gauge",
        unit: "",
        help: "Background jobs that are running.",
    };
    t.write_family(&h, &jobs, |(kind, n)| (vec![("kind", (*kind).to_owned())], n.to_string()));
}

/// Writes one histogram per operation. Fine buckets are combined into buckets whose bounds double;
/// a fine bucket is counted by its upper bound, so no bucket counts more than it contains.
fn write_latencies(t: &mut MetricsText, s: &Stats) {
    let name = "perigee_operation_duration_seconds";
    let help = "Latency of operations; short ones are sampled.";
    t.write_header(&MetricHead { name, kind: "histogram", unit: "seconds", help });
    for l in &s.latency {
        let operation = ("operation", l.operation);
        for i in 0..LATENCY_BUCKETS_MAX {
            let bound_ns = 1000u64 << i;
            let within = l.buckets.iter().take_while(|b| b.upper_ns <= bound_ns).last();
            let le = format!("{}.{:09}", bound_ns / 1_000_000_000, bound_ns % 1_000_000_000);
            let le = le.trim_end_matches('0').trim_end_matches('.');
            let le = if le.contains('.') { le.to_owned() } else { format!("{le}.0") };
            t.write_sample(
                name,
                "_bucket",
                &[operation, ("le", &le)],
                within.map_or(0, |b| b.cumulative_count),
            );
        }
        t.write_sample(name, "_bucket", &[operation, ("le", "+Inf")], l.count);
        t.write_sample(name, "_count", &[operation], l.count);
        let sum = format!("{}.{:09}", l.sum_ns / 1_000_000_000, l.sum_ns % 1_000_000_000);
        t.write_sample(name, "_sum", &[operation], sum);
    }
}

/// Writes the counters under their names in `docs/STATISTICS.md`, with microseconds converted to
/// seconds.
fn write_counters(t: &mut MetricsText, s: &Stats) {
    for crate::stats::CounterValue { name, value, .. } in &s.counters {
        let (name, unit, value) = if let Some(stem) = name.strip_suffix("_us") {
            (format!("perigee_{stem}_seconds"), "seconds", us_to_seconds(*value))
        } else if name.contains("bytes") {
            (format!("perigee_{}_bytes", name.replace("_bytes", "")), "bytes", value.to_string())
        } else {
            (format!("perigee_{name}"), "", value.to_string())
        };
        let _ = writeln!(t.0, "# TYPE {name} counter");
        if !unit.is_empty() {
            let _ = writeln!(t.0, "# UNIT {name} {unit}");
        }
        let _ = writeln!(t.0, "# HELP {name} The counter of that name in docs/STATISTICS.md.");
        t.write_sample(&name, "_total", &[], value);
    }
}
