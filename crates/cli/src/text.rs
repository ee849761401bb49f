//! Bytes as text and back: keys on the command line and on the screen. Pure.
//!
//! Invariants: `unescape(&escape(b)) == b` for every `b`; no text and no JSON that is printed has a
//! character that a terminal acts on or that changes the direction of what follows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

/// Bytes of a JSON string that are decoded at once.
const CHUNK_BYTES: usize = 64 << 10;

/// The bytes as one printable line: text stays text, a backslash doubles, everything that does not
/// print (and every byte that is not UTF-8) becomes `\xNN`.
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

/// The bytes that an escaped text stands for: `\xNN`, `\0`, `\n`, `\r`, `\t`, `\\`.
pub fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&b, after)) = rest.split_first() {
        rest = after;
        if b != b'\\' {
            out.push(b);
            continue;
        }
        let (&kind, after) = rest.split_first().ok_or("a backslash at the end escapes nothing")?;
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

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The bytes of hexadecimal digits; spaces between bytes are allowed.
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

/// Puts bytes into a JSON object: as `name` if they are text, else as `name_base64`.
pub fn put_json(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.into(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
    };
}

/// Returns true for characters that are not printed as they are: control characters (U+0000 to
/// U+001F, U+007F to U+009F), marks and overrides of the writing direction, line and paragraph
/// separators.
pub fn must_escape(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes JSON as `serde_json` does, with `\uXXXX` for every character of [`must_escape`].
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

/// Writes a JSON document on one line, without the line's end.
pub fn write_json(value: &Value, out: &mut impl Write) -> io::Result<()> {
    Ok(serde::Serialize::serialize(value, &mut Serializer::with_formatter(out, EscapingFormatter))?)
}

/// A message on one line: what is not printed as it is becomes `\u{NN}`.
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

/// Takes bytes that [`put_json`] put, from the fields of an object as they are written; `None` if
/// neither form is there.
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

/// The bytes of a JSON string, borrowed if nothing in it is escaped.
fn string_bytes<'a>(raw: &'a str, name: &str) -> Result<Cow<'a, [u8]>, String> {
    let body = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let body = body.ok_or_else(|| format!("field {name:?} is not a string"))?;
    if !body.contains('\\') {
        return Ok(Cow::Borrowed(body.as_bytes()));
    }
    // In pieces, so that a huge string is in memory only as its bytes and as the line that it came
    // in.
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(chunk_len(rest));
        let text: String = serde_json::from_str(&format!("\"{piece}\""))
            .map_err(|e| format!("field {name:?}: {e}"))?;
        out.extend_from_slice(text.as_bytes());
        rest = behind;
    }
    Ok(Cow::Owned(out))
}

/// Length of a piece of a JSON string that can be decoded alone: no escape is cut, and no pair of
/// them that is one character.
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
    // Behind a high surrogate without a low one this may be anywhere: decoding the piece fails
    // then.
    (at.min(bytes.len())..=bytes.len())
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(bytes.len())
}

/// The first key that is greater than every key with this prefix; `None` if there is none.
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
        let strange = (0u32..0x3000).filter_map(char::from_u32).filter(|c| must_escape(*c));
        let strange: String = strange.chain("a\"\\潮".chars()).collect();
        assert!(strange.chars().count() > 80);
        let mut object = Map::new();
        put_json(&mut object, &strange, strange.as_bytes());
        let mut line = Vec::new();
        write_json(&Value::Object(object.clone()), &mut line).unwrap();
        let line = String::from_utf8(line).unwrap();
        for text in [&line, &escape(strange.as_bytes()), &printable(&strange)] {
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

    /// A JSON string in which every character is escaped, in pairs where one does not suffice.
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
