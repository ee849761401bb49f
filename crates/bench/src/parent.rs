//! Repetitions in turn, each in a child process: `A B A B`, so that what the neighbours do hits every engine alike.

use crate::job::{self, Job};
use crate::record::Record;
use crate::settings::Settings;
use crate::sys;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// Name of the hidden subcommand of child processes.
pub const CHILD: &str = "child";

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Order {
    pub engines: Vec<String>,
    pub workloads: Vec<String>,
    pub reps: u32,
    pub settings: Settings,
}

/// Runs everything, and shows `so_far` what there is after each repetition; one that could not be run at all is a record
/// with an error.
pub fn run(orders: &[Order], so_far: &mut dyn FnMut(&[Record])) -> Vec<Record> {
    let jobs = orders.iter().flat_map(jobs).collect::<Vec<_>>();
    let bar = ProgressBar::new(jobs.len() as u64);
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} gone, {eta} left: {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut records = Vec::new();
    for job in jobs {
        bar.set_message(format!("{} on {} ({})", job.workload, job.engine, job.rep + 1));
        let record = child(&job).unwrap_or_else(|why| Record {
            engine: job.engine.clone(),
            workload: job.workload.clone(),
            rep: job.rep,
            threads: job.settings.threads,
            errors: 1,
            first_failure: Some(why),
            settings: Some(job.settings.clone()),
            host: sys::host(&job.settings.dir),
            ..Record::default()
        });
        if let Some(why) = &record.skipped {
            bar.println(format!("not run: {} on {}: {why}", job.workload, job.engine));
        }
        if let Some(failure) = &record.first_failure {
            bar.println(format!("FAILED {} on {}: {failure}", job.workload, job.engine));
        }
        records.push(record);
        so_far(&records);
        bar.inc(1);
    }
    bar.finish_and_clear();
    records
}

fn jobs(order: &Order) -> Vec<Job> {
    let mut jobs = Vec::new();
    for workload in &order.workloads {
        for rep in 0..order.reps {
            for engine in &order.engines {
                let (engine, workload, settings) = (engine.clone(), workload.clone(), order.settings.clone());
                jobs.push(Job { engine, workload, rep, settings });
            }
        }
    }
    jobs
}

fn child(job: &Job) -> Result<Record, String> {
    let say = |what: &str, e: &dyn std::fmt::Display| format!("{what}: {e}");
    let me = std::env::current_exe().map_err(|e| say("own path", &e))?;
    let mut command = Command::new(me);
    let mut child = (command.arg(CHILD).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()))
        .spawn()
        .map_err(|e| say("starting a process", &e))?;
    let text = serde_json::to_vec(job).map_err(|e| say("job", &e))?;
    let mut stdin = child.stdin.take().ok_or("no pipe to the child")?;
    stdin.write_all(&text).map_err(|e| say("telling the child", &e))?;
    drop(stdin);
    let pid = child.id();
    let output = child.wait_with_output().map_err(|e| say("waiting", &e))?;
    sys::remove_limit(pid);
    if !output.status.success() {
        // A child that was killed could not clean up.
        let dir = job.settings.dir.join(format!("{}-{}-{pid}", job.engine, job.workload));
        let _ = std::fs::remove_dir_all(dir);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let last = stderr.trim().lines().last().unwrap_or("no message").to_owned();
        let memory = if job.settings.memory.is_some() && output.status.code().is_none() {
            " (the memory that --memory allows may have been too little for it)"
        } else {
            ""
        };
        return Err(format!("the measuring process ended with {}: {last}{memory}", output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| say("the record", &e))
}

/// The child's side: a job on standard input, a record on standard output.
pub fn be_child() -> Result<(), String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|e| e.to_string())?;
    let job: Job = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    let record = job::run(&job).map_err(|e| e.to_string())?;
    serde_json::to_writer(std::io::stdout().lock(), &record).map_err(|e| e.to_string())
}
