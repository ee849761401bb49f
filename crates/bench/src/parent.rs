//! Runs repetitions in child processes, alternating engines (`A B A B`), so that disturbances by
//! other processes affect every engine alike.
//!
//! A child writes one record per line. A child that is killed, by the system for its memory or by
//! the parent for its time, leaves the records that it has written; the next record is marked as
//! killed, which is a result and not a failure.

use crate::job::{self, Job, ReadStep};
use crate::record::Record;
use crate::settings::Settings;
use crate::sys;
use crate::table_suite;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{BufRead, IsTerminal, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Name of the hidden subcommand of child processes.
pub const CHILD: &str = "child";

/// A set of workloads to run.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// Suite of the request, or empty.
    pub suite: String,
    pub engines: Vec<String>,
    pub workloads: Vec<String>,
    /// Read-only workloads to run on the database of each workload.
    pub read_steps: Vec<ReadStep>,
    pub reps: u32,
    pub settings: Settings,
}

impl RunRequest {
    /// Creates a request that belongs to no suite.
    pub fn without_suite(
        engines: Vec<String>,
        workloads: Vec<String>,
        reps: u32,
        settings: Settings,
    ) -> RunRequest {
        RunRequest {
            suite: String::new(),
            engines,
            workloads,
            read_steps: Vec::new(),
            reps,
            settings,
        }
    }
}

/// Runs all requests and passes the records so far to `so_far` after each repetition. A repetition
/// that could not be run at all becomes a record with an error.
pub fn run_requests(requests: &[RunRequest], so_far: &mut dyn FnMut(&[Record])) -> Vec<Record> {
    let jobs = requests.iter().flat_map(make_jobs).collect::<Vec<_>>();
    let bar = ProgressBar::new(jobs.len() as u64);
    let style =
        ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} elapsed, {eta} left: {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(500));
    let (start, lines) = (Instant::now(), !std::io::stderr().is_terminal());
    let mut records = Vec::new();
    for (at, job) in jobs.iter().enumerate() {
        let what = format!("{} on {} ({})", job.workload, job.engine, job.rep + 1);
        if lines && jobs.len() > 1 {
            eprintln!("{:>4} s {}/{} {what}", start.elapsed().as_secs(), at + 1, jobs.len());
        }
        bar.set_message(what);
        for record in run_job(job) {
            let say = |what: &str, why: &Option<String>| {
                let Some(why) = why else { return };
                let line = format!("{what} {} on {}: {why}", record.workload, record.engine);
                // A hidden progress bar discards lines printed through it.
                if lines { eprintln!("{line}") } else { bar.println(line) }
            };
            say("not run:", &record.skipped);
            say("killed:", &record.killed);
            say("FAILED", &record.first_failure);
            records.push(record);
        }
        so_far(&records);
        bar.inc(1);
    }
    bar.finish_and_clear();
    records
}

fn make_jobs(request: &RunRequest) -> Vec<Job> {
    let mut jobs = Vec::new();
    for workload in &request.workloads {
        for rep in 0..request.reps {
            for engine in &request.engines {
                let (engine, workload, settings) =
                    (engine.clone(), workload.clone(), request.settings.clone());
                let (suite, then) = (request.suite.clone(), request.read_steps.clone());
                jobs.push(Job { suite, engine, workload, read_steps: then, rep, settings });
            }
        }
    }
    jobs
}

/// Runs a job. Returns one record for each of its workloads, whatever the result.
fn run_job(job: &Job) -> Vec<Record> {
    let mut records = Vec::new();
    let why = match run_child(job, &mut records) {
        Ok(()) if records.len() > job.read_steps.len() => return records,
        Ok(()) => ChildFailure::Failed("the measuring process returned too few records".into()),
        Err(end) => end,
    };
    let steps = std::iter::once(&job.workload).chain(job.read_steps.iter().map(|s| &s.workload));
    for (at, workload) in steps.enumerate().skip(records.len()).collect::<Vec<_>>() {
        let mut record = job.empty_record(workload);
        record.settings = Some(job.settings.clone());
        record.host = sys::host(&job.settings.dir);
        match &why {
            _ if at > 0
                && records
                    .last()
                    .is_some_and(|r: &Record| r.killed.is_some() || r.skipped.is_some()) =>
            {
                record.skipped =
                    Some(format!("{} was killed, so there is nothing to read", job.workload));
            }
            ChildFailure::Killed(why) => record.killed = Some(why.clone()),
            ChildFailure::Failed(why) => {
                (record.errors, record.first_failure) = (1, Some(why.clone()))
            }
        }
        records.push(record);
    }
    records
}

/// Why a child did not return all records.
enum ChildFailure {
    Killed(String),
    Failed(String),
}

/// Starts a child and reads its records until it ends.
fn run_child(job: &Job, records: &mut Vec<Record>) -> Result<(), ChildFailure> {
    let say = |what: &str, e: &dyn std::fmt::Display| ChildFailure::Failed(format!("{what}: {e}"));
    let me = std::env::current_exe().map_err(|e| say("own path", &e))?;
    let mut command = Command::new(me);
    let mut child =
        (command.arg(CHILD).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()))
            .spawn()
            .map_err(|e| say("starting a process", &e))?;
    let text = serde_json::to_vec(job).map_err(|e| say("job", &e))?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(mut stderr)) = (stdin, stdout, stderr) else {
        return Err(ChildFailure::Failed("no pipes to the child".into()));
    };
    stdin.write_all(&text).map_err(|e| say("sending the job to the child", &e))?;
    drop(stdin);
    let pid = child.id();
    let (status, late, complaint) = std::thread::scope(|scope| {
        let complaint = scope.spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        scope.spawn(|| {
            let lines = std::io::BufReader::new(stdout).lines().map_while(Result::ok);
            records.extend(lines.filter_map(|l| serde_json::from_str(&l).ok()));
        });
        let (status, late) = wait_for_child(&mut child, time_allowed(job));
        (status, late, complaint.join().unwrap_or_default())
    });
    sys::remove_memory_limit(pid);
    let status = status.map_err(|e| say("waiting", &e))?;
    if status.success() {
        return Ok(());
    }
    // A killed child could not clean up.
    let _ = std::fs::remove_dir_all(job.dir(pid));
    if late {
        return Err(ChildFailure::Killed(format!(
            "still running after {} s",
            time_allowed(job).unwrap_or_default().as_secs()
        )));
    }
    if job.settings.memory.is_some() && status.signal() == Some(9) {
        return Err(ChildFailure::Killed("by the system, out of memory".into()));
    }
    let last = complaint.trim().lines().last().unwrap_or("no message").to_owned();
    Err(ChildFailure::Failed(format!("the measuring process ended with {status}: {last}")))
}

/// Returns the time limit of a child. If the measured phase is limited, the rest (loading, waiting
/// until idle, checking) gets twice that time plus a minute.
fn time_allowed(job: &Job) -> Option<Duration> {
    let steps = 1 + job.read_steps.len() as u64;
    job.settings.seconds.map(|s| Duration::from_secs(steps * (3 * s + 60)))
}

/// Waits for a child to end. Returns true if it was killed at its time limit.
fn wait_for_child(
    child: &mut Child,
    allowed: Option<Duration>,
) -> (std::io::Result<ExitStatus>, bool) {
    let start = Instant::now();
    let Some(allowed) = allowed else { return (child.wait(), false) };
    while start.elapsed() < allowed {
        match child.try_wait() {
            Ok(Some(status)) => return (Ok(status), false),
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(e) => return (Err(e), false),
        }
    }
    let killed = child.kill();
    (killed.and_then(|()| child.wait()), true)
}

/// Main function of the child: reads a job from standard input and writes a record per line to
/// standard output.
pub fn child_main() -> Result<(), String> {
    // A panicking thread would leave the others waiting for it.
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |why| {
        default_hook(why);
        std::process::exit(101);
    }));
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|e| e.to_string())?;
    let job: Job = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    let mut tell = |record: Record| {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, &record)?;
        Ok(out.write_all(b"\n").and_then(|()| out.flush())?)
    };
    let run = if table_suite::is_row_workload(&job.workload) { table_suite::run } else { job::run };
    run(&job, &mut tell).map_err(|e| e.to_string())
}
