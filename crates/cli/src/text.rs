//! Bytes as text and back: keys on the command line and on the screen. Pure.
//!
//! Invariant: `unescape(&escape(b)) == b` for every `b`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// The bytes as one printable line: text stays text, a backslash doubles, everything that does not print (and every
/// byte that is not UTF-8) becomes `\xNN`.
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
            other => return Err(format!("unknown escape \\{}", char::from(other).escape_default())),
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
    let nibble =
        |b: u8| char::from(b).to_digit(16).ok_or_else(|| format!("{:?} is not hexadecimal", char::from(b)));
    digits.chunks_exact(2).map(|pair| Ok((nibble(pair[0])? << 4 | nibble(pair[1])?) as u8)).collect()
}

/// Puts bytes into a JSON object: as `name` if they are text, else as `name_base64`.
pub fn put_json(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.into(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
    };
}

/// Takes bytes that [`put_json`] put; `None` if neither form is there.
pub fn take_json(object: &Map<String, Value>, name: &str) -> Result<Option<Vec<u8>>, String> {
    if let Some(value) = object.get(name) {
        let text = value.as_str().ok_or_else(|| format!("field {name:?} is not a string"))?;
        return Ok(Some(text.as_bytes().to_vec()));
    }
    let name = format!("{name}_base64");
    let Some(value) = object.get(&name) else { return Ok(None) };
    let text = value.as_str().ok_or_else(|| format!("field {name:?} is not a string"))?;
    STANDARD.decode(text).map(Some).map_err(|e| format!("field {name:?} is not base64: {e}"))
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
            assert!(!text.contains(|c: char| c.is_control() || c == '\u{200f}' || c == '\u{2028}'), "{text}");
            assert_eq!(unescape(text.as_bytes()).unwrap(), all[cut..]);
        }
        assert_eq!(escape(b"a\\b\0c\xff'\""), "a\\\\b\\x00c\\xff'\"");
        assert_eq!(escape("潮".as_bytes()), "潮");
    }

    #[test]
    fn unescape_refuses_nonsense() {
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
    fn json_keeps_every_byte() {
        for bytes in [&b""[..], b"text", "潮".as_bytes(), b"\xff\x00", b"\0"] {
            let mut object = Map::new();
            put_json(&mut object, "key", bytes);
            assert_eq!(take_json(&object, "key").unwrap().unwrap(), bytes);
            assert_eq!(take_json(&object, "value").unwrap(), None);
        }
    }

    #[test]
    fn a_prefix_ends_before_the_next() {
        assert_eq!(prefix_end(b"ab").unwrap(), b"ac");
        assert_eq!(prefix_end(b"a\xff\xff").unwrap(), b"b");
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
