//! Decodes the fields of a manifest edit. Performs no I/O. It is independent of the engine's
//! decoder and was written from `docs/format/manifest.md` alone, so that a dump does not repeat a
//! bug of the engine.

use crate::text::escape;
use perigee_base::codec::Decoder;
use perigee_base::{Error, Result, limits};
use serde_json::{Map, Value, json};

/// A decoded field.
pub struct EditField {
    /// Name of the field.
    pub name: &'static str,
    /// Names and values of its parts.
    pub values: Vec<(&'static str, Value)>,
}

/// Encoding of a part of a field.
#[derive(Clone, Copy)]
enum FieldPart {
    Number,
    Text,
    /// Eight bytes.
    Checksum,
    /// A count, then pairs of file and bytes.
    Vlogs,
    /// Nested fields, up to the end.
    Options,
    /// An event of a column family: its kind, then its names.
    Event,
    /// A string with a prepare record, which begins with the identifier of the transaction.
    PreparedGid,
    /// A count, then for each column family: its id, the numbers of klogs and vlogs, and these.
    PreparedFiles,
    /// A count, and if it is not 0 the lower and upper bound of the range tombstones.
    Ranges,
}

use FieldPart::{
    Checksum, Event, Number, Options, PreparedFiles, PreparedGid, Ranges, Text, Vlogs,
};

type FieldParts = &'static [(&'static str, FieldPart)];

/// Tag, name and parts of each field.
const FIELDS: &[(u64, &str, FieldParts)] = &[
    (1, "snapshot", &[]),
    (3, "counters", &[("next file", Number), ("next family", Number), ("next run", Number)]),
    (5, "family added", &[("family", Number), ("name", Text), ("options", Options)]),
    (7, "family dropped", &[("family", Number)]),
    (
        9,
        "klog added",
        &[
            ("family", Number),
            ("level", Number),
            ("run", Number),
            ("file", Number),
            ("bytes", Number),
            ("checksum", Checksum),
            ("entries", Number),
            ("tombstones", Number),
            ("smallest seq", Number),
            ("largest seq", Number),
            ("first key", Text),
            ("last key", Text),
            ("key bytes", Number),
            ("value bytes", Number),
            ("vlogs", Vlogs),
            ("range tombstones", Ranges),
        ],
    ),
    (67, "prepared", &[("operations", Number), ("gid", PreparedGid), ("files", PreparedFiles)]),
    (69, "decided", &[("gid", Text)]),
    (11, "klog removed", &[("family", Number), ("level", Number), ("file", Number)]),
    (
        13,
        "vlog added",
        &[("family", Number), ("file", Number), ("bytes", Number), ("checksum", Checksum)],
    ),
    (15, "vlog removed", &[("family", Number), ("file", Number)]),
    (17, "flushed", &[("family", Number), ("up to seq", Number)]),
    (19, "log added", &[("file", Number), ("first seq", Number)]),
    (21, "log removed", &[("file", Number)]),
    (25, "durable", &[("up to seq", Number)]),
    (27, "clean close", &[("file", Number), ("length", Number), ("last seq", Number)]),
    (29, "clock", &[("unix ms", Number)]),
    (
        31,
        "global sequence number",
        &[("family", Number), ("file", Number), ("seq of all entries", Number)],
    ),
    (33, "compaction filter", &[("family", Number), ("name", Text)]),
    (
        51,
        "log retained",
        &[("file", Number), ("first seq", Number), ("end seq", Number), ("bytes", Number)],
    ),
    (53, "retained log removed", &[("file", Number)]),
    (55, "family event", &[("seq", Number), ("family", Number), ("what", Event)]),
    (57, "contents start", &[("family", Number), ("with seq", Number)]),
    (59, "oldest readable", &[("seq", Number)]),
    (61, "named snapshot", &[("seq", Number), ("name", Text)]),
    (63, "named snapshot dropped", &[("name", Text)]),
    (65, "events discarded", &[("up to seq", Number)]),
];

/// The options of a column family.
const OPTIONS: &[(u64, &str, FieldPart)] = &[
    (1, "comparator", Text),
    (3, "memtable bytes", Number),
    (5, "value threshold", Number),
    (7, "block bytes", Number),
    (9, "codec", Number),
    (11, "filter bits", Number),
    (13, "target file bytes", Number),
    (15, "level-1 bytes", Number),
    (17, "level ratio", Number),
    (19, "compression effort", Number),
    (21, "comparator fingerprint", Checksum),
    (23, "merge operator", Text),
    (25, "isolation", Number),
];

/// Decodes the fields of an edit as far as possible; the error is the one that ended the decoding.
pub fn decode_edit(payload: &[u8]) -> (Vec<EditField>, Option<Error>) {
    let mut d = Decoder::new(payload);
    let mut fields = Vec::new();
    while !d.is_empty() {
        match decode_field(&mut d) {
            Ok(field) => fields.push(field),
            Err(e) => return (fields, Some(e)),
        }
    }
    (fields, None)
}

fn decode_field(d: &mut Decoder<'_>) -> Result<EditField> {
    let tag = d.varint()?;
    let body = d.bytes(limits::EDIT_BYTES_MAX)?;
    let Some((_, name, parts)) = FIELDS.iter().find(|(t, _, _)| *t == tag) else {
        return Ok(EditField {
            name: "unknown field",
            values: vec![("tag", json!(tag)), ("bytes", json!(body.len()))],
        });
    };
    let mut d = Decoder::new(body);
    let mut values = Vec::with_capacity(parts.len());
    for (part_name, part) in *parts {
        values.push((*part_name, decode_part(*part, &mut d)?));
    }
    if !d.is_empty() {
        values.push(("trailing bytes", json!(d.remaining())));
    }
    Ok(EditField { name, values })
}

fn decode_part(part: FieldPart, d: &mut Decoder<'_>) -> Result<Value> {
    Ok(match part {
        Number => json!(d.varint()?),
        Text => json!(escape(d.bytes(limits::KEY_BYTES_MAX)?)),
        Checksum => json!(format!("{:#018x}", d.u64()?)),
        Vlogs => {
            let mut vlogs = Vec::new();
            for _ in 0..d.varint()? {
                vlogs.push(json!({"file": d.varint()?, "bytes": d.varint()?}));
            }
            Value::Array(vlogs)
        }
        PreparedGid => {
            let record = d.bytes(limits::EDIT_BYTES_MAX)?;
            let mut d = Decoder::new(record);
            let gid_bytes = usize::from(d.u8()?);
            json!(escape(d.take(gid_bytes)?))
        }
        PreparedFiles => decode_prepared_files(d)?,
        Options => decode_family_options(d)?,
        Event => decode_family_event(d)?,
        Ranges => decode_range_tombstones(d)?,
    })
}

/// Decodes the files of a prepared transaction. A klog is listed as in the field "klog added", from
/// the file on.
fn decode_prepared_files(d: &mut Decoder<'_>) -> Result<Value> {
    let klog_parts = FIELDS.iter().find(|(tag, ..)| *tag == 9).map_or(&[][..], |f| &f.2[3..]);
    let vlog_parts = FIELDS.iter().find(|(tag, ..)| *tag == 13).map_or(&[][..], |f| &f.2[1..]);
    let file = |parts: &[(&str, FieldPart)], d: &mut Decoder<'_>| -> Result<Value> {
        let mut object = Map::new();
        for (name, part) in parts {
            object.insert((*name).into(), decode_part(*part, d)?);
        }
        Ok(Value::Object(object))
    };
    let mut families = Vec::new();
    for _ in 0..d.varint()? {
        let (family, klog_count, vlog_count) = (d.varint()?, d.varint()?, d.varint()?);
        let (mut klogs, mut vlogs) = (Vec::new(), Vec::new());
        for _ in 0..klog_count {
            klogs.push(file(klog_parts, d)?);
        }
        for _ in 0..vlog_count {
            vlogs.push(file(vlog_parts, d)?);
        }
        families.push(json!({"family": family, "klogs": klogs, "vlogs": vlogs}));
    }
    Ok(Value::Array(families))
}

/// Decodes the summary of a klog's range tombstones: their number, the start of the first and the
/// end of the last.
fn decode_range_tombstones(d: &mut Decoder<'_>) -> Result<Value> {
    let count = d.varint()?;
    if count == 0 {
        return Ok(json!(0));
    }
    Ok(
        json!({"count": count, "first begin": decode_range_bound(d)?, "last end": decode_range_bound(d)?}),
    )
}

/// Decodes a key boundary, which lies between keys (`docs/format/batch.md`).
fn decode_range_bound(d: &mut Decoder<'_>) -> Result<String> {
    let bytes = d.bytes(limits::KEY_BYTES_MAX + 1)?;
    Ok(match bytes.split_first() {
        Some((0, [])) => "before all keys".into(),
        Some((1, key)) => format!("before {}", escape(key)),
        Some((2, key)) => format!("after {}", escape(key)),
        Some((3, [])) => "after all keys".into(),
        _ => format!("malformed: {}", escape(bytes)),
    })
}

fn decode_family_event(d: &mut Decoder<'_>) -> Result<Value> {
    let name = |d: &mut Decoder<'_>| d.bytes(limits::FAMILY_NAME_BYTES_MAX).map(escape);
    Ok(match d.varint()? {
        1 => json!({"created": name(d)?}),
        2 => json!({"dropped": name(d)?}),
        3 => json!({"renamed": [name(d)?, name(d)?]}),
        4 => json!("cleared"),
        5 => json!({"cloned": name(d)?, "of": d.varint()?}),
        6 => json!("loaded"),
        other => json!({"kind": other}),
    })
}

fn decode_family_options(d: &mut Decoder<'_>) -> Result<Value> {
    let mut object = Map::new();
    while !d.is_empty() {
        let tag = d.varint()?;
        let body = d.bytes(limits::EDIT_BYTES_MAX)?;
        match OPTIONS.iter().find(|(t, _, _)| *t == tag) {
            // A text extends to the end of its field, without a length prefix.
            Some((_, name, Text)) => object.insert((*name).into(), escape(body).into()),
            Some((_, name, part)) => {
                object.insert((*name).into(), decode_part(*part, &mut Decoder::new(body))?)
            }
            None => object.insert(format!("option {tag}"), format!("{} bytes", body.len()).into()),
        };
    }
    Ok(Value::Object(object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::codec::{put_bytes, put_varint};

    fn put(out: &mut Vec<u8>, tag: u64, body: &[u8]) {
        put_varint(out, tag);
        put_bytes(out, body);
    }

    #[test]
    fn fields_are_named() {
        let mut edit = Vec::new();
        put(&mut edit, 1, b"");
        put(&mut edit, 17, &[3, 9]);
        put(&mut edit, 13, &[0, 7, 100, 1, 0, 0, 0, 0, 0, 0, 0]);
        put(&mut edit, 55, b"\x09\x03\x03\x01a\x01b");
        put(&mut edit, 40, b"later");
        let (fields, error) = decode_edit(&edit);
        assert!(error.is_none());
        let names: Vec<_> = fields.iter().map(|f| f.name).collect();
        assert_eq!(names, ["snapshot", "flushed", "vlog added", "family event", "unknown field"]);
        assert_eq!(fields[3].values[2].1, json!({"renamed": ["a", "b"]}));
        assert_eq!(fields[1].values, [("family", json!(3)), ("up to seq", json!(9))]);
        assert_eq!(fields[2].values[3].1, json!("0x0000000000000001"));
    }

    #[test]
    fn clock_global_seq_filter_and_ranges_are_decoded() {
        let mut edit = Vec::new();
        put(&mut edit, 29, &[0x80, 0x01]);
        put(&mut edit, 31, &[2, 7, 9]);
        put(&mut edit, 33, b"\x02\x03ttl");
        let klog =
            b"\0\x01\x05\x07\x64\x01\0\0\0\0\0\0\0\x03\x01\x08\x09\x01a\x01z\x03\x03\0\x02\x02\x01b\x01\x03";
        put(&mut edit, 9, klog);
        put(&mut edit, 5, b"\0\x01f\x17\x07counter\x19\x01\x03");
        let (fields, error) = decode_edit(&edit);
        assert!(error.is_none(), "{error:?}");
        assert_eq!((fields[0].name, &fields[0].values[0]), ("clock", &("unix ms", json!(128))));
        let global_seq =
            [("family", json!(2)), ("file", json!(7)), ("seq of all entries", json!(9))];
        assert_eq!(
            (fields[1].name, &fields[1].values[..]),
            ("global sequence number", &global_seq[..])
        );
        assert_eq!(fields[2].name, "compaction filter");
        assert_eq!(fields[2].values, [("family", json!(2)), ("name", json!("ttl"))]);
        let ranges = json!({"count": 2, "first begin": "before b", "last end": "after all keys"});
        assert_eq!(fields[3].values.last(), Some(&("range tombstones", ranges)));
        assert_eq!(fields[4].values[2].1, json!({"merge operator": "counter", "isolation": 3}));
    }

    #[test]
    fn prepared_transaction_of_the_format_page_is_decoded() {
        let page = include_str!("../../../../../docs/format/manifest.md");
        let example = |n: usize| -> Vec<u8> {
            let block = page.split("```hex").nth(n).unwrap().split("```").next().unwrap();
            let hex: String = block.lines().map(|l| l.split(';').next().unwrap().trim()).collect();
            let byte = |i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
            (0..hex.len()).step_by(2).map(byte).collect()
        };
        let (fields, error) = decode_edit(&example(3));
        assert!(error.is_none() && fields.len() == 1, "{error:?}");
        assert_eq!(fields[0].values[..2], [("operations", json!(2)), ("gid", json!("order 7"))]);
        let files = &fields[0].values[2].1[0];
        assert_eq!((&files["family"], &files["klogs"][0]["last key"]), (&json!(0), &json!("star")));
        assert_eq!(files["vlogs"][0]["bytes"], json!(5100));
        let (fields, _) = decode_edit(&example(4));
        assert_eq!((fields[0].name, &fields[0].values[0].1), ("decided", &json!("order 7")));
    }

    /// Returns the numbers at the start of these strings, sorted.
    fn numbers<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<u64> {
        let digits = |s: &str| s.chars().take_while(char::is_ascii_digit).collect::<String>();
        let mut all: Vec<u64> = texts.filter_map(|s| digits(s.trim_start()).parse().ok()).collect();
        all.sort_unstable();
        all
    }

    fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
        let start = text.find(from).unwrap_or_else(|| panic!("{from:?} was not found"));
        let rest = &text[start..];
        &rest[..rest.find(to).unwrap_or(rest.len())]
    }

    #[test]
    fn docs_codec_and_dump_list_the_same_fields() {
        let page = include_str!("../../../../../docs/format/manifest.md");
        let codec = include_str!("../../../../engine/src/catalog/manifest/codec.rs");
        let rows = between(page, "| tag | field | body |", "\n\n");
        let in_page = numbers(rows.lines().map(|l| l.trim_start_matches(['|', ' '])));
        let constants = codec.lines().filter(|l| l.starts_with("const ") && l.contains(": u64 = "));
        let in_codec = numbers(constants.filter_map(|l| l.split(" = ").nth(1)));
        let mut in_dump: Vec<u64> = FIELDS.iter().map(|(tag, ..)| *tag).collect();
        in_dump.sort_unstable();
        assert!(in_dump.len() > 20);
        assert_eq!(in_page, in_codec, "docs/format/manifest.md and the codec");
        assert_eq!(in_page, in_dump, "docs/format/manifest.md and the dump");
    }

    #[test]
    fn docs_codec_and_dump_list_the_same_options() {
        let page = include_str!("../../../../../docs/format/manifest.md");
        let codec = include_str!("../../../../engine/src/catalog/manifest/codec.rs");
        let paragraph =
            between(page, "Family options are themselves fields", "\n\n").replace('\n', " ");
        // Text in parentheses explains a value; a number after a comma, a colon or a full stop is a
        // tag.
        let outside: String =
            paragraph.split('(').map(|p| p.split_once(')').map_or(p, |(_, rest)| rest)).collect();
        let list = outside.split_once(':').map_or("", |(_, list)| list);
        let in_page = numbers(list.split([',', '.', ':']));
        let arms = between(codec, "fn take_settings", "\n}\n");
        let arms = arms.lines().filter(|l| l.contains(" => ")).map(str::trim_start);
        let in_codec = numbers(arms);
        let mut in_dump: Vec<u64> = OPTIONS.iter().map(|(tag, ..)| *tag).collect();
        in_dump.sort_unstable();
        assert!(in_dump.len() > 10);
        assert_eq!(in_page, in_codec, "docs/format/manifest.md and the codec");
        assert_eq!(in_page, in_dump, "docs/format/manifest.md and the dump");
    }

    #[test]
    fn arbitrary_bytes_do_not_panic() {
        let mut edit = Vec::new();
        put(&mut edit, 9, &[1; 40]);
        put(&mut edit, 9, &[255; 40]);
        let (fields, error) = decode_edit(&edit);
        assert_eq!(fields.len(), 1);
        assert!(error.is_some());
        for len in 0..edit.len() {
            let _ = decode_edit(&edit[..len]);
        }
    }
}
