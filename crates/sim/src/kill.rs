//! `perigee-sim kill`: a real process on real files, killed with SIGKILL at random times and (with strace) at
//! chosen system calls, twice or more; then every acknowledged commit must be there.

use crate::child;
use crate::contents::read_all;
use crate::engine::clean;
use crate::ledger::{Ledger, Owed, Told};
use crate::rng::Rng;
use crate::runner::{Case, Common, conclude, held, run_cases};
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
    pub common: Common,
    /// Where the databases are made (default: the system's directory for temporary files).
    #[arg(long)]
    pub dir: Option<PathBuf>,
}

/// System calls at which the process is killed, and up to which occurrence.
const CALLS: [(&str, u64); 6] = [
    ("write,writev,pwrite64,pwritev", 300),
    ("fsync,fdatasync", 120),
    ("rename,renameat,renameat2", 3),
    ("unlink,unlinkat", 12),
    ("openat", 60),
    ("ftruncate,fallocate", 3),
];
/// A process that outlives this, from when it runs, was not killed by its system call.
const PATIENCE: Duration = Duration::from_millis(700);
/// Longest wait for what must happen however busy the machine is: a process that starts, or one that dies. After it the case
/// fails.
const LAST_RESORT: Duration = Duration::from_secs(600);

/// Runs the command; whether all went well.
pub fn run(args: &Args) -> bool {
    let strace = strace_works();
    if !strace {
        println!("strace is not there (or may not trace): killing at random times only");
    }
    let base = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let tally = run_cases("kill", &args.common, 0, args.common.numbers(u64::MAX), |case| {
        one_case(case, &base, strace)
    });
    conclude(&tally, if args.common.case.is_some() { 1 } else { args.common.cases })
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

/// What the child said.
#[derive(Debug, Default)]
struct Heard {
    pid: Option<u32>,
    /// Commits acknowledged, for each writer: as many as the highest number and one.
    acked: Vec<usize>,
    open: bool,
    wrong: Option<String>,
}

impl Heard {
    fn line(&mut self, line: &str) {
        let mut words = line.split(' ');
        let word = words.next();
        let mut number = || words.next().and_then(|w| w.parse::<usize>().ok());
        match word {
            Some("p") => self.pid = number().and_then(|n| u32::try_from(n).ok()),
            Some("o") => self.open = true,
            Some("a") => {
                if let (Some(writer), Some(n)) = (number(), number()) {
                    self.acked[writer] = n + 1;
                }
            }
            Some("s") => {
                if let (Some(writer), Some(start)) = (number(), number()) {
                    if start < self.acked[writer] {
                        self.wrong = Some(format!(
                            "writer {writer}: {} commits were acknowledged, after a crash there were {start}",
                            self.acked[writer]
                        ));
                    }
                    self.acked[writer] = start;
                }
            }
            Some("e") => self.wrong = Some(format!("the child failed: {line}")),
            _ => {}
        }
    }
}

fn one_case(case: &Case, base: &Path, strace: bool) -> Result<(), String> {
    let mut rng = Rng::new(case.mixed());
    let dir = base.join(format!("perigee-kill-{}-{}", std::process::id(), case.number));
    child::remove(&dir);
    let writers = rng.between(1, 4);
    let heard = Arc::new(Mutex::new(Heard { acked: vec![0; writers], ..Heard::default() }));
    let crashes = rng.pick(&[2, 2, 3]);
    for _ in 0..crashes {
        let at_call = strace && rng.percent(60);
        one_life(case, &dir, &heard, &mut rng, writers, at_call)?;
        if let Some(wrong) = held(&heard).wrong.take() {
            return Err(format!("{wrong} (left in {})", dir.display()));
        }
    }
    let acked = held(&heard).acked.clone();
    case.count("commits acknowledged", acked.iter().sum::<usize>() as u64);
    check(case.mixed(), &dir, &acked).map_err(|e| format!("{e} (left in {})", dir.display()))?;
    child::remove(&dir);
    Ok(())
}

/// Starts the child and sees it die.
fn one_life(
    case: &Case,
    dir: &Path,
    heard: &Arc<Mutex<Heard>>,
    rng: &mut Rng,
    writers: usize,
    at_call: bool,
) -> Result<(), String> {
    let call = rng.pick(&CALLS);
    let when = rng.log_uniform(call.1);
    {
        let mut heard = held(heard);
        (heard.pid, heard.open) = (None, false);
    }
    let mut process = spawn(case, dir, writers, at_call.then_some((call.0, when)))?;
    let listener = listen(&mut process, heard)?;
    let life = if at_call {
        case.count("killed at a system call", 1);
        PATIENCE
    } else {
        case.count("killed at a random time", 1);
        Duration::from_micros(rng.log_uniform(400_000))
    };
    let (mut probe, mut probed) = (!at_call, Ok(()));
    let mut end = (!at_call).then(|| Instant::now() + life);
    let started = Instant::now();
    while process.try_wait().map_err(|e| e.to_string())?.is_none() {
        // Under strace its life begins when it has said which process it is: before, only strace could be killed, and it would
        // go on without.
        if end.is_none() && held(heard).pid.is_some() {
            end = Some(Instant::now() + life);
        }
        if end.map_or(started.elapsed() > LAST_RESORT, |end| Instant::now() >= end) {
            break;
        }
        if probe && held(heard).open {
            (probe, probed) = (false, second_open(case, dir));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let pid = held(heard).pid;
    kill(&mut process, pid)?;
    let _ = process.wait();
    listener.join().map_err(|_| "the listener panicked".to_string())?;
    probed
}

fn spawn(case: &Case, dir: &Path, writers: usize, call: Option<(&str, u64)>) -> Result<Child, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = match call {
        Some((calls, when)) => {
            let mut strace = Command::new("strace");
            strace.args(["-f", "--seccomp-bpf", "-o", "/dev/null", "-e", &format!("trace={calls}")]);
            strace.args(["-e", &format!("inject={calls}:signal=SIGKILL:when={when}")]).arg(program);
            strace
        }
        None => Command::new(program),
    };
    command.arg("kill-child").arg("--dir").arg(dir);
    command.args(["--seed", &case.mixed().to_string(), "--writers", &writers.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().map_err(|e| format!("starting the child: {e}"))
}

fn listen(process: &mut Child, heard: &Arc<Mutex<Heard>>) -> Result<std::thread::JoinHandle<()>, String> {
    let out = process.stdout.take().ok_or("the child has no output")?;
    let heard = heard.clone();
    Ok(std::thread::spawn(move || {
        for line in BufReader::new(out).lines() {
            match line {
                Ok(line) => held(&heard).line(&line),
                Err(_) => break,
            }
        }
    }))
}

/// Kills the child: itself, or under strace the traced process, whose end strace follows. Strace ends when that one has let go
/// of its files; if strace were killed first, the next open might find them locked.
fn kill(process: &mut Child, pid: Option<u32>) -> Result<(), String> {
    let is_over = |process: &mut Child| process.try_wait().map(|status| status.is_some()).unwrap_or(false);
    let mut done = Ok(());
    if let Some(pid) = pid.filter(|pid| *pid != process.id() && !is_over(process)) {
        let mut kill = Command::new("kill");
        let _ = kill.args(["-9", &pid.to_string()]).stderr(Stdio::null()).status();
        let killed = Instant::now();
        while !is_over(process) {
            if killed.elapsed() > LAST_RESORT {
                done = Err(format!("process {pid} does not die"));
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let _ = process.kill();
    done
}

/// While the child lives, nobody else gets in.
fn second_open(case: &Case, dir: &Path) -> Result<(), String> {
    match Db::open(dir, child::options(case.mixed())) {
        Err(e) if e.kind() == ErrorKind::Locked => {
            case.count("second opens refused", 1);
            Ok(())
        }
        Err(e) => Err(format!("a second open gave {e}")),
        Ok(_) => Err("a second open succeeded while the child lived".into()),
    }
}

/// Everything acknowledged is there, whole, in all families; twice.
fn check(seed: u64, dir: &Path, acked: &[usize]) -> Result<(), String> {
    let mut ledger = Ledger::new(acked.len());
    // All begin before any ends: the pipe does not tell in which order the writers took turns.
    for (writer, &acked) in acked.iter().enumerate() {
        for number in 0..=acked {
            ledger.begin(writer, child::puts(seed, writer, number));
        }
    }
    for (writer, &acked) in acked.iter().enumerate() {
        for number in 0..acked {
            ledger.end(writer, number, Told::Acked, true, 0);
        }
        ledger.end(writer, acked, Told::Unknown, false, 0);
    }
    for _ in 0..2 {
        let db = Db::open(dir, child::options(seed)).map_err(|e| format!("open: {e}"))?;
        let found = read_all(&db).map_err(|e| format!("reading: {e}"))?;
        ledger.check(&found, Owed::Acked)?;
        let report = db.verify().map_err(|e| format!("verify: {e}"))?;
        clean(&report).map_err(|e| format!("verify found: {e}"))?;
        db.close().map_err(|e| format!("close: {e}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_commit_is_heard() {
        let mut heard = Heard { acked: vec![0, 0], ..Heard::default() };
        for line in ["p 17", "s 0 0", "s 1 0", "o", "a 1 0", "a 1 1", "s 1 2"] {
            heard.line(line);
        }
        assert!(heard.open && heard.pid == Some(17) && heard.wrong.is_none());
        assert_eq!(heard.acked, [0, 2]);
        heard.line("s 1 1");
        assert!(heard.wrong.is_some());
    }
}
