//! Resource usage of a process (peak memory and bytes written; Linux only, unknown elsewhere), and
//! the limit of open files.

use serde_json::{Value, json};
use std::fs;

/// Resource usage of a process; `None` means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// Peak resident memory in bytes.
    pub peak_bytes: Option<u64>,
    /// Bytes it caused to be written to storage.
    pub written_bytes: Option<u64>,
}

/// Raises the soft limit of open files to the hard limit: a read-only open keeps all files of a
/// database open, so that a concurrent writer may remove them.
#[cfg(unix)]
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If this fails, a later open of a file reports the error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Does nothing: Windows has no limit of practical use.
#[cfg(not(unix))]
pub fn raise_file_limit() {}

/// Returns the usage of the process with this id, or of this process (`self`).
pub fn read_usage(pid: &str) -> ProcessUsage {
    let field = |file: &str, name: &str| {
        parse_number(&fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?, name)
    };
    ProcessUsage {
        peak_bytes: field("status", "VmHWM:").map(|kib| kib * 1024),
        written_bytes: field("io", "write_bytes:"),
    }
}

/// Returns the number that follows `name` at the start of a line.
fn parse_number(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

impl ProcessUsage {
    /// Returns the usage as JSON, for `--json`.
    pub fn json(self) -> Value {
        json!({"peak_memory_bytes": self.peak_bytes, "written_bytes": self.written_bytes})
    }
    /// Parses the output of [`ProcessUsage::json`].
    pub fn from_json(value: &Value) -> ProcessUsage {
        ProcessUsage {
            peak_bytes: value["peak_memory_bytes"].as_u64(),
            written_bytes: value["written_bytes"].as_u64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed() {
        let text = "Name:\tperigee\nVmHWM:\t  1234 kB\nwrite_bytes: 7\n";
        assert_eq!(parse_number(text, "VmHWM:"), Some(1234));
        assert_eq!(parse_number(text, "write_bytes:"), Some(7));
        assert_eq!(parse_number(text, "VmPeak:"), None);
        let p = ProcessUsage { peak_bytes: Some(5), written_bytes: None };
        assert_eq!(ProcessUsage::from_json(&p.json()), p);
    }
}
