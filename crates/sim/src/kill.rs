//! `perigee-sim kill`: a real process on real files is killed with SIGKILL at random times and
//! (with strace) at chosen system calls, at least twice. Afterwards every acknowledged commit must
//! be there.

use crate::contents::read_all;
use crate::engine_target::check_report;
use crate::kill_child;
use crate::ledger::{CommitOutcome, Ledger, RequiredCommits};
use crate::rng::Rng;
use crate::runner::{Case, CommonArgs, lock_mutex, print_summary, run_cases};
use perigee::{Db, ErrorKind};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Options of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Shared options.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Directory in which the databases are created (default: the system's directory for temporary
    /// files).
    #[arg(long)]
    pub dir: Option<PathBuf>,
}

/// System calls at which the process is killed, with the highest occurrence to try.
const KILL_SYSCALLS: [(&str, u64); 6] = [
    ("write,writev,pwrite64,pwritev", 300),
    ("fsync,fdatasync", 120),
    ("rename,renameat,renameat2", 3),
    ("unlink,unlinkat", 12),
    ("openat", 60),
    ("ftruncate,fallocate", 3),
];
/// Time after which a running process counts as not killed by its system call.
const SYSCALL_KILL_TIMEOUT: Duration = Duration::from_millis(700);
/// Longest wait, on a machine under any load, for a process to start or to die. After it the case
/// fails.
const HANG_TIMEOUT: Duration = Duration::from_secs(600);

/// Runs the command. Returns true if no case failed.
pub fn run(args: &Args) -> bool {
    let strace = strace_works();
    if !strace {
        println!("strace is not installed or not permitted: killing at random times only");
    }
    let base = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let tally = run_cases("kill", &args.common, 0, args.common.case_limit(u64::MAX), |case| {
        run_case(case, &base, strace)
    });
    print_summary(&tally, if args.common.case.is_some() { 1 } else { args.common.cases })
}

fn strace_works() -> bool {
    let mut strace = Command::new("strace");
    strace.args([
        "-f",
        "--seccomp-bpf",
        "-o",
        "/dev/null",
        "-e",
        "trace=fsync",
        "-e",
        "inject=fsync:signal=SIGKILL:when=9",
    ]);
    strace.arg("true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    strace.status().is_ok_and(|status| status.success())
}

/// What the child reported.
#[derive(Debug, Default)]
struct ChildReport {
    pid: Option<u32>,
    /// Number of acknowledged commits of each writer: the highest number plus one.
    acked: Vec<usize>,
    opened: bool,
    failure: Option<String>,
}

impl ChildReport {
    fn parse_line(&mut self, line: &str) {
        let mut words = line.split(' ');
        let word = words.next();
        let mut number = || words.next().and_then(|w| w.parse::<usize>().ok());
        match word {
            Some("p") => self.pid = number().and_then(|n| u32::try_from(n).ok()),
            Some("o") => self.opened = true,
            Some("a") => {
                if let (Some(writer), Some(n)) = (number(), number()) {
                    self.acked[writer] = n + 1;
                }
            }
            Some("s") => {
                if let (Some(writer), Some(start)) = (number(), number()) {
                    if start < self.acked[writer] {
                        self.failure = Some(format!(
                            "writer {writer}: {} commits were acknowledged, but {start} were \
                             found after a crash",
                            self.acked[writer]
                        ));
                    }
                    self.acked[writer] = start;
                }
            }
            Some("e") => self.failure = Some(format!("the child failed: {line}")),
            _ => {}
        }
    }
}

fn run_case(case: &Case, base: &Path, strace: bool) -> Result<(), String> {
    let mut rng = Rng::new(case.case_seed());
    let dir = base.join(format!("perigee-kill-{}-{}", std::process::id(), case.number));
    kill_child::remove_dir(&dir);
    let writers = rng.between(1, 4);
    let report =
        Arc::new(Mutex::new(ChildReport { acked: vec![0; writers], ..ChildReport::default() }));
    let crashes = rng.pick(&[2, 2, 3]);
    for _ in 0..crashes {
        let at_call = strace && rng.percent(60);
        run_and_kill(case, &dir, &report, &mut rng, writers, at_call)?;
        if let Some(wrong) = lock_mutex(&report).failure.take() {
            return Err(format!("{wrong} (left in {})", dir.display()));
        }
    }
    let acked = lock_mutex(&report).acked.clone();
    case.count("commits acknowledged", acked.iter().sum::<usize>() as u64);
    check_recovered(case.case_seed(), &dir, &acked)
        .map_err(|e| format!("{e} (left in {})", dir.display()))?;
    kill_child::remove_dir(&dir);
    Ok(())
}

/// Starts the child and kills it.
fn run_and_kill(
    case: &Case,
    dir: &Path,
    report: &Arc<Mutex<ChildReport>>,
    rng: &mut Rng,
    writers: usize,
    at_call: bool,
) -> Result<(), String> {
    let call = rng.pick(&KILL_SYSCALLS);
    let when = rng.log_uniform(call.1);
    {
        let mut report = lock_mutex(report);
        (report.pid, report.opened) = (None, false);
    }
    let mut process = spawn(case, dir, writers, at_call.then_some((call.0, when)))?;
    let listener = spawn_output_reader(&mut process, report)?;
    let run_time = if at_call {
        case.count("killed at a system call", 1);
        SYSCALL_KILL_TIMEOUT
    } else {
        case.count("killed at a random time", 1);
        Duration::from_micros(rng.log_uniform(400_000))
    };
    let (mut probe, mut probed) = (!at_call, Ok(()));
    let mut end = (!at_call).then(|| Instant::now() + run_time);
    let started = Instant::now();
    while process.try_wait().map_err(|e| e.to_string())?.is_none() {
        // Under strace the child may be killed only after it has reported its process id: before
        // that, only strace could be killed, and the child would go on without it.
        if end.is_none() && lock_mutex(report).pid.is_some() {
            end = Some(Instant::now() + run_time);
        }
        if end.map_or(started.elapsed() > HANG_TIMEOUT, |end| Instant::now() >= end) {
            break;
        }
        if probe && lock_mutex(report).opened {
            (probe, probed) = (false, check_second_open_refused(case, dir));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let pid = lock_mutex(report).pid;
    kill(&mut process, pid)?;
    let _ = process.wait();
    listener.join().map_err(|_| "the listener panicked".to_string())?;
    probed
}

fn spawn(
    case: &Case,
    dir: &Path,
    writers: usize,
    call: Option<(&str, u64)>,
) -> Result<Child, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = match call {
        Some((calls, when)) => {
            let mut strace = Command::new("strace");
            strace.args([
                "-f",
                "--seccomp-bpf",
                "-o",
                "/dev/null",
                "-e",
                &format!("trace={calls}"),
            ]);
            strace.args(["-e", &format!("inject={calls}:signal=SIGKILL:when={when}")]).arg(program);
            strace
        }
        None => Command::new(program),
    };
    command.arg("kill-child").arg("--dir").arg(dir);
    command.args(["--seed", &case.case_seed().to_string(), "--writers", &writers.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().map_err(|e| format!("starting the child: {e}"))
}

fn spawn_output_reader(
    process: &mut Child,
    report: &Arc<Mutex<ChildReport>>,
) -> Result<std::thread::JoinHandle<()>, String> {
    let out = process.stdout.take().ok_or("the child has no output")?;
    let report = report.clone();
    Ok(std::thread::spawn(move || {
        for line in BufReader::new(out).lines() {
            match line {
                Ok(line) => lock_mutex(&report).parse_line(&line),
                Err(_) => break,
            }
        }
    }))
}

/// Kills the child directly or, under strace, the traced process; strace then exits. Strace exits
/// after that process has closed its files; if strace were killed first, the next open might find
/// them locked.
fn kill(process: &mut Child, pid: Option<u32>) -> Result<(), String> {
    let is_over =
        |process: &mut Child| process.try_wait().map(|status| status.is_some()).unwrap_or(false);
    let mut done = Ok(());
    if let Some(pid) = pid.filter(|pid| *pid != process.id() && !is_over(process)) {
        let mut kill = Command::new("kill");
        let _ = kill.args(["-9", &pid.to_string()]).stderr(Stdio::null()).status();
        let killed = Instant::now();
        while !is_over(process) {
            if killed.elapsed() > HANG_TIMEOUT {
                done = Err(format!("process {pid} does not die"));
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let _ = process.kill();
    done
}

/// Checks that a second open is refused while the child runs.
fn check_second_open_refused(case: &Case, dir: &Path) -> Result<(), String> {
    match Db::open(dir, kill_child::options(case.case_seed())) {
        Err(e) if e.kind() == ErrorKind::Locked => {
            case.count("second opens refused", 1);
            Ok(())
        }
        Err(e) => Err(format!("a second open failed with the wrong error: {e}")),
        Ok(_) => Err("a second open succeeded while the child was running".into()),
    }
}

/// Checks twice that every acknowledged commit is there, complete, in all column families.
fn check_recovered(seed: u64, dir: &Path, acked: &[usize]) -> Result<(), String> {
    let mut ledger = Ledger::new(acked.len());
    // All attempts begin before any ends: the pipe does not show in which order the writers ran.
    for (writer, &acked) in acked.iter().enumerate() {
        for number in 0..=acked {
            ledger.begin_commit(writer, kill_child::commit_puts(seed, writer, number));
        }
    }
    for (writer, &acked) in acked.iter().enumerate() {
        for number in 0..acked {
            ledger.end_commit(writer, number, CommitOutcome::Acked, true, 0);
        }
        ledger.end_commit(writer, acked, CommitOutcome::Unknown, false, 0);
    }
    for _ in 0..2 {
        let db = Db::open(dir, kill_child::options(seed)).map_err(|e| format!("open: {e}"))?;
        let found = read_all(&db).map_err(|e| format!("reading: {e}"))?;
        ledger.check_recovered(&found, RequiredCommits::Acked)?;
        let report = db.admin().verify().map_err(|e| format!("verify: {e}"))?;
        check_report(&report).map_err(|e| format!("verify found: {e}"))?;
        db.close().map_err(|e| format!("close: {e}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_commit_number_is_reported() {
        let mut report = ChildReport { acked: vec![0, 0], ..ChildReport::default() };
        for line in ["p 17", "s 0 0", "s 1 0", "o", "a 1 0", "a 1 1", "s 1 2"] {
            report.parse_line(line);
        }
        assert!(report.opened && report.pid == Some(17) && report.failure.is_none());
        assert_eq!(report.acked, [0, 2]);
        report.parse_line("s 1 1");
        assert!(report.failure.is_some());
    }
}
