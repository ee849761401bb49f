//! Records the operations of an import as a trace that `perigee-bench trace replay` can run on any
//! engine.
//!
//! One JSON object per line; `docs/BENCHMARKS.md` describes the format. A trace contains keys and
//! value lengths, but no values.

use crate::failure::{Failure, Result};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes a trace.
pub struct TraceWriter {
    path: PathBuf,
    file: BufWriter<File>,
    /// The puts of the current batch.
    batch: Vec<Value>,
}

impl TraceWriter {
    /// Creates an empty trace at `path`.
    pub fn create(path: &Path) -> Result<TraceWriter> {
        let file = File::create(path).map_err(|e| Failure::file("create", path, &e))?;
        Ok(TraceWriter { path: path.to_owned(), file: BufWriter::new(file), batch: Vec::new() })
    }
    /// Adds a put to the current batch.
    pub fn put(&mut self, key: &[u8], bytes: usize) {
        self.batch.push(json!({"op": "put", "key": hex(key), "bytes": bytes}));
    }
    /// Records the commit of the current batch.
    pub fn commit(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.write_line(&json!({"op": "batch", "n": batch.len()}))?;
        batch.iter().try_for_each(|put| self.write_line(put))
    }
    /// Records the lookup of a key.
    pub fn get(&mut self, key: &[u8]) -> Result<()> {
        self.write_line(&json!({"op": "get", "key": hex(key)}))
    }
    /// Writes everything buffered to the file.
    pub fn finish(mut self) -> Result<()> {
        self.file.flush().map_err(|e| Failure::file("write", &self.path, &e))
    }
    fn write_line(&mut self, line: &Value) -> Result<()> {
        writeln!(self.file, "{line}").map_err(|e| Failure::file("write", &self.path, &e))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
