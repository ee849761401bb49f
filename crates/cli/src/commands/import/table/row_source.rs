//! Rows of files: CSV, TSV and JSON lines behind one interface.

use crate::commands::import::format::Format;
use crate::commands::import::open_input;
use crate::failure::{Failure, Result, show_path};
use crate::progress::Progress;
use perigee::limits::VALUE_BYTES_MAX;
use std::cell::Cell as StdCell;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::rc::Rc;

use super::delimited::RecordReader;
use super::json_rows::parse_fields;

/// Size of the read buffer.
const BUFFER_BYTES: usize = 256 << 10;
/// Rows between two updates of the progress bar.
const PROGRESS_INTERVAL: u64 = 1024;
/// A line of at least this length is refused.
const LINE_BYTES_MAX: u64 = VALUE_BYTES_MAX as u64;

/// Form of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellKind {
    /// The row does not have the field, or it is `null` in JSON.
    Null,
    /// An empty cell without quotes.
    Empty,
    /// A cell of CSV.
    Text,
    /// A value of JSON, as written.
    Json,
}

/// Form and place of a cell in the text of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellSpan {
    pub kind: CellKind,
    pub start: usize,
    pub end: usize,
}

impl CellSpan {
    /// A field that the row does not have.
    pub const NULL: CellSpan = CellSpan { kind: CellKind::Null, start: 0, end: 0 };

    /// Returns the span of a cell of CSV.
    pub fn of_record(start: usize, end: usize, quoted: bool) -> CellSpan {
        let kind = if start == end && !quoted { CellKind::Empty } else { CellKind::Text };
        CellSpan { kind, start, end }
    }
}

/// Names of the columns that the rows have, in the order of their first occurrence.
#[derive(Debug, Default)]
pub struct ColumnNames {
    names: Vec<String>,
    positions: HashMap<String, usize>,
    /// True if other names are an error.
    fixed: bool,
}

impl ColumnNames {
    /// Returns the names of a table: others are an error.
    pub fn fixed(names: &[String]) -> ColumnNames {
        let positions = names.iter().enumerate().map(|(i, name)| (name.clone(), i)).collect();
        ColumnNames { names: names.to_vec(), positions, fixed: true }
    }
    pub fn names(&self) -> &[String] {
        &self.names
    }
    /// Returns the position of a column, adding it if it is new.
    pub fn position_or_add(&mut self, name: &str) -> std::result::Result<usize, String> {
        if let Some(position) = self.positions.get(name) {
            return Ok(*position);
        }
        if self.fixed {
            let names = self.names.join(", ");
            return Err(format!("there is no column {name:?}; the columns are {names}"));
        }
        self.names.push(name.to_owned());
        self.positions.insert(name.to_owned(), self.names.len() - 1);
        Ok(self.names.len() - 1)
    }
}

/// A row of a file.
pub struct InputRow<'a> {
    /// The file, as shown in messages.
    pub file: &'a str,
    /// Line in which the row starts.
    pub line: u64,
    text: &'a str,
    cells: &'a [CellSpan],
}

impl<'a> InputRow<'a> {
    /// Returns form and text of the cell in a column.
    pub fn cell(&self, column: usize) -> (CellKind, &'a str) {
        match self.cells.get(column) {
            Some(cell) => (cell.kind, &self.text[cell.start..cell.end]),
            None => (CellKind::Null, ""),
        }
    }
    /// Returns the number of columns that are known up to this row.
    pub fn len(&self) -> usize {
        self.cells.len()
    }
    /// Returns where the row is, for messages.
    pub fn location(&self) -> String {
        format!("{} line {}", self.file, self.line)
    }
}

/// Receives the rows; returns false to end the reading.
pub type RowVisitor<'v> = dyn FnMut(&InputRow<'_>) -> Result<bool> + 'v;

/// The files of an import.
pub struct RowSource {
    files: Vec<(PathBuf, Format)>,
}

impl RowSource {
    pub fn new(files: Vec<(PathBuf, Format)>) -> RowSource {
        RowSource { files }
    }
    /// Returns true if the input can be read only once.
    pub fn is_stream(&self) -> bool {
        let is_file = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
        !self.files.iter().all(|(path, _)| is_file(path))
    }
    /// Returns true if the first file consists of JSON lines.
    pub fn is_json(&self) -> bool {
        matches!(self.files.first(), Some((_, Format::Jsonl)))
    }
    /// Returns the columns in the headers of CSV and TSV files; `None` if there is another file.
    pub fn read_headers(&self) -> Result<Option<ColumnNames>> {
        let mut columns = ColumnNames::default();
        for (path, format) in &self.files {
            let Some(delimiter) = delimiter(*format) else { return Ok(None) };
            let mut reader = RecordReader::new(open_input(path)?, delimiter);
            read_header(&mut reader, &show_path(path), &mut columns)?;
        }
        Ok(Some(columns))
    }
    /// Passes all rows to `visit`, in the order of the files.
    pub fn read_rows(
        &self,
        action: &'static str,
        columns: &mut ColumnNames,
        visit: &mut RowVisitor<'_>,
    ) -> Result<()> {
        let sizes = self.files.iter().filter_map(|(path, _)| std::fs::metadata(path).ok());
        let total = sizes.map(|meta| meta.len()).sum();
        let mut progress = Progress::bytes(action, total);
        let bytes_read = Rc::new(StdCell::new(0));
        let mut rows = 0u64;
        let mut visit = |row: &InputRow<'_>| {
            rows += 1;
            if rows.is_multiple_of(PROGRESS_INTERVAL) {
                progress.set_position(bytes_read.get());
            }
            visit(row)
        };
        for (path, format) in &self.files {
            let input = open_input(path)?;
            let input = Box::new(CountingReader { input, bytes_read: Rc::clone(&bytes_read) });
            let file = show_path(path);
            let goes_on = match delimiter(*format) {
                Some(delimiter) => {
                    let mut reader = RecordReader::new(input, delimiter);
                    read_records(&mut reader, &file, columns, &mut visit)?
                }
                None => read_json_lines(input, &file, columns, &mut visit)?,
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }
}

fn delimiter(format: Format) -> Option<u8> {
    match format {
        Format::Csv => Some(b','),
        Format::Tsv => Some(b'\t'),
        _ => None,
    }
}

/// Counts the bytes that were read.
struct CountingReader {
    input: Box<dyn Read>,
    bytes_read: Rc<StdCell<u64>>,
}

impl Read for CountingReader {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.input.read(buf)?;
        self.bytes_read.set(self.bytes_read.get() + n as u64);
        Ok(n)
    }
}

/// Returns the text of a record whose cells are all UTF-8.
fn record_text<'a>(
    reader: &'a RecordReader,
    names: &dyn Fn(usize) -> String,
) -> std::result::Result<&'a str, String> {
    let text = std::str::from_utf8(&reader.text);
    let is_invalid = |i: &usize| {
        let cell = reader.cells[*i];
        std::str::from_utf8(&reader.text[cell.start..cell.end]).is_err()
    };
    match text {
        Ok(text) if reader.cells.iter().all(|c| text.is_char_boundary(c.start)) => Ok(text),
        _ => {
            let cell = (0..reader.cells.len()).find(is_invalid).unwrap_or_default();
            Err(format!("{} is not UTF-8", names(cell)))
        }
    }
}

/// Reads the names of the columns. Returns the position of each column of the file.
fn read_header(
    reader: &mut RecordReader,
    file: &str,
    columns: &mut ColumnNames,
) -> Result<Vec<usize>> {
    let invalid = |line: u64, reason: String| {
        Failure::usage(format!("{file} line {line}: the header: {reason}"))
            .hint("the first line must name the columns, each with another name")
    };
    let found = reader.read_record().map_err(|e| invalid(reader.record_line, e))?;
    let line = reader.record_line;
    if !found {
        return Err(invalid(line, "the file is empty".to_owned()));
    }
    let text = record_text(reader, &|cell| format!("name {}", cell + 1));
    let text = text.map_err(|e| invalid(line, e))?;
    let mut positions = Vec::new();
    for (i, cell) in reader.cells.iter().enumerate() {
        let name = &text[cell.start..cell.end];
        if name.is_empty() {
            return Err(invalid(line, format!("column {} has no name", i + 1)));
        }
        let position = columns.position_or_add(name).map_err(|e| invalid(line, e))?;
        if positions.contains(&position) {
            return Err(invalid(line, format!("two columns are called {name:?}")));
        }
        positions.push(position);
    }
    Ok(positions)
}

fn read_records(
    reader: &mut RecordReader,
    file: &str,
    columns: &mut ColumnNames,
    visit: &mut RowVisitor<'_>,
) -> Result<bool> {
    let positions = read_header(reader, file, columns)?;
    let mut cells = vec![CellSpan::NULL; columns.names().len()];
    loop {
        let found = reader.read_record();
        let line = reader.record_line;
        let invalid = |e: String| Failure::usage(format!("{file} line {line}: {e}"));
        if !found.map_err(invalid)? {
            return Ok(true);
        }
        if reader.cells.len() != positions.len() {
            let (n, expected) = (reader.cells.len(), positions.len());
            return Err(invalid(format!("the row has {n} cells, the header has {expected}"))
                .hint("put cells that contain the separator, a quote or a line break in quotes"));
        }
        let name = |cell: usize| format!("column {:?}", columns.names()[positions[cell]]);
        let text = record_text(reader, &name).map_err(invalid)?;
        for (cell, position) in reader.cells.iter().zip(&positions) {
            cells[*position] = *cell;
        }
        if !visit(&InputRow { file, line, text, cells: &cells })? {
            return Ok(false);
        }
    }
}

fn read_json_lines(
    input: Box<dyn Read>,
    file: &str,
    columns: &mut ColumnNames,
    visit: &mut RowVisitor<'_>,
) -> Result<bool> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, input);
    let (mut bytes, mut cells, mut line) = (Vec::new(), Vec::new(), 0);
    loop {
        bytes.clear();
        line += 1;
        let invalid = |e: String| Failure::usage(format!("{file} line {line}: {e}"));
        let read = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes);
        match read.map_err(|e| invalid(e.to_string()))? as u64 {
            0 => return Ok(true),
            LINE_BYTES_MAX => return Err(invalid("the line is too long".to_owned())),
            _ => {}
        }
        let text = std::str::from_utf8(&bytes);
        let text = text.map_err(|_| invalid("the line is not UTF-8".to_owned()))?;
        if text.trim_ascii().is_empty() {
            continue;
        }
        parse_fields(text, columns, &mut cells).map_err(invalid)?;
        if !visit(&InputRow { file, line, text, cells: &cells })? {
            return Ok(false);
        }
    }
}
