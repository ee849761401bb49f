//! A temporary directory per test, functions that run the tool in it, and random numbers.
#![allow(dead_code)]

use serde_json::Value;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory that is removed when the test succeeds.
pub struct TestDir {
    root: PathBuf,
}

/// Result of a run of the tool.
pub struct RunResult {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl TestDir {
    pub fn new() -> TestDir {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let root =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{}-{n}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        TestDir { root }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Writes a file, creating its parent directories. Returns its path.
    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perigee"));
        command.current_dir(&self.root);
        command
    }

    pub fn run(&self, args: &[&str]) -> RunResult {
        self.run_with(args, b"")
    }

    pub fn run_with(&self, args: &[&str], stdin: &[u8]) -> RunResult {
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        self.run_os(&args, stdin)
    }

    pub fn run_os(&self, args: &[&OsStr], stdin: &[u8]) -> RunResult {
        let mut child = self
            .command()
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Fails if the command does not read its stdin, which is not an error.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        let run = RunResult {
            code: status.code().unwrap_or(-1),
            stdout,
            stderr: String::from_utf8_lossy(&stderr).into(),
        };
        assert!(
            !run.stderr.contains("panicked") && !run.stderr.contains("internal error"),
            "{args:?}: {}",
            run.stderr
        );
        run
    }

    /// Runs a command that must succeed. Returns its stdout as text.
    pub fn run_ok(&self, args: &[&str]) -> String {
        let run = self.run(args);
        assert_eq!(run.code, 0, "{args:?}: {}", run.stderr);
        String::from_utf8(run.stdout).unwrap()
    }

    /// Runs a command with `--json` that must succeed. Returns every line of its stdout as JSON.
    pub fn run_json(&self, args: &[&str]) -> Vec<Value> {
        let text = self.run_ok(&[args, &["--json"]].concat());
        text.lines()
            .map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{args:?}: {e}: {l}")))
            .collect()
    }

    /// Runs a command that must fail with this exit code. Its message must contain `word` and be
    /// one line, optionally followed by a hint. Runs it again with `--json` and returns the error
    /// object.
    pub fn run_failing(&self, code: i32, word: &str, args: &[&str]) -> Value {
        let run = self.run(args);
        assert_eq!(run.code, code, "{args:?}: {}", run.stderr);
        assert!(
            run.stderr.starts_with("perigee: ") || run.stderr.starts_with("error: "),
            "{args:?}: {}",
            run.stderr
        );
        assert!(run.stderr.contains(word), "{args:?}: {} lacks {word:?}", run.stderr);
        if run.stderr.starts_with("perigee: ") {
            assert!(run.stderr.lines().count() <= 2, "{args:?}: {}", run.stderr);
        }
        let run = self.run(&[args, &["--json"]].concat());
        assert_eq!(run.code, code, "{args:?} --json: {}", run.stderr);
        let line = run.stderr.lines().last().unwrap();
        let value: Value =
            serde_json::from_str(line).unwrap_or_else(|e| panic!("{args:?}: {e}: {line}"));
        assert!(
            value["error"]["kind"].is_string() && value["error"]["message"].is_string(),
            "{value}"
        );
        value["error"].clone()
    }

    /// Returns the names of the files in a directory below the root, sorted.
    pub fn file_names(&self, dir: &str) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.path(dir))
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Flips one bit of a file.
    pub fn flip_bit(&self, name: &str, offset: usize) {
        let path = self.path(name);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[offset] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }
}

/// Returns the columns of a table, as described by `tables --json`, in the notation of `--columns`.
pub fn format_columns(table: &Value) -> String {
    let column = |c: &Value| {
        let nullable = if c["nullable"] == true { "?" } else { "" };
        format!("{}:{}{nullable}", c["name"].as_str().unwrap(), c["type"].as_str().unwrap())
    };
    table["columns"].as_array().unwrap().iter().map(column).collect::<Vec<_>>().join(",")
}

/// A linear congruential generator.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 29
    }
    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
