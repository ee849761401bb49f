//! The final report of the demo: measurements, verdict, text and JSON output.

use crate::failure::Result;
use crate::output::{Output, table};
use crate::size::{bytes, count, micros};
use serde_json::{Value, json};
use std::time::Duration;

use super::compare::Comparison;
use super::import_process::ImportRun;

/// All measurements of the demo.
#[derive(Debug, Default)]
pub struct DemoReport {
    /// Number of source files.
    pub files: u64,
    /// Total bytes of the source files.
    pub bytes: u64,
    /// Entries acknowledged before the kill.
    pub acknowledged: u64,
    /// Acknowledged entries missing after the kill.
    pub lost: u64,
    /// Duration of the open after the kill.
    pub reopen: Duration,
    /// Recovery time within `reopen`, as reported by the engine, in microseconds.
    pub recovery_us: u64,
    /// Operations replayed by recovery.
    pub replayed: u64,
    /// Total duration of both imports.
    pub import: Duration,
    /// Value bytes of both imports.
    pub imported_bytes: u64,
    /// Peak memory of the two import processes (the larger one), in bytes.
    pub peak_bytes: Option<u64>,
    /// Bytes written by both import processes, as counted by the kernel.
    pub written_bytes: Option<u64>,
    /// Bytes written by the second import, as counted by the engine, and its value bytes.
    pub engine_written: Option<(u64, u64)>,
    /// Size of the database.
    pub disk_bytes: u64,
    /// Entries in the database.
    pub entries: u64,
    /// The outcome of the comparison.
    pub comparison: Comparison,
    /// Duration of the comparison.
    pub compare: Duration,
    /// The prefix that was scanned.
    pub prefix: String,
    /// Entries with that prefix.
    pub prefix_entries: u64,
    /// Source files whose key has that prefix.
    pub prefix_files: u64,
    /// Duration of `verify`.
    pub verify: Duration,
    /// Bytes read by `verify`.
    pub verified_bytes: u64,
    /// Damaged files found by `verify`.
    pub damaged: u64,
}

impl DemoReport {
    /// Adds the measurements of one of the two imports.
    pub fn add_import(&mut self, import: &ImportRun) {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        let first = self.import.is_zero();
        self.import += import.elapsed;
        self.imported_bytes += import.bytes;
        self.peak_bytes = self.peak_bytes.max(import.process.peak_bytes);
        let written = import.process.written_bytes;
        self.written_bytes = if first { written } else { sum(self.written_bytes, written) };
        self.engine_written = import.engine_written.map(|w| (w, import.bytes));
    }

    /// Returns true if nothing was lost, different or damaged.
    pub fn passed(&self) -> bool {
        let c = &self.comparison;
        // If the source changed during the demo, its files may differ from those imported.
        let unchanged = c.changed + c.unreadable == 0;
        let complete =
            self.entries >= c.same && (!unchanged || self.prefix_entries == self.prefix_files);
        self.lost == 0 && c.different == 0 && self.damaged == 0 && c.same > 0 && complete
    }

    fn import_seconds(&self) -> f64 {
        self.import.as_secs_f64().max(1e-9)
    }

    /// Returns the write amplification and the source of the number.
    fn write_amplification(&self) -> Option<(f64, &'static str)> {
        if let (Some(written), true) =
            (self.written_bytes.filter(|w| *w > 0), self.imported_bytes > 0)
        {
            return Some((
                written as f64 / self.imported_bytes as f64,
                "/proc/PID/io of both imports",
            ));
        }
        let (written, user) = self.engine_written.filter(|(_, user)| *user > 0)?;
        Some((written as f64 / user as f64, "engine counters of the second import"))
    }

    /// Prints the report.
    pub fn print(&self, out: &mut Output) -> Result<()> {
        if out.json {
            return out.json_line(&self.json());
        }
        let mut t = table(&["demo", ""]);
        for (name, value) in self.table_rows() {
            t.add_row([name.to_owned(), value]);
        }
        out.line("")?;
        out.line(t.trim_fmt())?;
        out.line(if self.passed() {
            "\nok: every file is identical"
        } else {
            "\nFAILED: see above"
        })
    }

    fn table_rows(&self) -> Vec<(&'static str, String)> {
        let c = &self.comparison;
        let amplification = self.write_amplification().map(|(a, from)| format!("{a:.2} ({from})"));
        let unknown = || "unknown".to_owned();
        let mut rows = vec![
            ("files", count(self.files)),
            ("bytes", format!("{} ({})", count(self.bytes), bytes(self.bytes))),
            ("seconds", format!("{:.1} (both imports)", self.import_seconds())),
            ("MB/s", format!("{:.1}", self.imported_bytes as f64 / 1e6 / self.import_seconds())),
            ("database size", bytes(self.disk_bytes)),
            ("killed after", format!("{} acknowledged files", count(self.acknowledged))),
            ("lost", count(self.lost)),
            ("reopen after the kill", format!("{:.3} s", self.reopen.as_secs_f64())),
            (
                "recovery",
                format!(
                    "{}, {} operations replayed",
                    micros(self.recovery_us),
                    count(self.replayed)
                ),
            ),
            ("write amplification", amplification.unwrap_or_else(unknown)),
            ("peak memory", self.peak_bytes.map_or_else(unknown, bytes)),
            (
                "files identical",
                format!("{} in {:.1} s", count(c.same), self.compare.as_secs_f64()),
            ),
            ("files different", count(c.different)),
            ("entries", count(self.entries)),
            (
                "scan of a prefix",
                format!(
                    "{} entries for {} files below {}",
                    count(self.prefix_entries),
                    count(self.prefix_files),
                    self.prefix
                ),
            ),
            (
                "verify",
                format!(
                    "{} in {:.1} s, {} damaged",
                    bytes(self.verified_bytes),
                    self.verify.as_secs_f64(),
                    self.damaged
                ),
            ),
        ];
        if c.changed + c.unreadable > 0 {
            rows.push((
                "not compared",
                format!("{} changed during the demo, {} unreadable", c.changed, c.unreadable),
            ));
        }
        rows
    }

    fn json(&self) -> Value {
        let c = &self.comparison;
        let amplification = self.write_amplification();
        json!({"demo": {
            "ok": self.passed(), "files": self.files, "bytes": self.bytes, "seconds": self.import_seconds(),
            "mb_per_second": self.imported_bytes as f64 / 1e6 / self.import_seconds(),
            "disk_bytes": self.disk_bytes, "acknowledged": self.acknowledged, "lost": self.lost,
            "reopen_seconds": self.reopen.as_secs_f64(), "recovery_us": self.recovery_us,
            "replayed_operations": self.replayed,
            "write_amplification": amplification.map(|(a, _)| a),
            "write_amplification_from": amplification.map(|(_, from)| from),
            "peak_memory_bytes": self.peak_bytes,
            "identical": c.same, "different": c.different, "changed": c.changed, "unreadable": c.unreadable,
            "compare_seconds": self.compare.as_secs_f64(), "entries": self.entries,
            "prefix": self.prefix, "prefix_entries": self.prefix_entries, "prefix_files": self.prefix_files,
            "verify_seconds": self.verify.as_secs_f64(), "verified_bytes": self.verified_bytes,
            "damaged": self.damaged,
        }})
    }
}
