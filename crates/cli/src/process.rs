//! What the operating system says about a process: peak memory, bytes written (Linux only;
//! elsewhere nothing is known); and how many files it may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::fs;

/// Facts about a process; `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// Most memory it had resident, in bytes.
    pub peak_bytes: Option<u64>,
    /// Bytes it caused to be sent to storage.
    pub written_bytes: Option<u64>,
}

/// Raises the limit of open files as far as this process may: a read-only open holds all files of a
/// database, so that a writer beside it may remove them.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // A failure shows when a file cannot be opened.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Looks at a process by its number, or at this one (`self`).
pub fn read_usage(pid: &str) -> ProcessUsage {
    let field = |file: &str, name: &str| {
        parse_number(&fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?, name)
    };
    ProcessUsage {
        peak_bytes: field("status", "VmHWM:").map(|kib| kib * 1024),
        written_bytes: field("io", "write_bytes:"),
    }
}

/// The number behind a name at the start of a line.
fn parse_number(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

impl ProcessUsage {
    /// For `--json`.
    pub fn json(self) -> Value {
        json!({"peak_memory_bytes": self.peak_bytes, "written_bytes": self.written_bytes})
    }
    /// What [`Process::json`] wrote.
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
