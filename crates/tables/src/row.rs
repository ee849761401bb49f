//! [`Row`]: what can be a row of a table: a struct that derives it, or `Vec<Value>` for rows whose
//! schema is known at run time only.

use crate::binding::{Binding, StoredRow};
use crate::error::{Error, Malformed, Result};
use crate::key::PrimaryKey;
use crate::ordered::{Component, write_value};
use crate::row_format::ColumnWriter;
use crate::schema::Schema;
use crate::value::Value;

/// A row of a table. Derive it for structs:
///
/// ```
/// use perigee_tables::{Row, TableDb, Timestamp};
///
/// #[derive(Row, Debug, PartialEq)]
/// struct Reading {
///     #[key]
///     sensor: u32,
///     #[key]
///     at: Timestamp,
///     value: f64,
///     note: Option<String>,
/// }
/// # let db = perigee::example_db()?;
/// let readings = db.table::<Reading>("readings")?;
/// let at = Timestamp::from_secs(60);
/// readings.insert(&Reading { sensor: 7, at, value: 0.5, note: None })?;
/// assert_eq!(readings.get((7, at))?.map(|r| r.value), Some(0.5));
/// # Ok::<(), perigee_tables::Error>(())
/// ```
///
/// Attributes of fields:
///
/// | attribute | meaning |
/// |---|---|
/// | `#[key]` | belongs to the primary key, ascending; the order of the fields is that of the key |
/// | `#[key(desc)]` | the same, descending |
/// | `#[row(rename = "name")]` | name of the column, instead of that of the field |
/// | `#[row(default = value)]` | value in rows that were written before the column was added |
///
/// `Vec<Value>` implements the trait for every schema: see [`DynTable`](crate::DynTable).
pub trait Row: Sized + 'static {
    /// The primary key: a tuple of the types of the key fields.
    type Key: PrimaryKey;

    /// Returns the schema that the type declares; `None`: any schema.
    #[doc(hidden)]
    fn declared_schema() -> Option<Schema>;
    /// Checks that the row fits the schema.
    #[doc(hidden)]
    fn check(&self, _: &Binding) -> Result<()> {
        Ok(())
    }
    /// Appends the primary key.
    #[doc(hidden)]
    fn write_key(&self, binding: &Binding, out: &mut Vec<u8>);
    /// Writes a field as a column of a row.
    #[doc(hidden)]
    fn write_column(&self, field: usize, writer: &mut ColumnWriter<'_>);
    /// Appends a field as a component of an index key; returns true if it is NULL.
    #[doc(hidden)]
    fn write_component(&self, field: usize, component: Component, out: &mut Vec<u8>) -> bool;
    /// Decodes a row.
    #[doc(hidden)]
    fn read(stored: &StoredRow<'_>) -> std::result::Result<Self, Malformed>;
    /// Replaces the row by a stored one, and reuses the memory of its fields if it can. After an
    /// error some fields may have been replaced.
    #[doc(hidden)]
    #[inline]
    fn replace_by(&mut self, stored: &StoredRow<'_>) -> std::result::Result<(), Malformed> {
        *self = Self::read(stored)?;
        Ok(())
    }
}

/// A row of any schema: the values of all columns, in the order of
/// [`Schema::columns`](crate::Schema::columns).
impl Row for Vec<Value> {
    type Key = Vec<Value>;

    fn declared_schema() -> Option<Schema> {
        None
    }
    fn check(&self, binding: &Binding) -> Result<()> {
        if self.len() != binding.fields.len() {
            let (n, columns) = (self.len(), binding.fields.len());
            return Err(Error::invalid(format!(
                "a row of {n} values for a table of {columns} columns: pass a value for each \
                 column, in the order of the schema"
            )));
        }
        for (value, field) in self.iter().zip(&binding.fields) {
            let fits = match value.column_type() {
                Some(own) => own == field.column_type,
                None => field.nullable,
            };
            if !fits {
                let column_type = field.column_type;
                let nullable = if field.nullable { " or NULL" } else { "" };
                let text = format!("{value} is no {column_type}{nullable}");
                return Err(Error::invalid(text).in_column(&field.name));
            }
        }
        Ok(())
    }
    fn write_key(&self, binding: &Binding, out: &mut Vec<u8>) {
        for (component, field) in binding.key.iter().zip(&binding.key_fields) {
            write_value(&self[*field as usize], *component, out);
        }
    }
    fn write_column(&self, field: usize, writer: &mut ColumnWriter<'_>) {
        self[field].write_stored(writer);
    }
    fn write_component(&self, field: usize, component: Component, out: &mut Vec<u8>) -> bool {
        write_value(&self[field], component, out);
        self[field].is_null()
    }
    fn read(stored: &StoredRow<'_>) -> std::result::Result<Self, Malformed> {
        let binding = stored.binding();
        let mut columns = vec![None; binding.fields.len()];
        stored.split(&mut columns)?;
        let mut row = vec![Value::Null; columns.len()];
        let mut key = stored.key();
        for (component, field) in binding.key.iter().zip(&binding.key_fields) {
            row[*field as usize] = key.read_value(*component)?;
        }
        key.finish()?;
        for (i, (stored, field)) in columns.iter().zip(&binding.fields).enumerate() {
            if binding.key_fields.iter().any(|key| *key as usize == i) {
                continue;
            }
            if stored.is_none() && !field.nullable {
                return Err(Malformed::Bytes("NULL in a column that is not nullable"));
            }
            row[i] = Value::read_stored(field.column_type, *stored)?;
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests;
