//! Output of a dump: the parts of the file (records, frames), their entries, and damage; as text or
//! as JSON lines.

use crate::database_args::KeyFormat;
use crate::failure::Result;
use crate::output::Output;
use crate::text::{escape, put_json};
use perigee_base::{Error, FileHeader, ValueRef};
use serde_json::{Map, Value, json};

use crate::commands::scan::preview;

/// Receives and prints the output of the decoders.
pub struct DumpWriter<'a> {
    out: &'a mut Output,
    form: KeyFormat,
    values: bool,
    entries_left: u64,
    entries: u64,
    damage: u64,
}

/// An entry of a batch or of a table.
pub struct DumpEntry<'a> {
    /// Sequence number.
    pub seq: u64,
    /// Id of the column family, in files that store one per entry.
    pub family: Option<u32>,
    /// The key.
    pub key: &'a [u8],
    /// Its value or tombstone.
    pub value: ValueRef<'a>,
}

impl<'a> DumpWriter<'a> {
    /// Creates a writer to `out` that prints at most `limit` entries, with full values if `values`.
    pub fn new(
        out: &'a mut Output,
        form: KeyFormat,
        values: bool,
        limit: Option<u64>,
    ) -> DumpWriter<'a> {
        DumpWriter {
            out,
            form,
            values,
            entries_left: limit.unwrap_or(u64::MAX),
            entries: 0,
            damage: 0,
        }
    }

    /// Prints the first line.
    pub fn write_file_line(&mut self, name: &str, kind: &str, bytes: u64) -> Result<()> {
        let value = json!({"file": name, "kind": kind, "bytes": bytes});
        self.out.json_or_text(&value, format!("{name}: {kind}, {bytes} bytes"))
    }

    /// Prints the file header.
    pub fn write_header(&mut self, h: &FileHeader) -> Result<()> {
        let value = json!({"offset": 0, "header": {
            "database": format!("{:#018x}", h.database), "file_id": h.file.0, "a": h.a, "b": h.b,
        }});
        let text = format!(
            "@0 header: database {:#018x}, file {}, A {}, B {:#x}",
            h.database, h.file, h.a, h.b
        );
        self.out.json_or_text(&value, text)
    }

    /// Prints a part of the file (a record or a frame) with its fields in this order.
    pub fn write_part(&mut self, offset: u64, what: &str, fields: &[(&str, Value)]) -> Result<()> {
        if self.out.json {
            let mut object = Map::new();
            object.insert("offset".into(), offset.into());
            object.insert("part".into(), what.into());
            object.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
            return self.out.json_line(&Value::Object(object));
        }
        let fields: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name} {}", plain_text(value))).collect();
        self.out.line(format!("@{offset} {what}: {}", fields.join(", ")))
    }

    /// Prints a line below a part: a field of an edit, or a property.
    pub fn write_detail(&mut self, name: &str, fields: &[(&str, Value)]) -> Result<()> {
        if self.out.json {
            let fields: Map<String, Value> =
                fields.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect();
            return self.out.json_line(&json!({"field": name, "values": fields}));
        }
        let fields: Vec<String> =
            fields.iter().map(|(n, v)| format!("{n} {}", plain_text(v))).collect();
        self.out.line(format!("  {name}: {}", fields.join(", ")).trim_end_matches([':', ' ']))
    }

    /// Returns true if the limit of entries is not reached.
    pub fn wants_entries(&self) -> bool {
        self.entries_left > 0
    }

    /// Prints an entry, unless the limit is reached.
    pub fn write_entry(&mut self, e: &DumpEntry<'_>) -> Result<()> {
        self.entries += 1;
        if self.entries_left == 0 {
            return Ok(());
        }
        self.entries_left -= 1;
        if self.out.json { self.write_entry_json(e) } else { self.write_entry_text(e) }
    }

    fn write_entry_text(&mut self, e: &DumpEntry<'_>) -> Result<()> {
        let key = self.form.format_key(e.key);
        let family = e.family.map(|f| format!(" family {f}")).unwrap_or_default();
        let until = e.value.expiry().map(|x| format!(" until {}", x.0)).unwrap_or_default();
        let line = match e.value {
            ValueRef::Tombstone => format!("  {}{family} delete {key}", e.seq),
            ValueRef::SingleDelete => format!("  {}{family} single delete {key}", e.seq),
            ValueRef::Inline(v) | ValueRef::InlineExpiring(v, _) => {
                format!("  {}{family} put{until} {key}\t{}", e.seq, self.value_text(v))
            }
            ValueRef::Operand(v) => {
                format!("  {}{family} merge {key}\t{}", e.seq, self.value_text(v))
            }
            ValueRef::OperandPointer(p) => format!(
                "  {}{family} merge {key}\t-> vlog {} at {}, {} bytes stored, {} bytes",
                e.seq, p.file, p.offset, p.stored_bytes, p.value_bytes
            ),
            ValueRef::Pointer(p) | ValueRef::PointerExpiring(p, _) => format!(
                "  {}{family} put{until} {key}\t-> vlog {} at {}, {} bytes stored, {} bytes",
                e.seq, p.file, p.offset, p.stored_bytes, p.value_bytes
            ),
        };
        self.out.line(line)
    }

    /// Returns a value as text, shortened unless full values are requested.
    pub fn value_text(&self, value: &[u8]) -> String {
        if self.values { escape(value) } else { preview(value) }
    }

    fn write_entry_json(&mut self, e: &DumpEntry<'_>) -> Result<()> {
        let mut object = Map::new();
        object.insert("seq".into(), e.seq.into());
        if let Some(family) = e.family {
            object.insert("family".into(), family.into());
        }
        put_json(&mut object, "key", e.key);
        if let Some(x) = e.value.expiry() {
            object.insert("expires_at_ms".into(), x.0.into());
        }
        let kind = match e.value {
            ValueRef::Tombstone => "delete",
            ValueRef::SingleDelete => "single delete",
            ValueRef::Inline(v) | ValueRef::InlineExpiring(v, _) | ValueRef::Operand(v) => {
                object.insert("value_bytes".into(), v.len().into());
                if self.values {
                    put_json(&mut object, "value", v);
                }
                if e.value.is_operand() { "merge" } else { "put" }
            }
            ValueRef::Pointer(p)
            | ValueRef::PointerExpiring(p, _)
            | ValueRef::OperandPointer(p) => {
                object.insert("pointer".into(), json!({
                    "file": p.file.0, "offset": p.offset, "stored_bytes": p.stored_bytes, "value_bytes": p.value_bytes,
                }));
                if e.value.is_operand() { "merge" } else { "put" }
            }
        };
        object.insert("kind".into(), kind.into());
        self.out.json_line(&Value::Object(object))
    }

    /// Prints damage at `offset`.
    pub fn write_damage(&mut self, offset: u64, e: &Error) -> Result<()> {
        self.damage += 1;
        let value = json!({"offset": offset, "damage": {
            "kind": e.kind().name(), "message": e.message(), "expected": e.expected_value(), "got": e.got_value(),
        }});
        self.out.json_or_text(&value, format!("@{offset} DAMAGED: {e}"))
    }

    /// Prints a remark about an offset that does not count as damage.
    pub fn write_remark(&mut self, offset: u64, text: &str) -> Result<()> {
        self.out
            .json_or_text(&json!({"offset": offset, "remark": text}), format!("@{offset} {text}"))
    }

    /// Prints the last line. Returns true if there was damage.
    pub fn finish(self) -> Result<bool> {
        let value = json!({"end": {"entries": self.entries, "damage": self.damage}});
        let damage =
            if self.damage > 0 { format!(", {} errors", self.damage) } else { String::new() };
        self.out.json_or_text(&value, format!("end: {} entries{damage}", self.entries))?;
        Ok(self.damage > 0)
    }
}

/// Formats a JSON value as plain text.
fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(object) => {
            let fields: Vec<String> =
                object.iter().map(|(n, v)| format!("{n} {}", plain_text(v))).collect();
            format!("({})", fields.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(plain_text).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}
