//! Imports CSV and TSV with a header line: the key column is the key, the whole row as a JSON
//! object is the value. The object is written while the cells are read, so of a huge row there is
//! one copy here and one in the batch.

use crate::failure::{Failure, Result, show_path};
use perigee::limits;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use super::cells::{CellEnd, CellReader};
use super::loader::Loader;

/// Maximum length of the header line.
const HEADER_BYTES_MAX: usize = 16 << 20;
/// Maximum buffer capacity that is kept for the next row.
const REUSED_BUFFER_MAX: usize = 1 << 20;

/// Imports every row.
pub fn import_rows(
    path: &Path,
    delimiter: u8,
    column: Option<&str>,
    loader: &mut Loader<'_>,
) -> Result<()> {
    if let Ok(meta) = std::fs::metadata(path) {
        loader.add_expected_bytes(meta.len());
    }
    let mut cells = CellReader::new(super::open_input(path)?, delimiter);
    let shown = show_path(path);
    let header = read_header(&mut cells, &shown)?;
    let key = find_key_column(&header, column)
        .map_err(|reason| Failure::usage(format!("{shown}: {reason}")))?;
    let mut row = Row::new(header, key);
    loop {
        let line = cells.line();
        let source = || format!("{shown} line {line}");
        match row.read(&mut cells) {
            Ok(false) => return Ok(()),
            Ok(true) => import_row(&row, &source, loader)?,
            Err(e) => return Err(Failure::usage(format!("{}: {e}", source()))),
        }
    }
}

fn import_row(row: &Row, source: &dyn Fn() -> String, loader: &mut Loader<'_>) -> Result<()> {
    if row.too_large {
        return loader.report_too_large(source);
    }
    if let Some(reason) = &row.error {
        return loader.report_failure(&format!("{}: {reason}", source()));
    }
    if loader.should_skip(&row.key, row.json.len() as u64)? {
        return Ok(());
    }
    loader.put(&row.key, &row.json, source)
}

/// Reads the names of the columns.
fn read_header(cells: &mut CellReader, shown: &str) -> Result<Vec<String>> {
    let invalid = |reason: String| Failure::usage(format!("{shown}: the header line: {reason}"));
    let (mut names, mut bytes) = (Vec::new(), 0);
    loop {
        let mut name = Vec::new();
        let end = cells.next_cell(&mut |chunk| {
            bytes += chunk.len();
            if bytes <= HEADER_BYTES_MAX {
                name.extend_from_slice(chunk);
            }
        });
        let end = end.map_err(|e| invalid(e.to_string()))?;
        if bytes > HEADER_BYTES_MAX {
            return Err(invalid(format!("longer than {HEADER_BYTES_MAX} bytes")));
        }
        if end != CellEnd::InputEnd {
            names.push(String::from_utf8(name).map_err(|_| invalid("not UTF-8".into()))?);
        }
        if end != CellEnd::RowContinues {
            break;
        }
    }
    check_columns(&names).map_err(|reason| {
        invalid(reason).hint(
            "rename one of the columns: they become fields of a JSON object, whose names must be \
             unique",
        )
    })?;
    Ok(names)
}

/// Returns an error if two columns have the same name: a JSON object can keep only one of them.
fn check_columns(names: &[String]) -> std::result::Result<(), String> {
    let mut seen = BTreeSet::new();
    match names.iter().find(|name| !seen.insert(name.as_str())) {
        Some(name) => Err(format!("duplicate column {name:?}")),
        None => Ok(()),
    }
}

/// Returns the index of the key column.
fn find_key_column(
    header: &[String],
    requested: Option<&str>,
) -> std::result::Result<usize, String> {
    match requested {
        None if header.is_empty() => Err("there is no header line".into()),
        None => Ok(0),
        Some(name) => header.iter().position(|h| h == name).ok_or_else(|| {
            format!("there is no column {name:?}; the columns are {}", header.join(", "))
        }),
    }
}

/// The current row.
struct Row {
    columns: Vec<String>,
    /// JSON text before each cell: `{"name":"` or `,"name":"`.
    cell_prefixes: Vec<Vec<u8>>,
    key_column: usize,
    /// The row as a JSON object, columns in the order of the file.
    json: Vec<u8>,
    /// The cell of the key column, truncated if it is too long for a key.
    key: Vec<u8>,
    /// True if the object exceeds the maximum value size; `json` is then incomplete.
    too_large: bool,
    /// Reason why the row cannot be imported.
    error: Option<String>,
}

impl Row {
    fn new(columns: Vec<String>, key_column: usize) -> Row {
        let cell_prefix = |(i, name): (usize, &String)| {
            let mut prefix = if i == 0 { b"{\"".to_vec() } else { b",\"".to_vec() };
            push_escaped(name.as_bytes(), &mut prefix);
            prefix.extend_from_slice(b"\":\"");
            prefix
        };
        let cell_prefixes = columns.iter().enumerate().map(cell_prefix).collect();
        let (json, key) = (Vec::new(), Vec::new());
        Row { columns, cell_prefixes, key_column, json, key, too_large: false, error: None }
    }

    /// Reads the next row. Returns false at the end of the input.
    fn read(&mut self, cells: &mut CellReader) -> io::Result<bool> {
        self.json.clear();
        self.json.shrink_to(REUSED_BUFFER_MAX);
        self.key.clear();
        (self.too_large, self.error) = (false, None);
        let mut count = 0;
        loop {
            let end = self.read_cell(count, cells)?;
            if end == CellEnd::InputEnd {
                return Ok(false);
            }
            count += 1;
            if end == CellEnd::RowEnd {
                break;
            }
        }
        self.json.push(b'}');
        if count != self.columns.len() {
            self.error =
                Some(format!("the row has {count} cells, the header has {}", self.columns.len()));
        }
        Ok(true)
    }

    fn read_cell(&mut self, index: usize, cells: &mut CellReader) -> io::Result<CellEnd> {
        let known = index < self.columns.len();
        if known {
            self.json.extend_from_slice(&self.cell_prefixes[index]);
        }
        let start = self.json.len();
        let (json, key, too_large) = (&mut self.json, &mut self.key, &mut self.too_large);
        let is_key = index == self.key_column;
        let end = cells.next_cell(&mut |chunk| {
            if is_key && key.len() <= limits::KEY_BYTES_MAX {
                key.extend_from_slice(chunk);
            }
            if known && !*too_large {
                push_escaped(chunk, json);
            }
            if json.len() > limits::VALUE_BYTES_MAX {
                *too_large = true;
                *json = Vec::new();
            }
        })?;
        if known && !self.too_large {
            // Only ASCII was escaped, so the result is UTF-8 exactly if the cell is.
            if std::str::from_utf8(&self.json[start..]).is_err() {
                self.error = Some(format!("column {:?} is not UTF-8", self.columns[index]));
            }
            self.json.push(b'"');
        }
        Ok(end)
    }
}

/// Appends bytes with the escapes of a JSON string, like `serde_json`.
fn push_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|b| *b < b' ' || matches!(b, b'"' | b'\\')) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            b @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', b]),
            b => out.extend_from_slice(format!("\\u{b:04x}").as_bytes()),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &[u8]) -> Vec<(String, Option<String>)> {
        let mut cells = CellReader::new(Box::new(io::Cursor::new(text.to_vec())), b',');
        let header = read_header(&mut cells, "test").unwrap();
        let mut row = Row::new(header, 0);
        let mut all = Vec::new();
        while row.read(&mut cells).unwrap() {
            all.push((String::from_utf8_lossy(&row.json).into_owned(), row.error.clone()));
        }
        all
    }

    #[test]
    fn key_column_is_found() {
        let header = ["id".to_owned(), "name".to_owned()];
        assert_eq!(find_key_column(&header, None), Ok(0));
        assert_eq!(find_key_column(&header, Some("name")), Ok(1));
        assert!(find_key_column(&header, Some("age")).unwrap_err().contains("id, name"));
        assert!(find_key_column(&[], None).is_err());
    }

    #[test]
    fn rows_become_objects_in_column_order() {
        let all = rows(b"z,a\n1,\"with \"\"quotes\"\"\"\n2,\xff\n3\n4,x,y\n");
        assert_eq!(all[0], (r#"{"z":"1","a":"with \"quotes\""}"#.to_owned(), None));
        assert_eq!(all[1].1.as_deref(), Some("column \"a\" is not UTF-8"));
        assert_eq!(all[2].1.as_deref(), Some("the row has 1 cells, the header has 2"));
        assert_eq!(all[3].1.as_deref(), Some("the row has 3 cells, the header has 2"));
        assert_eq!(all.len(), 4);
    }

    #[test]
    fn strings_are_written_as_serde_json_writes_them() {
        let text: String = (0u8..128).map(char::from).chain("æ潮\u{2028}".chars()).collect();
        let mut out = vec![b'"'];
        push_escaped(text.as_bytes(), &mut out);
        out.push(b'"');
        assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&text).unwrap());
    }

    #[test]
    fn duplicate_column_is_rejected() {
        let names =
            |all: &[&str]| check_columns(&all.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(names(&["a", "b", "A"]), Ok(()));
        assert!(names(&["id", "x", "x"]).unwrap_err().contains("\"x\""));
    }
}
