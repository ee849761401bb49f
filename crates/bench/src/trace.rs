//! Traces: operations of an application, one JSON object per line, that can be replayed on any
//! engine.
//!
//! A trace holds keys and the lengths of values, but no value data. Lines before `measure` only
//! prepare the database. `docs/BENCHMARKS.md` describes the format for programs that write traces.

use crate::engine::Result;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceOp {
    Put {
        family: usize,
        key: Vec<u8>,
        bytes: usize,
    },
    Delete {
        family: usize,
        key: Vec<u8>,
    },
    Get {
        family: usize,
        key: Vec<u8>,
    },
    /// Reads at most this many entries from the key on; one entry is a seek.
    Scan {
        family: usize,
        key: Vec<u8>,
        entries: usize,
    },
    /// Commits the next `n` puts and deletes together.
    Batch {
        n: usize,
    },
    /// Marks the end of the preparation.
    Measure,
}

/// A line of the file. Unknown fields are ignored.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct TraceLine {
    op: String,
    #[serde(skip_serializing_if = "is_zero")]
    family: usize,
    /// Key in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Key as text, instead of `key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<usize>,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// Largest value and largest number of families of a trace.
const VALUE_BYTES_MAX: usize = 1 << 30;
const FAMILIES_MAX: usize = 10_000;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    let digits = digits.filter(|d| d.len().is_multiple_of(2))?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

impl TraceOp {
    fn to_line(&self) -> TraceLine {
        let keyed = |op: &str, family: usize, key: &[u8]| TraceLine {
            op: op.into(),
            family,
            key: Some(hex(key)),
            ..TraceLine::default()
        };
        match self {
            TraceOp::Put { family, key, bytes } => {
                TraceLine { bytes: Some(*bytes), ..keyed("put", *family, key) }
            }
            TraceOp::Delete { family, key } => keyed("delete", *family, key),
            TraceOp::Get { family, key } => keyed("get", *family, key),
            TraceOp::Scan { family, key, entries } => {
                TraceLine { entries: Some(*entries), ..keyed("scan", *family, key) }
            }
            TraceOp::Batch { n } => {
                TraceLine { op: "batch".into(), n: Some(*n), ..TraceLine::default() }
            }
            TraceOp::Measure => TraceLine { op: "measure".into(), ..TraceLine::default() },
        }
    }
    /// Parses a line; `Err` describes what is wrong with it.
    fn parse(text: &str) -> std::result::Result<TraceOp, String> {
        let line: TraceLine = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let family = line.family;
        if family >= FAMILIES_MAX {
            return Err(format!("family {family}: at most {FAMILIES_MAX}"));
        }
        let key = || match (&line.key, &line.text) {
            (Some(hex), None) => {
                unhex(hex).ok_or_else(|| format!("`{hex}` is not pairs of hexadecimal digits"))
            }
            (None, Some(text)) => Ok(text.as_bytes().to_vec()),
            _ => Err("one of `key` (hexadecimal) and `text` is needed".to_owned()),
        };
        let number = |n: Option<usize>, name: &str| n.ok_or_else(|| format!("`{name}` is missing"));
        Ok(match line.op.as_str() {
            "put" => {
                let bytes = number(line.bytes, "bytes")?;
                if bytes > VALUE_BYTES_MAX {
                    return Err(format!("a value of {bytes} bytes: at most {VALUE_BYTES_MAX}"));
                }
                TraceOp::Put { family, key: key()?, bytes }
            }
            "delete" => TraceOp::Delete { family, key: key()? },
            "get" => TraceOp::Get { family, key: key()? },
            "scan" => {
                TraceOp::Scan { family, key: key()?, entries: line.entries.unwrap_or(1).max(1) }
            }
            "batch" => TraceOp::Batch { n: number(line.n, "n")? },
            "measure" => TraceOp::Measure,
            other => Err(format!("`{other}` is none of put, delete, get, scan, batch, measure"))?,
        })
    }
}

/// Writes a trace.
#[derive(Debug)]
pub struct TraceWriter(BufWriter<File>);

impl TraceWriter {
    pub fn create(path: &Path) -> Result<TraceWriter> {
        Ok(TraceWriter(BufWriter::new(
            File::create(path).map_err(|e| format!("{}: {e}", path.display()))?,
        )))
    }
    pub fn write(&mut self, op: &TraceOp) -> Result<()> {
        serde_json::to_writer(&mut self.0, &op.to_line())?;
        Ok(self.0.write_all(b"\n")?)
    }
    pub fn finish(mut self) -> Result<()> {
        Ok(self.0.flush()?)
    }
}

/// Reads a whole trace. Skips empty lines and lines that begin with `#`.
pub fn read(path: &Path) -> Result<Vec<TraceOp>> {
    let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut ops = Vec::new();
    for (n, line) in BufReader::new(file).lines().enumerate() {
        let line = line?;
        if !line.trim().is_empty() && !line.starts_with('#') {
            ops.push(
                TraceOp::parse(&line)
                    .map_err(|e| format!("{}, line {}: {e}", path.display(), n + 1))?,
            );
        }
    }
    Ok(ops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_lines_round_trip() {
        let key = vec![0, 255, 16];
        for op in [
            TraceOp::Put { family: 3, key: key.clone(), bytes: 100 },
            TraceOp::Delete { family: 0, key: key.clone() },
            TraceOp::Get { family: 0, key: key.clone() },
            TraceOp::Scan { family: 1, key, entries: 7 },
            TraceOp::Batch { n: 2 },
            TraceOp::Measure,
        ] {
            let text = serde_json::to_string(&op.to_line()).expect("a line is plain data");
            assert_eq!(TraceOp::parse(&text), Ok(op));
        }
        let by_text = TraceOp::parse(r#"{"op":"get","text":"moon","at":"12:00"}"#);
        assert_eq!(by_text, Ok(TraceOp::Get { family: 0, key: b"moon".to_vec() }));
    }

    #[test]
    fn bad_lines_are_reported() {
        for (line, why) in [
            ("{", "EOF"),
            (r#"{"op":"jump","key":"00"}"#, "none of put"),
            (r#"{"op":"get"}"#, "is needed"),
            (r#"{"op":"get","key":"0g"}"#, "hexadecimal"),
            (r#"{"op":"put","key":"00"}"#, "`bytes` is missing"),
            (r#"{"op":"put","key":"00","bytes":99999999999}"#, "at most"),
            (r#"{"op":"get","key":"00","family":1000000}"#, "at most"),
        ] {
            let error = TraceOp::parse(line).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
