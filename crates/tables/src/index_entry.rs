//! Entries of secondary indexes, encoded from rows and decoded to primary keys.
//!
//! ```text
//! not unique, or a NULL in an indexed column:
//!   key      u8 index number, components of the index, components of the key that the index lacks
//!   value    empty
//! unique, no NULL:
//!   key      u8 index number, components of the index
//!   value    components of the key that the index lacks
//! ```
//!
//! So two rows with the same values in a unique index have the same entry key: transactions that
//! write them concurrently conflict, and one that comes later finds the entry.

use crate::binding::{Binding, IndexPlan, KeyColumnSource};
use crate::error::Malformed;
use crate::ordered::{KeyFormat, KeyReader};
use crate::row::Row;
use crate::table_state::ROWS;

/// An encoded entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// Position of the index in [`Binding::indexes`].
    pub index: usize,
    /// True if no other row may have an entry of this key.
    pub exclusive: bool,
}

/// Splits an encoded primary key into its components.
fn split_key<'a>(key: &'a [u8], format: &KeyFormat) -> Result<Vec<&'a [u8]>, Malformed> {
    let mut reader = KeyReader::new(key);
    let components = format.iter().map(|component| Ok(reader.skip(*component)?.0));
    let components = components.collect::<Result<_, Malformed>>()?;
    reader.finish()?;
    Ok(components)
}

/// Appends the components of the primary key that the index lacks.
fn append_missing(plan: &IndexPlan, key_components: &[&[u8]], out: &mut Vec<u8>) {
    for (source, component) in plan.key_sources.iter().zip(key_components) {
        if *source == KeyColumnSource::Appended {
            out.extend_from_slice(component);
        }
    }
}

/// Returns the entry of a row in the index at position `index`. `row_key` is the key of the row,
/// without the index number.
pub fn index_entry<R: Row>(
    binding: &Binding,
    index: usize,
    row: &R,
    row_key: &[u8],
) -> Result<IndexEntry, Malformed> {
    let plan = &binding.indexes[index];
    let key_components = split_key(row_key, &binding.key)?;
    let mut key = vec![plan.number];
    let mut has_null = false;
    for (component, field) in plan.columns.iter().zip(&plan.fields) {
        let field = field.ok_or(Malformed::UnknownLayout)?;
        has_null |= row.write_component(field as usize, *component, &mut key);
    }
    let exclusive = plan.unique && !has_null;
    let mut value = Vec::new();
    let appended_to = if exclusive { &mut value } else { &mut key };
    append_missing(plan, &key_components, appended_to);
    Ok(IndexEntry { key, value, index, exclusive })
}

/// Returns the entries of a row in all indexes.
pub fn index_entries<R: Row>(
    binding: &Binding,
    row: &R,
    row_key: &[u8],
) -> Result<Vec<IndexEntry>, Malformed> {
    (0..binding.indexes.len()).map(|i| index_entry(binding, i, row, row_key)).collect()
}

/// Replaces `out` by the key of the row that an entry belongs to, with the index number of rows.
pub fn read_row_key(
    plan: &IndexPlan,
    key_format: &KeyFormat,
    entry_key: &[u8],
    entry_value: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let mut reader = KeyReader::new(entry_key.get(1..).unwrap_or_default());
    let mut columns = Vec::with_capacity(plan.columns.len());
    let mut has_null = false;
    for component in &plan.columns {
        let (bytes, is_null) = reader.skip(*component)?;
        has_null |= is_null;
        columns.push(bytes);
    }
    if plan.unique && !has_null {
        reader.finish()?;
        reader = KeyReader::new(entry_value);
    }
    out.clear();
    out.push(ROWS);
    for (source, component) in plan.key_sources.iter().zip(key_format) {
        match *source {
            KeyColumnSource::Appended => out.extend_from_slice(reader.skip(*component)?.0),
            KeyColumnSource::IndexColumn { position, inverted } => {
                let start = out.len();
                out.extend_from_slice(columns[position]);
                if inverted {
                    out[start..].iter_mut().for_each(|b| *b = !*b);
                }
            }
        }
    }
    reader.finish()
}
