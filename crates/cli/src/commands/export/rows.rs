//! Writes entries as JSON lines or CSV.

use crate::failure::Result;
use crate::progress::Progress;
use crate::text::{escape, put_json, write_json};
use perigee::Cursor;
use serde_json::{Map, Value};
use std::io::{self, Write};

use super::ExportCounts;

/// Writes one line per entry, from the position of the cursor.
pub fn export(cursor: &mut Cursor, csv: bool, writer: &mut dyn Write) -> Result<ExportCounts> {
    let mut counts = ExportCounts::default();
    let mut progress = Progress::items("exporting", 0);
    if csv {
        writer.write_all(b"key,value\n")?;
    }
    while cursor.is_valid() {
        let value = cursor.value()?;
        if csv {
            write_csv_line(cursor.key(), &value, writer)?
        } else {
            write_json_line(cursor.key(), &value, writer)?
        }
        counts.entries += 1;
        counts.bytes += value.len() as u64;
        progress.count_item();
        cursor.next()?;
    }
    Ok(counts)
}

fn write_json_line(key: &[u8], value: &[u8], writer: &mut dyn Write) -> io::Result<()> {
    let mut object = Map::new();
    put_json(&mut object, "key", key);
    put_json(&mut object, "value", value);
    write_json(&Value::Object(object), writer)?;
    writer.write_all(b"\n")
}

fn write_csv_line(key: &[u8], value: &[u8], writer: &mut dyn Write) -> io::Result<()> {
    writeln!(writer, "{},{}", csv_field(key), csv_field(value))
}

/// Returns bytes as a CSV field. Escaped text has no line breaks, so only commas and quotes need
/// quoting.
fn csv_field(bytes: &[u8]) -> String {
    let text = escape(bytes);
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_needed() {
        let mut out = Vec::new();
        write_csv_line(b"a,b\n", b"say \"hi\"", &mut out).unwrap();
        assert_eq!(out, b"\"a,b\\x0a\",\"say \"\"hi\"\"\"\n");
        let mut out = Vec::new();
        write_json_line(b"\xff", b"text", &mut out).unwrap();
        assert_eq!(out, b"{\"key_base64\":\"/w==\",\"value\":\"text\"}\n");
    }
}
