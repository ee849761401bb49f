//! Output on stdout, as text or as JSON, through one locked and buffered writer.

use crate::failure::Result;
use crate::text::write_json;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::Value;
use std::io::{BufWriter, StdoutLock, Write};

/// Writer for the output of a command.
pub struct Output {
    writer: BufWriter<StdoutLock<'static>>,
    /// True if `--json` was given.
    pub json: bool,
}

impl Output {
    /// Locks stdout for the rest of the process.
    pub fn new(json: bool) -> Output {
        Output { writer: BufWriter::with_capacity(64 << 10, std::io::stdout().lock()), json }
    }
    /// Writes a line of text.
    pub fn line(&mut self, text: impl AsRef<str>) -> Result<()> {
        self.writer.write_all(text.as_ref().as_bytes())?;
        Ok(self.writer.write_all(b"\n")?)
    }
    /// Writes bytes unchanged.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.writer.write_all(bytes)?)
    }
    /// Writes a JSON document on one line.
    pub fn json_line(&mut self, value: &Value) -> Result<()> {
        write_json(value, &mut self.writer)?;
        Ok(self.writer.write_all(b"\n")?)
    }
    /// Writes the JSON document with `--json`, otherwise the text.
    pub fn json_or_text(&mut self, value: &Value, text: impl AsRef<str>) -> Result<()> {
        if self.json { self.json_line(value) } else { self.line(text) }
    }
    /// Passes everything buffered to the operating system.
    pub fn flush(&mut self) -> Result<()> {
        Ok(self.writer.flush()?)
    }
}

impl Write for Output {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.writer.write(buf)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.writer.flush()
    }
}

/// Returns a table with these columns. A name that starts with `>` denotes a right-aligned number.
pub fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(columns.iter().map(|c| c.trim_start_matches('>')));
    for (i, name) in columns.iter().enumerate() {
        if let Some(column) = table.column_mut(i) {
            column.set_padding((0, 2));
            if name.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table
}
