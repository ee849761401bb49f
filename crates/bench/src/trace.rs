//! Traces: the operations of an application, one JSON object on each line, to be done again on any engine.
//!
//! A trace holds keys and the lengths of values, no data of values. The lines above `measure` only prepare the database.
//! `docs/BENCHMARKS.md` describes the format for whoever writes one.

use crate::engine::Result;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
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
    /// At most so many entries from the key on; one is a seek.
    Scan {
        family: usize,
        key: Vec<u8>,
        entries: usize,
    },
    /// The next `n` puts and deletes are committed together.
    Batch {
        n: usize,
    },
    /// Everything before only prepared the database.
    Measure,
}

/// A line as it is in the file. What it does not know is ignored.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Line {
    op: String,
    #[serde(skip_serializing_if = "is_zero")]
    family: usize,
    /// In hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Instead of `key`, as it is.
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

/// Largest value of a trace, and most families.
const MOST_BYTES: usize = 1 << 30;
const MOST_FAMILIES: usize = 10_000;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    let digits = digits.filter(|d| d.len().is_multiple_of(2))?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

impl Op {
    fn line(&self) -> Line {
        let keyed = |op: &str, family: usize, key: &[u8]| Line {
            op: op.into(),
            family,
            key: Some(hex(key)),
            ..Line::default()
        };
        match self {
            Op::Put { family, key, bytes } => Line { bytes: Some(*bytes), ..keyed("put", *family, key) },
            Op::Delete { family, key } => keyed("delete", *family, key),
            Op::Get { family, key } => keyed("get", *family, key),
            Op::Scan { family, key, entries } => {
                Line { entries: Some(*entries), ..keyed("scan", *family, key) }
            }
            Op::Batch { n } => Line { op: "batch".into(), n: Some(*n), ..Line::default() },
            Op::Measure => Line { op: "measure".into(), ..Line::default() },
        }
    }
    /// The operation of a line, or what is wrong with it.
    fn parse(text: &str) -> std::result::Result<Op, String> {
        let line: Line = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let family = line.family;
        if family >= MOST_FAMILIES {
            return Err(format!("family {family}: at most {MOST_FAMILIES}"));
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
                if bytes > MOST_BYTES {
                    return Err(format!("a value of {bytes} bytes: at most {MOST_BYTES}"));
                }
                Op::Put { family, key: key()?, bytes }
            }
            "delete" => Op::Delete { family, key: key()? },
            "get" => Op::Get { family, key: key()? },
            "scan" => Op::Scan { family, key: key()?, entries: line.entries.unwrap_or(1).max(1) },
            "batch" => Op::Batch { n: number(line.n, "n")? },
            "measure" => Op::Measure,
            other => Err(format!("`{other}` is none of put, delete, get, scan, batch, measure"))?,
        })
    }
}

/// Writes a trace.
#[derive(Debug)]
pub struct Writer(BufWriter<File>);

impl Writer {
    pub fn create(path: &Path) -> Result<Writer> {
        Ok(Writer(BufWriter::new(File::create(path).map_err(|e| format!("{}: {e}", path.display()))?)))
    }
    pub fn write(&mut self, op: &Op) -> Result<()> {
        serde_json::to_writer(&mut self.0, &op.line())?;
        Ok(self.0.write_all(b"\n")?)
    }
    pub fn finish(mut self) -> Result<()> {
        Ok(self.0.flush()?)
    }
}

/// Reads a whole trace. Empty lines and lines that begin with `#` are nothing.
pub fn read(path: &Path) -> Result<Vec<Op>> {
    let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut ops = Vec::new();
    for (n, line) in BufReader::new(file).lines().enumerate() {
        let line = line?;
        if !line.trim().is_empty() && !line.starts_with('#') {
            ops.push(Op::parse(&line).map_err(|e| format!("{}, line {}: {e}", path.display(), n + 1))?);
        }
    }
    Ok(ops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_becomes_the_operation_that_it_was() {
        let key = vec![0, 255, 16];
        for op in [
            Op::Put { family: 3, key: key.clone(), bytes: 100 },
            Op::Delete { family: 0, key: key.clone() },
            Op::Get { family: 0, key: key.clone() },
            Op::Scan { family: 1, key, entries: 7 },
            Op::Batch { n: 2 },
            Op::Measure,
        ] {
            let text = serde_json::to_string(&op.line()).expect("a line is plain data");
            assert_eq!(Op::parse(&text), Ok(op));
        }
        let by_text = Op::parse(r#"{"op":"get","text":"moon","at":"12:00"}"#);
        assert_eq!(by_text, Ok(Op::Get { family: 0, key: b"moon".to_vec() }));
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        for (line, why) in [
            ("{", "EOF"),
            (r#"{"op":"jump","key":"00"}"#, "none of put"),
            (r#"{"op":"get"}"#, "is needed"),
            (r#"{"op":"get","key":"0g"}"#, "hexadecimal"),
            (r#"{"op":"put","key":"00"}"#, "`bytes` is missing"),
            (r#"{"op":"put","key":"00","bytes":99999999999}"#, "at most"),
            (r#"{"op":"get","key":"00","family":1000000}"#, "at most"),
        ] {
            let error = Op::parse(line).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
