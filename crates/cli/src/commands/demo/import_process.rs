//! The importing process: this program again, as `perigee import`, told to report each committed
//! batch.

use crate::failure::{Failure, Result, show_path};
use crate::process::{self, ProcessUsage};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::sources::Sources;

/// What an import did, as far as its process told before it ended.
#[derive(Default)]
pub struct ImportRun {
    /// Entries acknowledged.
    pub entries: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// How long it ran.
    pub elapsed: Duration,
    /// Whether it was killed.
    pub killed: bool,
    /// Memory and writes; of a killed process the last that was seen.
    pub process: ProcessUsage,
    /// Log, flush and compaction bytes by the engine's own counters, if it came to its end.
    pub engine_written: Option<u64>,
}

/// Runs an import of all sources, leaving out keys that are there; with `kill`, about half of it.
pub fn run_import(db: &Path, sources: &Sources, kill: bool) -> Result<ImportRun> {
    let exe = std::env::current_exe()
        .map_err(|e| Failure::other("i/o error", format!("find this program: {e}")))?;
    let mut command = Command::new(&exe);
    command.arg("import").arg(db).args(sources.roots.iter().map(|(root, _, _)| root));
    command.args(["--with-name", "--skip-existing", "--durability", "full", "--progress-lines"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let started = Instant::now();
    let mut child = command.spawn().map_err(|e| Failure::file("run", &exe, &e))?;
    let mut done = follow_child(&mut child, kill.then_some(sources))?;
    let status = child.wait().map_err(|e| Failure::file("wait for", &exe, &e))?;
    done.elapsed = started.elapsed();
    if !status.success() && !done.killed {
        return Err(Failure::other(
            "demo",
            format!("the import into {} failed: {status}", show_path(db)),
        ));
    }
    Ok(done)
}

/// Follows what the child prints, to its end; kills it on the way. Lines still in the pipe count:
/// each was printed after its batch was acknowledged.
fn follow_child(child: &mut Child, kill_halfway: Option<&Sources>) -> Result<ImportRun> {
    let pid = child.id().to_string();
    let stdout = child.stdout.take().expect("stdout was asked to be a pipe");
    let mut done = ImportRun::default();
    for line in BufReader::new(stdout).lines() {
        let Ok(line) = line else { break };
        let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
        apply_line(&value, &mut done);
        if !done.killed && kill_halfway.is_some_and(|all| is_halfway(&done, all)) {
            done.process = process::read_usage(&pid);
            // SIGKILL. If it has ended by itself just now, there is nothing to kill.
            done.killed = child.kill().is_ok();
        }
    }
    Ok(done)
}

/// Trees are uneven: half of the bytes may lie in the first hundred files. So the mean of both
/// shares counts.
fn is_halfway(done: &ImportRun, all: &Sources) -> bool {
    let share = |done: u64, all: u64| done as f64 / all.max(1) as f64;
    share(done.entries, all.files) + share(done.bytes, all.bytes) >= 1.0
}

fn apply_line(value: &Value, done: &mut ImportRun) {
    let (summary, progress) = (&value["imported"], &value["committed"]);
    let line = if summary.is_object() { summary } else { progress };
    let Some(entries) = line["entries"].as_u64() else { return };
    done.entries = entries;
    done.bytes = line["bytes"].as_u64().unwrap_or(done.bytes);
    if summary.is_object() {
        done.process = ProcessUsage::from_json(&summary["process"]);
        let counters = ["wal_bytes_written", "flush_bytes_written", "compaction_bytes_written"];
        done.engine_written = counters.iter().map(|name| summary["counters"][name].as_u64()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn progress_lines_are_parsed() {
        let mut done = ImportRun::default();
        apply_line(&json!({"committed": {"entries": 3, "bytes": 10}}), &mut done);
        apply_line(&json!({"other": 1}), &mut done);
        assert_eq!((done.entries, done.bytes, done.engine_written), (3, 10, None));
        let counters = json!({"wal_bytes_written": 1, "flush_bytes_written": 2, "compaction_bytes_written": 4});
        let summary = json!({"entries": 5, "bytes": 20, "counters": counters, "process": {"peak_memory_bytes": 9}});
        apply_line(&json!({"imported": summary}), &mut done);
        assert_eq!((done.entries, done.bytes, done.engine_written), (5, 20, Some(7)));
        assert_eq!(done.process.peak_bytes, Some(9));
    }
}
