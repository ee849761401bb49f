//! What an import asked of the database, as a trace that `perigee-bench trace replay` does again on
//! any engine.
//!
//! One JSON object on each line; `docs/BENCHMARKS.md` describes the format. Keys and lengths of
//! values, no data of values.

use crate::failure::{Failure, Result};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes a trace.
pub struct TraceWriter {
    path: PathBuf,
    file: BufWriter<File>,
    /// The puts of the batch that is being gathered.
    batch: Vec<Value>,
}

impl TraceWriter {
    /// An empty trace at `path`.
    pub fn create(path: &Path) -> Result<TraceWriter> {
        let file = File::create(path).map_err(|e| Failure::file("create", path, &e))?;
        Ok(TraceWriter { path: path.to_owned(), file: BufWriter::new(file), batch: Vec::new() })
    }
    /// An entry of the batch being gathered.
    pub fn put(&mut self, key: &[u8], bytes: usize) {
        self.batch.push(json!({"op": "put", "key": hex(key), "bytes": bytes}));
    }
    /// The entries gathered were committed together.
    pub fn commit(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.write_line(&json!({"op": "batch", "n": batch.len()}))?;
        batch.iter().try_for_each(|put| self.write_line(put))
    }
    /// A key was looked up.
    pub fn get(&mut self, key: &[u8]) -> Result<()> {
        self.write_line(&json!({"op": "get", "key": hex(key)}))
    }
    /// Everything is in the file.
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
