//! The encoding of a [`StoredSchema`] as the value of the key `00 01`.
//!
//! ```text
//! magic      4 bytes   "PTS1"
//! version    u32       little-endian; incremented by every change
//! flags      u8        1: a bulk load runs
//! ttl        varint    default time to live in milliseconds + 1; 0: none
//! next ids   varint    of the next column; varint of the next index
//! columns    varint    count; each:
//!              varint id, u8 type, u8 flags (1 nullable, 2 dropped, 4 has a default),
//!              string name, [string default, encoded as in a row]
//! key        varint    count; each: varint column id, u8 order (0 ascending, 1 descending)
//! layouts    varint    count; each: varint count, varint column ids
//! indexes    varint    count; each: u8 number, varint id, u8 flags (1 unique, 2 building),
//!              string name, varint count, each: varint column id, u8 order
//!
//! string     varint length, bytes
//! ```
//!
//! The decoder is total, and checks every rule that later code relies on: ids are known and unique,
//! the next ids are unused, key columns are in no layout, types of defaults fit.

use crate::error::{Error, Malformed, Result};
use crate::limits::{COLUMNS_MAX, INDEX_COLUMNS_MAX, INDEXES_MAX, KEY_COLUMNS_MAX, LAYOUTS_MAX};
use crate::ordered::Order;
use crate::row_format::{read_varint, write_varint};
use crate::schema::stored::{
    ColumnId, IndexStatus, OrderedColumn, StoredColumn, StoredIndex, StoredSchema,
};
use crate::value::{ColumnType, Value};

const MAGIC: &[u8; 4] = b"PTS1";

/// Number of the first index; 0 is the metadata of the table, 1 are its rows.
pub const FIRST_INDEX_NUMBER: u8 = 2;

/// Returns the version of an encoded schema without decoding it.
pub fn encoded_version(bytes: &[u8]) -> Option<u32> {
    let rest = bytes.strip_prefix(MAGIC)?;
    Some(u32::from_le_bytes(*rest.first_chunk()?))
}

fn write_string(bytes: &[u8], out: &mut Vec<u8>) {
    write_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn write_ordered_columns(columns: &[OrderedColumn], out: &mut Vec<u8>) {
    write_varint(columns.len() as u64, out);
    for column in columns {
        write_varint(u64::from(column.column.0), out);
        out.push(u8::from(column.order == Order::Descending));
    }
}

/// Encodes a schema.
pub fn encode(schema: &StoredSchema) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&schema.version.to_le_bytes());
    out.push(u8::from(schema.loading));
    write_varint(schema.ttl_ms.map_or(0, |ms| ms.saturating_add(1)), &mut out);
    write_varint(u64::from(schema.next_column_id), &mut out);
    write_varint(u64::from(schema.next_index_id), &mut out);
    write_varint(schema.columns.len() as u64, &mut out);
    for column in &schema.columns {
        write_varint(u64::from(column.id.0), &mut out);
        let (nullable, dropped) = (u8::from(column.nullable), u8::from(column.dropped));
        let has_default = u8::from(column.default.is_some());
        out.extend_from_slice(&[
            column.column_type.code(),
            nullable | dropped << 1 | has_default << 2,
        ]);
        write_string(column.name.as_bytes(), &mut out);
        if let Some(default) = &column.default {
            write_string(default, &mut out);
        }
    }
    write_ordered_columns(&schema.key, &mut out);
    write_varint(schema.layouts.len() as u64, &mut out);
    for layout in &schema.layouts {
        write_varint(layout.len() as u64, &mut out);
        layout.iter().for_each(|id| write_varint(u64::from(id.0), &mut out));
    }
    write_varint(schema.indexes.len() as u64, &mut out);
    for index in &schema.indexes {
        out.push(index.number);
        write_varint(u64::from(index.id), &mut out);
        let building = u8::from(index.status == IndexStatus::Building);
        out.push(u8::from(index.unique) | building << 1);
        write_string(index.name.as_bytes(), &mut out);
        write_ordered_columns(&index.columns, &mut out);
    }
    out
}

/// Decodes a schema.
///
/// # Errors
/// `Corruption` if the bytes break the format.
pub fn decode(bytes: &[u8]) -> Result<StoredSchema> {
    read_schema(bytes).map_err(|e| {
        let what = match e {
            Malformed::Bytes(what) => what,
            Malformed::UnknownLayout => "an unknown layout",
        };
        Error::corruption(format!(
            "the stored schema is damaged, or written by a newer version: {what}"
        ))
    })
}

/// Reads the parts of an encoded schema.
struct SchemaReader<'a> {
    rest: &'a [u8],
}

impl<'a> SchemaReader<'a> {
    fn take(&mut self, n: usize) -> std::result::Result<&'a [u8], Malformed> {
        let Some((head, rest)) = self.rest.split_at_checked(n) else {
            return Err(Malformed::Bytes("it is cut off"));
        };
        self.rest = rest;
        Ok(head)
    }
    fn byte(&mut self) -> std::result::Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }
    fn varint(&mut self) -> std::result::Result<u64, Malformed> {
        read_varint(&mut self.rest)
    }
    fn id(&mut self) -> std::result::Result<u32, Malformed> {
        u32::try_from(self.varint()?).map_err(|_| Malformed::Bytes("an id is too large"))
    }
    /// Reads a count; each of the things counted takes at least a byte.
    fn count(&mut self, max: usize) -> std::result::Result<usize, Malformed> {
        let n = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        if n > max || n > self.rest.len() {
            return Err(Malformed::Bytes("a count is too large"));
        }
        Ok(n)
    }
    fn string(&mut self) -> std::result::Result<&'a [u8], Malformed> {
        let n = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        self.take(n)
    }
    fn name(&mut self) -> std::result::Result<String, Malformed> {
        let bytes = self.string()?.to_vec();
        String::from_utf8(bytes).map_err(|_| Malformed::Bytes("a name is not UTF-8"))
    }
    fn ordered_columns(
        &mut self,
        max: usize,
    ) -> std::result::Result<Vec<OrderedColumn>, Malformed> {
        let n = self.count(max)?;
        let mut columns = Vec::with_capacity(n);
        for _ in 0..n {
            let column = ColumnId(self.id()?);
            let order = match self.byte()? {
                0 => Order::Ascending,
                1 => Order::Descending,
                _ => return Err(Malformed::Bytes("an unknown order")),
            };
            columns.push(OrderedColumn { column, order });
        }
        Ok(columns)
    }
    fn column(&mut self) -> std::result::Result<StoredColumn, Malformed> {
        let id = ColumnId(self.id()?);
        let column_type = ColumnType::from_code(self.byte()?)
            .ok_or(Malformed::Bytes("an unknown column type"))?;
        let flags = self.byte()?;
        let name = self.name()?;
        let default = if flags & 4 != 0 { Some(self.string()?.to_vec()) } else { None };
        if Value::read_stored(column_type, default.as_deref()).is_err() {
            return Err(Malformed::Bytes("a default is no value of its column"));
        }
        let (nullable, dropped) = (flags & 1 != 0, flags & 2 != 0);
        Ok(StoredColumn { id, name, column_type, nullable, dropped, default })
    }
    fn index(&mut self) -> std::result::Result<StoredIndex, Malformed> {
        let number = self.byte()?;
        let id = self.id()?;
        let flags = self.byte()?;
        let name = self.name()?;
        let columns = self.ordered_columns(INDEX_COLUMNS_MAX)?;
        let status = if flags & 2 != 0 { IndexStatus::Building } else { IndexStatus::Ready };
        Ok(StoredIndex { number, id, name, unique: flags & 1 != 0, status, columns })
    }
}

fn read_schema(bytes: &[u8]) -> std::result::Result<StoredSchema, Malformed> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(Malformed::Bytes("it starts with other bytes"))?;
    let mut reader = SchemaReader { rest };
    let version = reader.take(4)?;
    let version = u32::from_le_bytes([version[0], version[1], version[2], version[3]]);
    let flags = reader.byte()?;
    let ttl_ms = reader.varint()?.checked_sub(1);
    let (next_column_id, next_index_id) = (reader.id()?, reader.id()?);
    let n = reader.count(COLUMNS_MAX)?;
    let columns = (0..n).map(|_| reader.column()).collect::<std::result::Result<_, _>>()?;
    let key = reader.ordered_columns(KEY_COLUMNS_MAX)?;
    let n = reader.count(LAYOUTS_MAX)?;
    let mut layouts = Vec::with_capacity(n);
    for _ in 0..n {
        let n = reader.count(COLUMNS_MAX)?;
        let ids = (0..n).map(|_| reader.id().map(ColumnId));
        layouts.push(ids.collect::<std::result::Result<_, _>>()?);
    }
    let n = reader.count(INDEXES_MAX)?;
    let indexes = (0..n).map(|_| reader.index()).collect::<std::result::Result<_, _>>()?;
    if !reader.rest.is_empty() {
        return Err(Malformed::Bytes("bytes after the indexes"));
    }
    let schema = StoredSchema {
        version,
        ttl_ms,
        loading: flags & 1 != 0,
        next_column_id,
        next_index_id,
        columns,
        key,
        layouts,
        indexes,
    };
    check_rules(&schema)?;
    Ok(schema)
}

/// Checks what later code relies on.
fn check_rules(schema: &StoredSchema) -> std::result::Result<(), Malformed> {
    let mut ids: Vec<u32> = schema.columns.iter().map(|c| c.id.0).collect();
    ids.sort_unstable();
    if ids.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Malformed::Bytes("two columns have the same id"));
    }
    let column_ids_end = ids.last().is_some_and(|id| *id >= schema.next_column_id);
    if column_ids_end || schema.indexes.iter().any(|i| i.id >= schema.next_index_id) {
        return Err(Malformed::Bytes("the next id of a column or index is in use"));
    }
    let is_known = |id: ColumnId| ids.binary_search(&id.0).is_ok();
    let key_column = |k: &OrderedColumn| {
        schema.column(k.column).is_some_and(|column| !column.nullable && !column.dropped)
    };
    if schema.key.is_empty() || !schema.key.iter().all(key_column) {
        return Err(Malformed::Bytes("a key column is unknown, dropped or nullable"));
    }
    let in_layout = |id: &ColumnId| is_known(*id) && !schema.is_key_column(*id);
    if schema.layouts.is_empty() || !schema.layouts.iter().flatten().all(in_layout) {
        return Err(Malformed::Bytes("a layout has an unknown column, or one of the key"));
    }
    for (i, index) in schema.indexes.iter().enumerate() {
        let known = index.columns.iter().all(|c| is_known(c.column));
        let number = index.number;
        let unique = schema.indexes[..i].iter().all(|earlier| earlier.number != number);
        if !known || !unique || index.columns.is_empty() || number < FIRST_INDEX_NUMBER {
            return Err(Malformed::Bytes("an index has an unknown column or a wrong number"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Column, Schema};
    use crate::testing::Rng;
    use std::time::Duration;

    fn sample() -> StoredSchema {
        let schema = Schema::new()
            .key("id", ColumnType::U64)
            .column("name", ColumnType::Text)
            .add(Column::new("age", ColumnType::U8).nullable().default_value(18u8))
            .ttl(Duration::from_secs(1));
        let mut stored = StoredSchema::new(&schema);
        stored.next_index_id = 2;
        stored.indexes.push(StoredIndex {
            number: 2,
            id: 1,
            name: "by_age".to_owned(),
            unique: true,
            status: IndexStatus::Building,
            columns: vec![OrderedColumn { column: ColumnId(3), order: Order::Descending }],
        });
        stored
    }

    /// The example of docs/format/tables.md.
    #[test]
    fn schema_has_the_documented_bytes() {
        let hex = "50545331 01000000 00 e907 04 02 \
                   03 01 0a 00 02 6964 02 10 00 04 6e616d65 03 07 05 03 616765 01 12 \
                   01 01 00 01 02 03 02 01 02 01 03 06 62795f616765 01 03 01";
        let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
        let bytes: Vec<u8> = digits.chunks(2).map(|d| (d[0] * 16 + d[1]) as u8).collect();
        assert_eq!(encode(&sample()), bytes);
        let page = include_str!("../../../../docs/format/tables.md");
        let squeeze = |text: &str| text.split_whitespace().collect::<String>();
        assert!(squeeze(page).contains(&squeeze(hex)), "the example in tables.md");
    }

    #[test]
    fn schemas_are_read_back() {
        let bytes = encode(&sample());
        assert_eq!(decode(&bytes).unwrap(), sample());
        assert_eq!(encoded_version(&bytes), Some(1));
    }

    #[test]
    fn next_ids_must_be_unused() {
        let (mut column, mut index) = (sample(), sample());
        column.next_column_id = 3;
        index.next_index_id = 1;
        for schema in [column, index] {
            assert!(decode(&encode(&schema)).unwrap_err().message().contains("in use"));
        }
        let mut last = sample();
        last.next_column_id = u32::MAX;
        let mut last = decode(&encode(&last)).unwrap();
        last.add_column(&Column::new("new", ColumnType::U8).nullable()).unwrap_err();
    }

    #[test]
    fn damaged_schemas_are_refused_without_panic() {
        let bytes = encode(&sample());
        for cut in 0..bytes.len() {
            decode(&bytes[..cut]).unwrap_err();
        }
        let mut rng = Rng(5);
        for _ in 0..5000 {
            let mut damaged = bytes.clone();
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(damaged.len() as u64) as usize;
                damaged[at] = rng.next() as u8;
            }
            let _ = decode(&damaged);
        }
    }
}
