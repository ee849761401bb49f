//! Imports JSON lines: rows (a field is the key, the line itself is the value), or entries as
//! printed by `scan --json`. At most two copies of a huge line are in memory: the line, or the
//! value decoded from it, and the copy in the batch.

use crate::failure::{Failure, Result, show_path};
use crate::text::take_json;
use perigee::limits;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::loader::Loader;

/// A line of at least this length cannot be an entry within the limits (base64 encodes three bytes
/// as four).
const LINE_BYTES_MAX: u64 = (limits::VALUE_BYTES_MAX + limits::KEY_BYTES_MAX) as u64 / 3 * 4 + 4096;

/// Maximum buffer capacity that is kept for the next line.
const REUSED_BUFFER_MAX: usize = 1 << 20;
/// Maximum length of a key in JSON: an escape encodes one byte as six.
const RAW_KEY_BYTES_MAX: usize = 6 * limits::KEY_BYTES_MAX + 2;

/// Interpretation of a line.
#[derive(Clone, Copy)]
pub enum LineFormat<'a> {
    /// A row; this field is its key (default `id`, else `key`).
    Rows { key: Option<&'a str> },
    /// An entry with `key` and `value`.
    Entries,
}

/// Imports every line.
pub fn import_lines(path: &Path, format: LineFormat<'_>, loader: &mut Loader<'_>) -> Result<()> {
    if let Ok(meta) = std::fs::metadata(path) {
        loader.add_expected_bytes(meta.len());
    }
    let mut reader = BufReader::with_capacity(256 << 10, super::open_input(path)?);
    let mut line = Vec::new();
    let mut number = 0u64;
    loop {
        line.clear();
        line.shrink_to(REUSED_BUFFER_MAX);
        number += 1;
        let read = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let n = read.map_err(|e| Failure::file("read", path, &e))?;
        if n == 0 {
            return Ok(());
        }
        let source = || format!("{} line {number}", show_path(path));
        if n as u64 == LINE_BYTES_MAX {
            return Err(Failure::usage(format!("{}: the line is too long", source())));
        }
        if !line.trim_ascii().is_empty() {
            import_line(&mut line, format, &source, loader)?;
        }
    }
}

/// Imports one line. If its value had to be decoded, the line is dropped before the value is put.
fn import_line(
    line: &mut Vec<u8>,
    format: LineFormat<'_>,
    source: &dyn Fn() -> String,
    loader: &mut Loader<'_>,
) -> Result<()> {
    let text = line.trim_ascii();
    let parsed = match format {
        LineFormat::Rows { key } => row_key(text, key).map(|key| (key, Cow::Borrowed(text))),
        LineFormat::Entries => parse_entry(text),
    };
    let (key, value) = match parsed {
        Err(reason) => return loader.report_failure(&format!("{}: {reason}", source())),
        Ok(parsed) => parsed,
    };
    if loader.should_skip(&key, value.len() as u64)? {
        return Ok(());
    }
    match value {
        Cow::Borrowed(value) => loader.put(&key, value, source),
        Cow::Owned(value) => {
            line.clear();
            line.shrink_to(REUSED_BUFFER_MAX);
            loader.put(&key, &value, source)
        }
    }
}

/// Returns the key of a row: the text of a string, or a number or boolean as written.
fn row_key(text: &[u8], requested: Option<&str>) -> std::result::Result<Vec<u8>, String> {
    let fields: HashMap<String, &RawValue> =
        serde_json::from_slice(text).map_err(|e| format!("not a JSON object: {e}"))?;
    let names: &[&str] = match &requested {
        Some(name) => std::slice::from_ref(name),
        None => &["id", "key"],
    };
    let Some(raw) = names.iter().find_map(|name| fields.get(*name)) else {
        return Err(format!("no field {}", names.join(" or ")));
    };
    if raw.get().len() > RAW_KEY_BYTES_MAX {
        return Err(format!("the field {} is too long for a key", names.join(" or ")));
    }
    match raw.get().as_bytes().first() {
        Some(b'"') => serde_json::from_str::<String>(raw.get())
            .map(String::into_bytes)
            .map_err(|e| e.to_string()),
        Some(b'{' | b'[' | b'n') | None => {
            Err(format!("the field {} cannot be a key: {}", names.join(" or "), raw.get()))
        }
        Some(_) => Ok(raw.get().as_bytes().to_vec()),
    }
}

/// Parses an entry as printed by `scan --json`. The value is borrowed from the line if it contains
/// no escape and is not base64.
fn parse_entry(text: &[u8]) -> std::result::Result<(Vec<u8>, Cow<'_, [u8]>), String> {
    let fields: HashMap<String, &RawValue> =
        serde_json::from_slice(text).map_err(|e| format!("not a JSON object: {e}"))?;
    let field = |name: &str| take_json(&fields, name)?.ok_or_else(|| format!("no field {name:?}"));
    Ok((field("key")?.into_owned(), field("value")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_keys_are_extracted() {
        let key =
            |s: &str, name| row_key(s.as_bytes(), name).map(|k| String::from_utf8(k).unwrap());
        assert_eq!(key(r#"{"id":"a\u0062","key":"x"}"#, None).unwrap(), "ab");
        assert_eq!(key(r#"{"key":"x","n":12345678901234567890123}"#, None).unwrap(), "x");
        assert_eq!(
            key(r#"{"n":12345678901234567890123}"#, Some("n")).unwrap(),
            "12345678901234567890123"
        );
        assert_eq!(key(r#"{"n":true}"#, Some("n")).unwrap(), "true");
        for bad in ["{}", "[1]", r#"{"id":null}"#, r#"{"id":{}}"#, "nonsense", r#"{"id":"#] {
            assert!(key(bad, None).is_err(), "{bad}");
        }
    }

    #[test]
    fn entries_round_trip() {
        let (k, v) = parse_entry(br#"{"key_base64":"/wA=","value":"text"}"#).unwrap();
        assert_eq!((k.as_slice(), &*v), (&b"\xff\0"[..], &b"text"[..]));
        assert!(matches!(v, Cow::Borrowed(_)), "a value without escapes is not copied");
        for bad in
            ["{}", r#"{"key":"a"}"#, r#"{"key":1,"value":""}"#, r#"{"key_base64":"*","value":""}"#]
        {
            assert!(parse_entry(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
