//! Columns, keys and indexes in the notation of the command line: `id:i64,name:text?`,
//! `city,day desc`, `by_name=last_name,first_name`.

use crate::failure::{Failure, Result};
use perigee_tables::{Column, ColumnType, IndexDef, KeyColumn, Order, Schema};

/// Parses `NAME:TYPE` or `NAME:TYPE?` (nullable), separated by commas.
pub fn parse_columns(text: &str) -> Result<Vec<Column>> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(parse_column).collect()
}

fn parse_column(text: &str) -> Result<Column> {
    let invalid = |reason: String| {
        let types: Vec<&str> = ColumnType::ALL.iter().map(|t| t.name()).collect();
        Failure::usage(format!("--columns: {reason}")).hint(format!(
            "write NAME:TYPE, or NAME:TYPE? for a column that can be NULL; the types are {}",
            types.join(", ")
        ))
    };
    let Some((name, type_name)) = text.rsplit_once(':') else {
        return Err(invalid(format!("{text:?} has no type")));
    };
    let (type_name, nullable) = match type_name.strip_suffix('?') {
        Some(type_name) => (type_name, true),
        None => (type_name, false),
    };
    let column_type = ColumnType::from_name(type_name)
        .ok_or_else(|| invalid(format!("there is no type {type_name:?}")))?;
    let column = Column::new(name, column_type);
    Ok(if nullable { column.nullable() } else { column })
}

/// Returns columns in the notation of [`parse_columns`].
pub fn format_columns(schema: &Schema) -> String {
    let format =
        |c: &Column| format!("{}:{}{}", c.name, c.column_type, if c.nullable { "?" } else { "" });
    schema.columns().iter().map(format).collect::<Vec<_>>().join(",")
}

/// Parses names of columns, each with an optional `desc` or `asc`, separated by commas.
pub fn parse_ordered_columns(text: &str) -> Vec<(String, Order)> {
    let parse = |part: &str| match part.rsplit_once(' ') {
        Some((name, order)) if order.eq_ignore_ascii_case("desc") => {
            (name.trim().to_owned(), Order::Descending)
        }
        Some((name, order)) if order.eq_ignore_ascii_case("asc") => {
            (name.trim().to_owned(), Order::Ascending)
        }
        _ => (part.to_owned(), Order::Ascending),
    };
    text.split(',').map(str::trim).map(parse).collect()
}

/// Returns columns in the notation of [`parse_ordered_columns`].
pub fn format_ordered_columns(columns: &[KeyColumn]) -> String {
    let format = |c: &KeyColumn| {
        format!("{}{}", c.column, if c.order == Order::Descending { " desc" } else { "" })
    };
    columns.iter().map(format).collect::<Vec<_>>().join(",")
}

/// Parses `NAME=COLUMN,COLUMN desc`.
pub fn parse_index(text: &str, unique: bool) -> Result<IndexDef> {
    let Some((name, columns)) = text.split_once('=') else {
        let option = if unique { "--unique-index" } else { "--index" };
        return Err(Failure::usage(format!("{option}: {text:?} has no columns"))
            .hint("write NAME=COLUMN or NAME=COLUMN,COLUMN desc"));
    };
    let columns = parse_ordered_columns(columns);
    let index =
        columns.into_iter().fold(IndexDef::new(name), |i, (column, order)| i.add(column, order));
    Ok(if unique { index.unique() } else { index })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_round_trip() {
        let text = "id:i64,name:text?,time:ms:timestamp";
        let columns = parse_columns(text).unwrap();
        assert_eq!(columns[2].name, "time:ms");
        let schema = columns.into_iter().fold(Schema::new(), Schema::add);
        assert_eq!(format_columns(&schema), text);
        for bad in ["id", "id:int", "id:"] {
            assert!(parse_columns(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_and_indexes_are_parsed() {
        let key = parse_ordered_columns("city, day of year desc,n asc");
        let expected = [
            ("city".to_owned(), Order::Ascending),
            ("day of year".to_owned(), Order::Descending),
            ("n".to_owned(), Order::Ascending),
        ];
        assert_eq!(key, expected);
        let index = parse_index("by_mail=mail,id desc", true).unwrap();
        assert!(index.is_unique());
        assert_eq!(format_ordered_columns(index.columns()), "mail,id desc");
        assert!(parse_index("by_mail", false).is_err());
    }
}
