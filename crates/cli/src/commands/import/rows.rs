//! CSV and TSV with a header line: the key column is the key, the whole row as a JSON object the value.

use crate::failure::{Failure, Result, show_path};
use csv::ByteRecord;
use serde_json::{Map, Value};
use std::path::Path;

use super::loader::Loader;

/// Imports every row.
pub fn import(path: &Path, delimiter: u8, column: Option<&str>, loader: &mut Loader<'_>) -> Result<()> {
    if let Ok(meta) = std::fs::metadata(path) {
        loader.expect_bytes(meta.len());
    }
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(super::open(path)?);
    let header = match reader.headers() {
        Ok(header) => header.iter().map(str::to_owned).collect::<Vec<_>>(),
        Err(e) => return Err(Failure::usage(format!("{}: the header line: {e}", show_path(path)))),
    };
    let key =
        key_column(&header, column).map_err(|why| Failure::usage(format!("{}: {why}", show_path(path))))?;
    let mut record = ByteRecord::new();
    loop {
        let line = reader.position().line();
        let source = || format!("{} line {line}", show_path(path));
        match reader.read_byte_record(&mut record) {
            Ok(false) => return Ok(()),
            Ok(true) => import_row(&header, key, &record, &source, loader)?,
            Err(e) if e.is_io_error() => return Err(Failure::usage(format!("{}: {e}", source()))),
            Err(e) => loader.failed(&format!("{}: {e}", source()))?,
        }
    }
}

/// The index of the key column.
fn key_column(header: &[String], asked: Option<&str>) -> std::result::Result<usize, String> {
    match asked {
        None if header.is_empty() => Err("there is no header line".into()),
        None => Ok(0),
        Some(name) => header
            .iter()
            .position(|h| h == name)
            .ok_or_else(|| format!("there is no column {name:?}; there are {}", header.join(", "))),
    }
}

fn import_row(
    header: &[String],
    key: usize,
    record: &ByteRecord,
    source: &dyn Fn() -> String,
    loader: &mut Loader<'_>,
) -> Result<()> {
    let key_bytes = record.get(key).unwrap_or_default();
    match row_json(header, record) {
        Ok(row) if !loader.skips(key_bytes, row.len() as u64)? => {
            loader.put(key_bytes, row.as_bytes(), source)
        }
        Ok(_) => Ok(()),
        Err(why) => loader.failed(&format!("{}: {why}", source())),
    }
}

/// The row as a JSON object, columns in the order of the file.
fn row_json(header: &[String], record: &ByteRecord) -> std::result::Result<String, String> {
    let mut object = Map::with_capacity(header.len());
    for (name, field) in header.iter().zip(record) {
        let text = std::str::from_utf8(field).map_err(|_| format!("column {name:?} is not UTF-8"))?;
        object.insert(name.clone(), text.into());
    }
    Ok(Value::Object(object).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_column_is_found() {
        let header = ["id".to_owned(), "name".to_owned()];
        assert_eq!(key_column(&header, None), Ok(0));
        assert_eq!(key_column(&header, Some("name")), Ok(1));
        assert!(key_column(&header, Some("age")).unwrap_err().contains("id, name"));
        assert!(key_column(&[], None).is_err());
    }

    #[test]
    fn rows_become_objects_in_column_order() {
        let header = ["z".to_owned(), "a".to_owned()];
        let record = ByteRecord::from(vec!["1", "with \"quotes\""]);
        assert_eq!(row_json(&header, &record).unwrap(), r#"{"z":"1","a":"with \"quotes\""}"#);
        assert!(row_json(&header, &ByteRecord::from(vec![&b"\xff"[..], b""])).is_err());
    }
}
