//! Compares a declared schema with the stored one: what fits, what is added, what is refused.

use crate::error::{Error, Result};
use crate::ordered::Order;
use crate::schema::stored::{OrderedColumn, StoredColumn, StoredSchema};
use crate::schema::{Column, Schema};

/// Returns the columns of `declared` that the stored schema lacks, in order.
///
/// # Errors
/// `SchemaMismatch`, with the column and what to do, if the schemas do not fit: another key,
/// another type, a stored column that is not declared, a new column without a default.
pub fn missing_columns(stored: &StoredSchema, declared: &Schema) -> Result<Vec<Column>> {
    check_key(stored, declared)?;
    let mut missing = Vec::new();
    for column in declared.columns() {
        match stored.column_named(&column.name) {
            Some(existing) => check_column(existing, column)?,
            None if column.nullable || column.default.is_some() => missing.push(column.clone()),
            None => {
                let text = "the stored table lacks this column: make it an Option or give it a \
                            default with #[row(default = ...)], so that existing rows have a value";
                return Err(Error::mismatch(text).in_column(&column.name));
            }
        }
    }
    for existing in stored.visible_columns() {
        if declared.position(&existing.name).is_none() {
            let text = "the stored table has this column, but the row type does not declare it: \
                        add the field, or drop or rename the column with alter_table";
            return Err(Error::mismatch(text).in_column(&existing.name));
        }
    }
    Ok(missing)
}

fn check_key(stored: &StoredSchema, declared: &Schema) -> Result<()> {
    let declared: Vec<(&str, Order)> =
        declared.key_columns().iter().map(|k| (k.column.as_str(), k.order)).collect();
    let name = |k: &OrderedColumn| stored.column(k.column).map_or("", |c| c.name.as_str());
    let existing: Vec<(&str, Order)> = stored.key.iter().map(|k| (name(k), k.order)).collect();
    if declared == existing {
        return Ok(());
    }
    let show = |key: &[(&str, Order)]| {
        let column = |(name, order): &(&str, Order)| match order {
            Order::Ascending => (*name).to_owned(),
            Order::Descending => format!("{name} desc"),
        };
        key.iter().map(column).collect::<Vec<_>>().join(", ")
    };
    let text = format!(
        "the primary key is ({}), but the row type declares ({}): a key cannot be changed; declare \
         the stored key, or copy the rows to a new table",
        show(&existing),
        show(&declared)
    );
    let column = declared.iter().zip(&existing).find(|(a, b)| a != b).map(|(a, _)| a.0);
    Err(Error::mismatch(text).in_column(column.unwrap_or(existing[0].0)))
}

fn check_column(existing: &StoredColumn, declared: &Column) -> Result<()> {
    let show = |column_type: crate::value::ColumnType, nullable: bool| {
        if nullable { format!("nullable {column_type}") } else { column_type.to_string() }
    };
    let stored = show(existing.column_type, existing.nullable);
    let wanted = show(declared.column_type, declared.nullable);
    if stored == wanted {
        return Ok(());
    }
    let text = format!(
        "the column has type {stored}, but the row type declares {wanted}: the type of a column \
         cannot be changed; add a column of another name, or copy the rows to a new table"
    );
    Err(Error::mismatch(text).in_column(&existing.name))
}
