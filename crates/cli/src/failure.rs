//! The error type of all commands: the line on stderr, a hint for the user, and the exit code.
//! Independent of the individual commands.
//!
//! With `--json` the error is printed on stderr as one object `{"error":{...}}`.

use crate::text::{escape, printable, write_json};
use perigee::{Error, ErrorKind};
use serde_json::json;
use std::fmt::Display;
use std::io;
use std::io::Write as _;
use std::path::Path;

/// Exit code: the key was not found.
pub const EXIT_MISSING: u8 = 1;
/// Exit code: usage error or any other error.
pub const EXIT_ERROR: u8 = 2;
/// Exit code: corruption was found.
pub const EXIT_DAMAGED: u8 = 3;

/// Text of the operating system's error for too many open files (EMFILE), and the hint for it.
const EMFILE_TEXT: &str = "(os error 24)";
const EMFILE_HINT: &str =
    "a read-only open keeps all files of the database open: raise the limit (`ulimit -Hn`)";

/// The result of every step of a command.
pub type Result<T> = std::result::Result<T, Failure>;

/// Reason why a command ends early.
#[derive(Debug)]
pub enum Failure {
    /// The reader of stdout closed it (`perigee scan DB | head`): not an error, nothing is printed.
    OutputClosed,
    /// An error to report.
    Reported(Box<FailureReport>),
}

/// An error, split into the fields of the `--json` output.
#[derive(Debug)]
pub struct FailureReport {
    exit: u8,
    kind: &'static str,
    /// The whole line after `perigee: `.
    line: String,
    message: String,
    file: Option<String>,
    offset: Option<u64>,
    expected: Option<String>,
    got: Option<String>,
    hint: Option<String>,
}

impl Failure {
    fn plain(exit: u8, kind: &'static str, message: String) -> Failure {
        Failure::Reported(Box::new(FailureReport {
            exit,
            kind,
            line: message.clone(),
            message,
            file: None,
            offset: None,
            expected: None,
            got: None,
            hint: None,
        }))
    }

    /// Creates a usage error: the arguments are invalid.
    pub fn usage(message: impl Display) -> Failure {
        Self::plain(EXIT_ERROR, "usage", message.to_string())
    }

    /// Creates the error for what this build of the tool cannot do; `action` is such as "read SQLite
    /// databases".
    #[cfg(not(all(
        feature = "sqlite",
        feature = "parquet",
        feature = "lmdb",
        feature = "rocksdb"
    )))]
    pub fn missing_feature(action: &str, feature: &str) -> Failure {
        Self::usage(format!("this build cannot {action}: it lacks the feature `{feature}`")).hint(
            format!("build it with `cargo build --release -p perigeedb-cli --features {feature}`"),
        )
    }

    /// Creates the failure for a key that was not found.
    pub fn missing(key: &[u8]) -> Failure {
        Self::plain(EXIT_MISSING, "key not found", format!("no such key: {}", escape(key)))
    }

    /// Creates an I/O error for a file; `action` is a verb such as "open".
    pub fn file(action: &str, path: &Path, e: &io::Error) -> Failure {
        Self::plain(EXIT_ERROR, ErrorKind::Io.name(), format!("{action} {}: {e}", show_path(path)))
    }

    /// Creates an error with the given `kind` field.
    pub fn other(kind: &'static str, message: impl Display) -> Failure {
        Self::plain(EXIT_ERROR, kind, message.to_string())
    }

    /// Replaces the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Display) -> Failure {
        if let Failure::Reported(report) = &mut self {
            report.hint = Some(hint.to_string());
        }
        self
    }

    /// Replaces the hint if the error is that another process has the database locked.
    #[must_use]
    pub fn hint_if_locked(self, hint: impl Display) -> Failure {
        match &self {
            Failure::Reported(report) if report.kind == ErrorKind::Locked.name() => self.hint(hint),
            _ => self,
        }
    }

    /// Prints the error on stderr and returns the exit code.
    pub fn report(&self, json: bool) -> u8 {
        let Failure::Reported(report) = self else { return 0 };
        let mut text = if json { report.json_line() } else { report.text().into_bytes() };
        text.push(b'\n');
        // If stderr is closed, there is no other channel to report that.
        let _ = io::stderr().write_all(&text);
        report.exit
    }
}

impl FailureReport {
    /// Returns true if the error is corruption.
    pub fn is_damage(&self) -> bool {
        self.exit == EXIT_DAMAGED
    }

    fn text(&self) -> String {
        let line = format!("perigee: {}", printable(&self.line));
        match &self.hint {
            Some(hint) => format!("{line}\n  hint: {}", printable(hint)),
            None => line,
        }
    }

    fn json_line(&self) -> Vec<u8> {
        let mut line = Vec::new();
        // Writing to memory cannot fail.
        let _ = write_json(&self.json(), &mut line);
        line
    }

    fn json(&self) -> serde_json::Value {
        json!({"error": {
            "kind": self.kind, "message": self.message, "file": self.file, "offset": self.offset,
            "expected": self.expected, "got": self.got, "hint": self.hint, "exit": self.exit,
        }})
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Failure {
        Failure::Reported(Box::new(FailureReport {
            exit: if e.is_corruption() { EXIT_DAMAGED } else { EXIT_ERROR },
            kind: e.kind().name(),
            line: e.to_string(),
            message: e.message().to_owned(),
            file: e.file().map(str::to_owned),
            offset: e.offset(),
            expected: e.expected_value().map(str::to_owned),
            got: e.got_value().map(str::to_owned),
            hint: if e.message().contains(EMFILE_TEXT) {
                Some(EMFILE_HINT)
            } else {
                default_hint(e.kind())
            }
            .map(str::to_owned),
        }))
    }
}

/// Errors of tables name table, column, index and key in their message.
impl From<perigee_tables::Error> for Failure {
    fn from(e: perigee_tables::Error) -> Failure {
        use perigee_tables::ErrorKind as Kind;
        let damaged = e.kind() == Kind::Corruption;
        let exit = if damaged { EXIT_DAMAGED } else { EXIT_ERROR };
        let failure = Failure::plain(exit, e.kind().name(), e.to_string());
        match (e.kind(), e.engine().and_then(|e| default_hint(e.kind()))) {
            (Kind::NotFound, None) => failure.hint("`perigee tables DB` lists the tables"),
            (_, Some(hint)) => failure.hint(hint),
            (_, None) => failure,
        }
    }
}

/// Only errors of stdout are converted by `?`; errors of other files name the action and the path
/// ([`Failure::file`]).
impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::plain(EXIT_ERROR, ErrorKind::Io.name(), format!("write the output: {e}")),
        }
    }
}

/// Returns the default hint for an error of the engine.
fn default_hint(kind: ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::NotFound => {
            "check the path; `perigee import` and `perigee put` create a database"
        }
        ErrorKind::Locked => {
            "close the program that has it open (`fuser -v DB/LOCK` shows it); commands that only \
             read, such as `get`, `scan`, `export`, `stats` and `verify`, still work"
        }
        ErrorKind::Corruption => {
            "`perigee verify DB` lists all damage, `perigee dump DB FILE` shows what can still be \
             read; nothing was changed"
        }
        ErrorKind::FormatTooNew => {
            "use the version of Perigee that wrote it, or a newer one; nothing was changed"
        }
        ErrorKind::NoSpace => "free some space on that disk and run the same command again",
        ErrorKind::OutcomeUnknown => {
            "reopen the database and check whether the last write is there; repeat it if not"
        }
        ErrorKind::Poisoned => "fix the cause (disk, permissions), then run the command again",
        ErrorKind::Internal => "this is a bug in Perigee: please report it",
        _ => return None,
    })
}

/// Prints a clap error, the help or the version, and returns the exit code.
pub fn report_usage(e: &clap::Error) -> u8 {
    // The arguments did not parse, so `--json` is looked up in the raw arguments.
    if e.use_stderr() && std::env::args_os().any(|a| a == "--json") {
        return usage_failure(&e.render().to_string()).report(true);
    }
    let _ = e.print();
    e.exit_code().clamp(0, i32::from(u8::MAX)) as u8
}

/// Converts a rendered clap error: its message with all the arguments it names becomes the message,
/// its tips and the usage line become the hint.
fn usage_failure(rendered: &str) -> Failure {
    let (mut message, mut hints) = (Vec::new(), Vec::new());
    for paragraph in rendered.split("\n\n") {
        let flat = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(text) = flat.strip_prefix("error: ") {
            message.push(text.to_owned());
        } else if flat.starts_with("tip: ") || flat.starts_with("Usage: ") {
            hints.push(flat);
        } else if !flat.is_empty() && !flat.starts_with("For more information") {
            message.push(flat);
        }
    }
    match hints.is_empty() {
        true => Failure::usage(message.join(" ")),
        false => Failure::usage(message.join(" ")).hint(hints.join("; ")),
    }
}

/// Returns a path as one printable line.
pub fn show_path(path: &Path) -> String {
    escape(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report_of(f: Failure) -> FailureReport {
        match f {
            Failure::Reported(t) => *t,
            Failure::OutputClosed => panic!("expected an error report"),
        }
    }

    #[test]
    fn damage_exits_with_code_3_and_location() {
        let e = Error::corruption("block checksum differs")
            .at("000007.klog", 4096)
            .expected("0x1", "0x2");
        let t = report_of(e.into());
        assert_eq!(t.exit, EXIT_DAMAGED);
        assert!(t.text().starts_with(
            "perigee: corruption: block checksum differs (in 000007.klog at offset 4096)"
        ));
        assert!(t.text().contains("\n  hint: `perigee verify DB`"));
        let j = t.json();
        assert_eq!(j["error"]["kind"], "corruption");
        assert_eq!(j["error"]["offset"], 4096);
        assert_eq!(j["error"]["expected"], "0x1");
        assert_eq!(j["error"]["got"], "0x2");
    }

    #[test]
    fn usage_errors_keep_the_clap_message() {
        let t = report_of(usage_failure(
            "error: the following required arguments were not provided:\n  <DB>\n  <KEY>\n\nUsage: perigee get <DB> <KEY>\n\n\
             For more information, try '--help'.\n",
        ));
        assert_eq!(t.message, "the following required arguments were not provided: <DB> <KEY>");
        assert_eq!(t.hint.as_deref(), Some("Usage: perigee get <DB> <KEY>"));
        let t = report_of(usage_failure(
            "error: unexpected argument '--prefx' found\n\n  tip: a similar argument exists: '--prefix'\n\nUsage: perigee scan\n",
        ));
        assert_eq!(
            t.hint.as_deref(),
            Some("tip: a similar argument exists: '--prefix'; Usage: perigee scan")
        );
    }

    #[test]
    fn closed_pipe_is_not_an_error() {
        let e = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(Failure::from(e).report(false), 0);
    }

    #[test]
    fn messages_stay_on_one_line() {
        let t = report_of(Failure::usage("two\nlines").hint("do this"));
        assert_eq!(t.text(), "perigee: two lines\n  hint: do this");
        assert_eq!(report_of(Failure::missing(b"a\nb")).exit, EXIT_MISSING);
    }
}
