//! Conversions between bytes and text: escapes, hexadecimal digits, JSON strings. Performs no I/O
//! except to the writer it is given.
//!
//! Invariants: `unescape(&escape(b)) == b` for every `b`; printed text and JSON contain no
//! terminal control characters and no characters that change the writing direction.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

/// Bytes of a JSON string decoded per step.
const CHUNK_BYTES: usize = 64 << 10;

/// Returns the bytes as one printable line: printable text is unchanged, a backslash is doubled,
/// non-printable characters and bytes that are not UTF-8 become `\xNN`.
pub fn escape(bytes: &[u8]) -> String {
    let plain = |b: &u8| matches!(b, b' '..=b'~') && *b != b'\\';
    if bytes.iter().all(plain) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            escape_char(c, &mut out);
        }
        chunk.invalid().iter().for_each(|b| push_hex(*b, &mut out));
    }
    out
}

fn escape_char(c: char, out: &mut String) {
    if c == '\\' {
        out.push_str("\\\\");
    } else if matches!(c, '\'' | '"') || (c.escape_debug().len() == 1) {
        out.push(c);
    } else {
        let mut buf = [0; 4];
        c.encode_utf8(&mut buf).bytes().for_each(|b| push_hex(b, out));
    }
}

fn push_hex(b: u8, out: &mut String) {
    out.push_str(&format!("\\x{b:02x}"));
}

/// Returns the bytes that an escaped text denotes: `\xNN`, `\0`, `\n`, `\r`, `\t`, `\\`.
pub fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&b, after)) = rest.split_first() {
        rest = after;
        if b != b'\\' {
            out.push(b);
            continue;
        }
        let (&kind, after) = rest.split_first().ok_or("trailing backslash")?;
        rest = after;
        match kind {
            b'\\' => out.push(b'\\'),
            b'0' => out.push(0),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'x' => {
                let digits = rest.get(..2).ok_or("\\x needs two hexadecimal digits")?;
                out.extend(unhex(digits)?);
                rest = &rest[2..];
            }
            other => {
                return Err(format!("unknown escape \\{}", char::from(other).escape_default()));
            }
        }
    }
    Ok(out)
}

/// Returns the bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Parses hexadecimal digits; white space is ignored.
pub fn unhex(text: &[u8]) -> Result<Vec<u8>, String> {
    let digits: Vec<u8> = text.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    if !digits.len().is_multiple_of(2) {
        return Err("an odd number of hexadecimal digits".into());
    }
    let nibble = |b: u8| {
        char::from(b).to_digit(16).ok_or_else(|| format!("{:?} is not hexadecimal", char::from(b)))
    };
    digits
        .chunks_exact(2)
        .map(|pair| Ok((nibble(pair[0])? << 4 | nibble(pair[1])?) as u8))
        .collect()
}

/// Adds bytes to a JSON object: as `name` if they are UTF-8, otherwise as `name_base64`.
pub fn put_json(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.into(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
    };
}

/// Returns true for characters that must not be printed unescaped: control characters (U+0000 to
/// U+001F, U+007F to U+009F), marks and overrides of the writing direction, line and paragraph
/// separators.
pub fn must_escape(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Formats JSON like `serde_json`, with `\uXXXX` for every character that [`must_escape`] selects.
struct EscapingFormatter;

impl Formatter for EscapingFormatter {
    fn write_string_fragment<W: Write + ?Sized>(
        &mut self,
        w: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(must_escape) {
            let c = rest[at..].chars().next().unwrap_or_default();
            CompactFormatter.write_string_fragment(w, &rest[..at])?;
            write!(w, "\\u{:04x}", u32::from(c))?;
            rest = &rest[at + c.len_utf8()..];
        }
        CompactFormatter.write_string_fragment(w, rest)
    }
}

/// Writes a JSON document on one line, without a line break at the end.
pub fn write_json(value: &Value, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    Ok(serde::Serialize::serialize(value, &mut Serializer::with_formatter(out, EscapingFormatter))?)
}

/// Returns a message on one line, with `\u{NN}` for every character that [`must_escape`] selects.
pub fn printable(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    for c in message.chars() {
        match c {
            '\n' => out.push(' '),
            c if must_escape(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Returns the bytes that [`put_json`] stored under `name`, from the raw fields of an object;
/// `None` if neither form is present.
pub fn take_json<'a>(
    fields: &HashMap<String, &'a RawValue>,
    name: &str,
) -> Result<Option<Cow<'a, [u8]>>, String> {
    if let Some(raw) = fields.get(name) {
        return string_bytes(raw.get(), name).map(Some);
    }
    let name = format!("{name}_base64");
    let Some(raw) = fields.get(&name) else { return Ok(None) };
    let digits = string_bytes(raw.get(), &name)?;
    let bytes =
        STANDARD.decode(digits).map_err(|e| format!("field {name:?} is not base64: {e}"))?;
    Ok(Some(Cow::Owned(bytes)))
}

/// Decodes a JSON string; borrows the bytes if the string contains no escape.
fn string_bytes<'a>(raw: &'a str, name: &str) -> Result<Cow<'a, [u8]>, String> {
    let body = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let body = body.ok_or_else(|| format!("field {name:?} is not a string"))?;
    if !body.contains('\\') {
        return Ok(Cow::Borrowed(body.as_bytes()));
    }
    // Decoded in chunks, so that a huge string is in memory only twice: as the input line and as
    // the decoded bytes.
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(chunk_len(rest));
        let text: String = serde_json::from_str(&format!("\"{chunk}\""))
            .map_err(|e| format!("field {name:?}: {e}"))?;
        out.extend_from_slice(text.as_bytes());
        rest = after;
    }
    Ok(Cow::Owned(out))
}

/// Returns the length of a prefix of a JSON string that can be decoded on its own: it splits no
/// escape and no surrogate pair.
fn chunk_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() && at < CHUNK_BYTES {
        at += match (bytes[at], bytes.get(at + 1), bytes.get(at + 2..at + 4)) {
            (b'\\', Some(b'u'), Some([b'd' | b'D', b'8' | b'9' | b'a' | b'A' | b'b' | b'B'])) => 12,
            (b'\\', Some(b'u'), _) => 6,
            (b'\\', ..) => 2,
            _ => 1,
        };
    }
    // After a high surrogate without a low one, `at` may be inside a character; decoding the chunk
    // then fails anyway.
    (at.min(bytes.len())..=bytes.len())
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(bytes.len())
}

/// Returns the smallest key greater than every key with this prefix; `None` if there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_round_trip() {
        let mut all: Vec<u8> = (0..=255).collect();
        all.extend("Gezeiten: Ebbe, Flut, æøå 潮 \u{200f}\u{feff}\u{2028}".bytes());
        for cut in 0..all.len() {
            let text = escape(&all[cut..]);
            assert!(
                !text.contains(|c: char| c.is_control() || c == '\u{200f}' || c == '\u{2028}'),
                "{text}"
            );
            assert_eq!(unescape(text.as_bytes()).unwrap(), all[cut..]);
        }
        assert_eq!(escape(b"a\\b\0c\xff'\""), "a\\\\b\\x00c\\xff'\"");
        assert_eq!(escape("潮".as_bytes()), "潮");
    }

    #[test]
    fn unescape_rejects_invalid_escapes() {
        assert_eq!(unescape(b"\\0\\n\\t\\r\\x41").unwrap(), b"\0\n\t\rA");
        for bad in ["\\", "\\x", "\\x4", "\\xzz", "\\q"] {
            assert!(unescape(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn hexadecimal_round_trips() {
        assert_eq!(unhex(b"00 fF10").unwrap(), [0, 255, 16]);
        assert_eq!(hex(&[0, 255, 16]), "00ff10");
        assert!(unhex(b"0").is_err());
        assert!(unhex(b"0g").is_err());
        assert!(unhex("é1".as_bytes()).is_err());
    }

    #[test]
    fn no_control_character_is_printed() {
        let controls = (0u32..0x3000).filter_map(char::from_u32).filter(|c| must_escape(*c));
        let input: String = controls.chain("a\"\\潮".chars()).collect();
        assert!(input.chars().count() > 80);
        let mut object = Map::new();
        put_json(&mut object, &input, input.as_bytes());
        let mut line = Vec::new();
        write_json(&Value::Object(object.clone()), &mut line).unwrap();
        let line = String::from_utf8(line).unwrap();
        for text in [&line, &escape(input.as_bytes()), &printable(&input)] {
            assert!(!text.contains(must_escape), "{text:?}");
        }
        for part in [
            "\\u0085", "\\u009b", "\\u061c", "\\u202e", "\\u2066", "\\u2028", "\\u007f", "\\n",
            "潮",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert_eq!(
            serde_json::from_str::<Value>(&line).unwrap(),
            Value::Object(object),
            "nothing is lost"
        );
        assert_eq!(printable("one\ntwo\u{9b}"), "one two\\u{9b}");
    }

    #[test]
    fn json_keeps_every_byte() {
        for bytes in [&b""[..], b"text", "潮".as_bytes(), b"\xff\x00", b"\0"] {
            let mut object = Map::new();
            put_json(&mut object, "key", bytes);
            let line = Value::Object(object).to_string();
            let fields = serde_json::from_str(&line).unwrap();
            assert_eq!(take_json(&fields, "key").unwrap().unwrap(), bytes);
            assert_eq!(take_json(&fields, "value").unwrap(), None);
        }
    }

    #[test]
    fn long_strings_are_decoded_in_chunks() {
        let unit = "a\"\\\n\u{1}é潮\u{1f30a}/";
        for shift in 0..40 {
            let text =
                format!("{}{}", "x".repeat(shift), unit.repeat(2 * CHUNK_BYTES / unit.len()));
            for line in [serde_json::to_string(&text).unwrap(), all_escaped(&text)] {
                assert_eq!(&*string_bytes(&line, "f").unwrap(), text.as_bytes());
            }
        }
        for bad in
            ["\"\\ud83c\"", "\"\\ud83cabcdefgh\"", "\"\\ud83c\\u0041\"", "\"\\ud83c潮潮潮潮\""]
        {
            assert!(string_bytes(bad, "f").is_err(), "{bad}");
        }
    }

    /// Returns a JSON string in which every character is escaped, as surrogate pairs if necessary.
    fn all_escaped(text: &str) -> String {
        let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
        format!("\"{units}\"")
    }

    #[test]
    fn prefix_end_is_the_first_greater_key() {
        assert_eq!(prefix_end(b"ab").unwrap(), b"ac");
        assert_eq!(prefix_end(b"a\xff\xff").unwrap(), b"b");
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
