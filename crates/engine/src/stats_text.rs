//! Statistics as a JSON document and as text. The JSON is written by hand: the structure is small
//! and fixed, and a library should not add a dependency for it.
//!
//! Invariant: the document is valid JSON whatever bytes a name contains, and every number is an
//! integer.

use crate::stats::{CounterValue, FamilyStats, JobStats, OwnerMemory, RecoveryReport, Stats};
use std::fmt::{self, Write};

/// Writes a JSON document. There is one method per type of value.
#[derive(Debug, Default)]
struct JsonWriter {
    out: String,
    /// True if the next element of the open object or array is its first.
    first_element: bool,
}

impl JsonWriter {
    fn comma(&mut self) {
        if !std::mem::take(&mut self.first_element) {
            self.out.push(',');
        }
    }
    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                c if c < ' ' || c == '\u{7f}' => {
                    let _ = write!(self.out, "\\u{:04x}", c as u32);
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
    fn key(&mut self, name: &str) {
        self.comma();
        self.string(name);
        self.out.push(':');
    }
    fn open(&mut self, bracket: char, fill: impl FnOnce(&mut JsonWriter), end: char) {
        self.out.push(bracket);
        self.first_element = true;
        fill(self);
        self.out.push(end);
        self.first_element = false;
    }
    fn number(&mut self, name: &str, n: u64) {
        self.key(name);
        let _ = write!(self.out, "{n}");
    }
    fn text(&mut self, name: &str, text: &str) {
        self.key(name);
        self.string(text);
    }
    fn boolean(&mut self, name: &str, yes: bool) {
        self.key(name);
        self.out.push_str(if yes { "true" } else { "false" });
    }
    fn object(&mut self, name: &str, fill: impl FnOnce(&mut JsonWriter)) {
        self.key(name);
        self.open('{', fill, '}');
    }
    fn array<T>(&mut self, name: &str, items: &[T], item: impl Fn(&mut JsonWriter, &T)) {
        self.key(name);
        let each = |j: &mut JsonWriter| {
            for i in items {
                j.comma();
                j.open('{', |j| item(j, i), '}');
            }
        };
        self.open('[', each, ']');
    }
}

impl Stats {
    /// Returns all statistics as one JSON document, described in `docs/STATISTICS.md`. Numbers are
    /// integers; names of durations end in their unit.
    pub fn to_json(&self) -> String {
        let mut j = JsonWriter::default();
        j.open('{', |j| self.write_database(j), '}');
        j.out
    }

    fn write_database(&self, j: &mut JsonWriter) {
        j.number("last_sequence", self.last_sequence);
        j.number("durable_sequence", self.durable_sequence);
        j.number("disk_bytes", self.disk_bytes);
        j.number("tables", self.tables as u64);
        j.number("snapshots", self.snapshots as u64);
        j.object("transactions", |j| self.write_transactions(j));
        j.object("background", |j| self.write_background(j));
        j.number("memory_pressure", u64::from(self.memory_pressure));
        j.text("stall_reason", &self.stall_reason);
        j.text(
            "background_error",
            &self.background_error.as_ref().map(ToString::to_string).unwrap_or_default(),
        );
        j.array("scrub_errors", &self.scrub_errors, |j, e| j.text("error", &e.to_string()));
        j.object("wal", |j| {
            j.number("segments", self.wal.segments as u64);
            j.number("bytes", self.wal.bytes);
            j.number("newest", self.wal.newest_segment);
        });
        j.object("cache", |j| {
            let c = &self.cache;
            let all = [
                ("capacity_bytes", c.capacity),
                ("used_bytes", c.used),
                ("blocks", c.blocks),
                ("hits", c.hits),
                ("misses", c.misses),
                ("evictions", c.evictions),
                ("shards", c.shards as u64),
            ];
            all.iter().for_each(|(name, n)| j.number(name, *n));
        });
        j.object("row_cache", |j| {
            let c = &self.row_cache;
            let all = [
                ("capacity_bytes", c.capacity),
                ("used_bytes", c.used),
                ("rows", c.rows),
                ("hits", c.hits),
                ("misses", c.misses),
                ("invalidations", c.invalidations),
                ("evictions", c.evictions),
            ];
            all.iter().for_each(|(name, n)| j.number(name, *n));
        });
        j.number("memory_budget_bytes", self.memory_budget);
        if let Some(bytes) = self.process_resident_bytes {
            j.number("process_resident_bytes", bytes);
        }
        j.object("memory", |j| self.memory.iter().for_each(|m| j.number(m.owner, m.bytes)));
        j.object("io", |j| {
            for io in &self.io {
                j.object(io.cause, |j| {
                    j.number("reads", io.reads);
                    j.number("bytes_read", io.bytes_read);
                    j.number("writes", io.writes);
                    j.number("bytes_written", io.bytes_written);
                });
            }
        });
        j.object("latency", |j| self.write_latencies(j));
        j.array("stalls", &self.stalls, |j, s| {
            j.text("reason", s.reason);
            j.number("delays", s.delays);
            j.number("delay_us", s.delay_us);
            j.number("stops", s.stops);
            j.number("stop_us", s.stop_us);
        });
        j.array("running_jobs", &self.running_jobs, write_job);
        j.array("families", &self.families, write_family);
        j.object("recovery", |j| write_recovery(j, &self.recovery));
        j.object("counters", |j| self.counters.iter().for_each(|c| j.number(c.name, c.value)));
    }

    fn write_transactions(&self, j: &mut JsonWriter) {
        let t = &self.transactions;
        j.number("open", t.open);
        j.number("bytes", t.bytes);
        j.number("prepared", t.prepared);
        if let Some(oldest) = t.oldest_prepared {
            j.number("oldest_prepared_ms", u64::try_from(oldest.as_millis()).unwrap_or(u64::MAX));
        }
    }

    fn write_background(&self, j: &mut JsonWriter) {
        let b = &self.background;
        let all = [
            ("flushes_running", b.flushes_running),
            ("immutable_memtables", b.immutable_memtables),
            ("compactions_running", b.compactions_running),
            ("compactions_due", b.compactions_due),
        ];
        all.iter().for_each(|(name, n)| j.number(name, *n as u64));
    }

    fn write_latencies(&self, j: &mut JsonWriter) {
        for l in &self.latency {
            j.object(l.operation, |j| {
                let all = [
                    ("one_in", l.one_in),
                    ("count", l.count),
                    ("sum_ns", l.sum_ns),
                    ("p50_ns", l.p50_ns),
                    ("p90_ns", l.p90_ns),
                    ("p99_ns", l.p99_ns),
                    ("p999_ns", l.p999_ns),
                    ("max_ns", l.max_ns),
                ];
                all.iter().for_each(|(name, n)| j.number(name, *n));
            });
        }
    }
}

fn write_job(j: &mut JsonWriter, job: &JobStats) {
    j.text("kind", job.kind);
    j.text("family", &job.family);
    j.text("reason", job.reason);
    let from: Vec<String> = job.from.iter().map(ToString::to_string).collect();
    j.text("from", &from.join(","));
    let all = [
        ("to", u64::from(job.to)),
        ("files", job.files as u64),
        ("bytes", job.bytes),
        ("bytes_done", job.bytes_done),
        ("bytes_written", job.bytes_written),
        ("elapsed_us", job.elapsed_us),
    ];
    all.iter().for_each(|(name, n)| j.number(name, *n));
}

fn write_family(j: &mut JsonWriter, f: &FamilyStats) {
    j.text("name", &f.name);
    j.number("id", u64::from(f.id));
    j.object("memtable", |j| {
        j.number("bytes", f.memtable.bytes);
        j.number("entries", f.memtable.entries);
    });
    j.object("memtables", |j| {
        j.number("entries", f.memtables.entries);
        j.number("tombstones", f.memtables.tombstones);
        j.number("key_bytes", f.memtables.key_bytes);
        j.number("value_bytes", f.memtables.value_bytes);
    });
    j.object("immutable_memtables", |j| {
        j.number("count", f.immutable_memtables.count as u64);
        j.number("bytes", f.immutable_memtables.bytes);
    });
    j.array("levels", &f.levels, |j, l| {
        j.number("level", u64::from(l.level));
        j.number("runs", l.runs as u64);
        j.number("files", l.files as u64);
        j.number("bytes", l.bytes);
        j.number("entries", l.entries);
        j.number("tombstones", l.tombstones);
        j.number("blocks", l.blocks);
        j.number("raw_key_bytes", l.raw_key_bytes);
        j.number("raw_value_bytes", l.raw_value_bytes);
        j.number("separated_bytes", l.separated_bytes);
    });
    j.object("vlogs", |j| {
        j.number("files", f.vlogs.files as u64);
        j.number("bytes", f.vlogs.bytes);
        j.number("referenced_bytes", f.vlogs.referenced_bytes);
    });
    j.object("since_open", |j| {
        let all = [
            ("user_bytes_written", f.user_bytes_written),
            ("flush_tables", f.flush_tables),
            ("flush_bytes_written", f.flush_bytes_written),
            ("compaction_tables", f.compaction_tables),
            ("compaction_bytes_read", f.compaction_bytes_read),
            ("compaction_bytes_written", f.compaction_bytes_written),
        ];
        all.iter().for_each(|(name, n)| j.number(name, *n));
    });
    j.boolean("is_flushing", f.is_flushing);
    j.boolean("is_compacting", f.is_compacting);
}

fn write_recovery(j: &mut JsonWriter, r: &RecoveryReport) {
    j.number("recovered_sequence", r.recovered_sequence);
    j.number("replayed_operations", r.replayed_operations);
    j.number("truncated_bytes", r.truncated_bytes);
    j.text("reason", &r.reason);
    j.number("orphans", r.orphans);
    j.boolean("clean", r.clean);
    j.number("peak_bytes", r.peak_bytes);
    j.number("elapsed_us", r.elapsed_us);
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "sequence {} (durable {}), {} bytes on disk",
            self.last_sequence, self.durable_sequence, self.disk_bytes
        )?;
        writeln!(f, "stall reason: {}", self.stall_reason)?;
        if let Some(e) = &self.background_error {
            writeln!(f, "background error: {e}")?;
        }
        for e in &self.scrub_errors {
            writeln!(f, "damage found by the scrub: {e}")?;
        }
        for family in &self.families {
            writeln!(
                f,
                "column family {:?}: memtable {} bytes, {} immutable",
                family.name, family.memtable.bytes, family.immutable_memtables.count
            )?;
            for l in family.levels.iter().filter(|l| l.files > 0) {
                writeln!(
                    f,
                    "  level {}: {} files, {} bytes, {} entries, {} tombstones",
                    l.level, l.files, l.bytes, l.entries, l.tombstones
                )?;
            }
        }
        for job in &self.running_jobs {
            writeln!(
                f,
                "running: {} of {:?} ({}), {} of {} bytes",
                job.kind, job.family, job.reason, job.bytes_done, job.bytes
            )?;
        }
        let (t, b) = (&self.transactions, &self.background);
        writeln!(f, "transactions: {} open, {} bytes; {} prepared", t.open, t.bytes, t.prepared)?;
        if let Some(oldest) = t.oldest_prepared {
            writeln!(f, "oldest prepared transaction: {} s", oldest.as_secs())?;
        }
        writeln!(
            f,
            "waiting: {} immutable memtables, {} compactions",
            b.immutable_memtables, b.compactions_due
        )?;
        for s in &self.stalls {
            writeln!(
                f,
                "stall ({}): {} delays of {} us, {} stops of {} us",
                s.reason, s.delays, s.delay_us, s.stops, s.stop_us
            )?;
        }
        for OwnerMemory { owner, bytes } in &self.memory {
            writeln!(f, "memory of {owner}: {bytes} bytes")?;
        }
        let used: u64 = self.memory_bytes();
        writeln!(f, "memory of all owners: {used} bytes of {}", self.memory_budget)?;
        for io in self.io.iter().filter(|io| io.reads + io.writes > 0) {
            writeln!(
                f,
                "i/o for {}: read {} bytes in {} calls, wrote {} in {}",
                io.cause, io.bytes_read, io.reads, io.bytes_written, io.writes
            )?;
        }
        for l in self.latency.iter().filter(|l| l.count > 0) {
            writeln!(
                f,
                "{}: p50 {} p99 {} max {} ns ({} measured)",
                l.operation, l.p50_ns, l.p99_ns, l.max_ns, l.count
            )?;
        }
        for CounterValue { name, value } in self.counters.iter().filter(|c| c.value > 0) {
            writeln!(f, "{name} {value}")?;
        }
        Ok(())
    }
}
