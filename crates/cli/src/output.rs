//! What goes to stdout: one locked, buffered writer, as text or as JSON. Knows no command.

use crate::failure::Result;
use crate::text::write_json;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::Value;
use std::io::{BufWriter, StdoutLock, Write};

/// The output of a command.
pub struct Output {
    writer: BufWriter<StdoutLock<'static>>,
    /// Whether `--json` was given.
    pub json: bool,
}

impl Output {
    /// Takes stdout for the rest of the process.
    pub fn new(json: bool) -> Output {
        Output { writer: BufWriter::with_capacity(64 << 10, std::io::stdout().lock()), json }
    }
    /// A line of text.
    pub fn line(&mut self, text: impl AsRef<str>) -> Result<()> {
        self.writer.write_all(text.as_ref().as_bytes())?;
        Ok(self.writer.write_all(b"\n")?)
    }
    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.writer.write_all(bytes)?)
    }
    /// A JSON document on one line.
    pub fn json_line(&mut self, value: &Value) -> Result<()> {
        write_json(value, &mut self.writer)?;
        Ok(self.writer.write_all(b"\n")?)
    }
    /// A whole result: the JSON document with `--json`, else the text.
    pub fn json_or_text(&mut self, value: &Value, text: impl AsRef<str>) -> Result<()> {
        if self.json { self.json_line(value) } else { self.line(text) }
    }
    /// Hands everything to the operating system.
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

/// A table with these columns; a name that starts with `>` is a number and stands to the right.
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
