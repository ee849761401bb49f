//! Runs `perigee import` as a child process that reports each committed batch, and kills it halfway
//! on request.

use crate::failure::{Failure, Result, show_path};
use crate::process::{self, ProcessUsage};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::sources::Sources;

/// Result of an import process, as far as it reported before it ended.
#[derive(Default)]
pub struct ImportRun {
    /// Entries acknowledged.
    pub entries: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Run time.
    pub elapsed: Duration,
    /// True if it was killed.
    pub killed: bool,
    /// Memory and writes; for a killed process as of just before the kill.
    pub process: ProcessUsage,
    /// Log, flush and compaction bytes by the engine's counters, if the process was not killed.
    pub engine_written: Option<u64>,
}

/// Imports all sources, skipping existing keys. With `kill`, kills the process about halfway.
pub fn run_import(db: &Path, sources: &Sources, kill: bool) -> Result<ImportRun> {
    let exe = std::env::current_exe()
        .map_err(|e| Failure::other("i/o error", format!("find this program: {e}")))?;
    let mut command = Command::new(&exe);
    command.arg("import").arg(db).args(sources.roots.iter().map(|(root, _, _)| root));
    command.args(["--with-name", "--skip-existing", "--durability", "full", "--progress-lines"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let started = Instant::now();
    let mut child = command.spawn().map_err(|e| Failure::file("run", &exe, &e))?;
    let mut run = follow_child(&mut child, kill.then_some(sources))?;
    let status = child.wait().map_err(|e| Failure::file("wait for", &exe, &e))?;
    run.elapsed = started.elapsed();
    if !status.success() && !run.killed {
        return Err(Failure::other(
            "demo",
            format!("the import into {} failed: {status}", show_path(db)),
        ));
    }
    Ok(run)
}

/// Reads the output of the child to its end, and kills the child halfway if `kill_halfway` is
/// given. Lines still in the pipe after the kill count, because each was printed after its batch
/// was acknowledged.
fn follow_child(child: &mut Child, kill_halfway: Option<&Sources>) -> Result<ImportRun> {
    let pid = child.id().to_string();
    let stdout = child.stdout.take().expect("stdout is piped");
    let mut run = ImportRun::default();
    for line in BufReader::new(stdout).lines() {
        let Ok(line) = line else { break };
        let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
        apply_line(&value, &mut run);
        if !run.killed && kill_halfway.is_some_and(|all| is_halfway(&run, all)) {
            run.process = process::read_usage(&pid);
            // SIGKILL. The child may just have ended by itself.
            run.killed = child.kill().is_ok();
        }
    }
    Ok(run)
}

/// Returns true if the mean of the shares of files and bytes is at least one half. Bytes alone
/// would not do: half of them may be in the first hundred files.
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
