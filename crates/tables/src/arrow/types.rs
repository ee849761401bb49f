//! Arrow schemas of tables, and schemas of tables from those of Arrow.

use crate::error::{Error, Result};
use crate::schema::{Column, Schema};
use crate::value::ColumnType;
use arrow_schema::{DataType, Field, TimeUnit};
use std::collections::HashMap;

/// Digits of the decimals that represent integers of 128 bits.
pub const INTEGER_128_DIGITS: u8 = 39;

/// Metadata key and value of the extension type for UUIDs.
const EXTENSION_NAME: &str = "ARROW:extension:name";
const UUID_EXTENSION: &str = "arrow.uuid";

/// How UUIDs are represented in record batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UuidFormat {
    /// 16 bytes, with the extension type `arrow.uuid`.
    #[default]
    Binary,
    /// Text with hyphens, in lower case: it has the same order.
    Text,
}

/// Returns the Arrow type of a column.
pub(crate) fn data_type(column_type: ColumnType, uuids: UuidFormat) -> DataType {
    match column_type {
        ColumnType::Bool => DataType::Boolean,
        ColumnType::I8 => DataType::Int8,
        ColumnType::I16 => DataType::Int16,
        ColumnType::I32 => DataType::Int32,
        ColumnType::I64 => DataType::Int64,
        ColumnType::U8 => DataType::UInt8,
        ColumnType::U16 => DataType::UInt16,
        ColumnType::U32 => DataType::UInt32,
        ColumnType::U64 => DataType::UInt64,
        ColumnType::I128 | ColumnType::U128 => DataType::Decimal256(INTEGER_128_DIGITS, 0),
        ColumnType::F32 => DataType::Float32,
        ColumnType::F64 => DataType::Float64,
        ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        ColumnType::Uuid if uuids == UuidFormat::Text => DataType::Utf8,
        ColumnType::Uuid => DataType::FixedSizeBinary(16),
        ColumnType::Text => DataType::Utf8,
        ColumnType::Bytes => DataType::Binary,
    }
}

/// Returns the Arrow field of a column.
pub(crate) fn arrow_field(
    name: &str,
    column_type: ColumnType,
    nullable: bool,
    uuids: UuidFormat,
) -> Field {
    let field = Field::new(name, data_type(column_type, uuids), nullable);
    if column_type == ColumnType::Uuid && uuids == UuidFormat::Binary {
        let extension = (EXTENSION_NAME.to_owned(), UUID_EXTENSION.to_owned());
        return field.with_metadata(HashMap::from([extension]));
    }
    field
}

impl Schema {
    /// Returns the Arrow schema of record batches with all columns.
    ///
    /// ```
    /// use perigee_tables::{ColumnType, Schema, UuidFormat};
    /// let schema = Schema::new().key("id", ColumnType::Uuid).nullable("name", ColumnType::Text);
    /// let arrow = schema.to_arrow(UuidFormat::Text);
    /// assert!(arrow.field(1).is_nullable());
    /// ```
    pub fn to_arrow(&self, uuids: UuidFormat) -> arrow_schema::Schema {
        let field = |c: &Column| arrow_field(&c.name, c.column_type, c.nullable, uuids);
        arrow_schema::Schema::new(self.columns().iter().map(field).collect::<Vec<_>>())
    }
    /// Returns the schema of a table for rows of an Arrow schema, with these columns as its primary
    /// key, ascending. Columns of the key are not nullable, the others are as in `arrow`. Dates
    /// become timestamps, decimals without fraction integers.
    ///
    /// ```
    /// use perigee_tables::{ColumnType, Schema};
    /// use arrow_schema::{DataType, Field};
    /// let arrow = arrow_schema::Schema::new(vec![
    ///     Field::new("name", DataType::LargeUtf8, true),
    ///     Field::new("id", DataType::Int32, true),
    /// ]);
    /// let schema = Schema::from_arrow(&arrow, &["id"])?;
    /// assert_eq!(schema.columns()[0].column_type, ColumnType::Text);
    /// assert_eq!(schema.key_columns()[0].column, "id");
    /// # Ok::<(), perigee_tables::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if a column has a type that tables lack, or `key` names no column.
    pub fn from_arrow(arrow: &arrow_schema::Schema, key: &[&str]) -> Result<Schema> {
        let mut schema = Schema::new();
        for field in arrow.fields() {
            let mut column = Column::from_arrow(field)?;
            column.nullable &= !key.contains(&field.name().as_str());
            schema.push_column(column);
        }
        for name in key {
            schema.push_key_order((*name).to_owned(), crate::ordered::Order::Ascending);
        }
        schema.validate()?;
        Ok(schema)
    }
}

impl Column {
    /// Returns the column for a field of an Arrow schema, as of [`Schema::from_arrow`].
    ///
    /// ```
    /// use perigee_tables::{Column, ColumnType};
    /// use arrow_schema::{DataType, Field};
    /// let column = Column::from_arrow(&Field::new("born", DataType::Date32, true))?;
    /// assert_eq!((column.column_type, column.nullable), (ColumnType::Timestamp, true));
    /// # Ok::<(), perigee_tables::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if tables lack the type.
    pub fn from_arrow(field: &Field) -> Result<Column> {
        let column_type = column_type_of(field).ok_or_else(|| {
            let text = format!(
                "tables have no type for the Arrow type {}: leave the column out, or convert it",
                field.data_type()
            );
            Error::invalid(text).in_column(field.name())
        })?;
        let column = Column::new(field.name(), column_type);
        Ok(if field.is_nullable() { column.nullable() } else { column })
    }
}

/// Returns the column type that a field is converted to; `None` if there is none.
fn column_type_of(field: &Field) -> Option<ColumnType> {
    let is_uuid = field.metadata().get(EXTENSION_NAME).is_some_and(|name| name == UUID_EXTENSION);
    if is_uuid && *field.data_type() == DataType::FixedSizeBinary(16) {
        return Some(ColumnType::Uuid);
    }
    column_type_of_data(field.data_type())
}

fn column_type_of_data(data_type: &DataType) -> Option<ColumnType> {
    Some(match data_type {
        DataType::Boolean => ColumnType::Bool,
        DataType::Int8 => ColumnType::I8,
        DataType::Int16 => ColumnType::I16,
        DataType::Int32 => ColumnType::I32,
        DataType::Int64 => ColumnType::I64,
        DataType::UInt8 => ColumnType::U8,
        DataType::UInt16 => ColumnType::U16,
        DataType::UInt32 => ColumnType::U32,
        DataType::UInt64 => ColumnType::U64,
        DataType::Decimal128(digits, 0) | DataType::Decimal256(digits, 0) if *digits <= 18 => {
            ColumnType::I64
        }
        DataType::Decimal128(_, 0) | DataType::Decimal256(_, 0) => ColumnType::I128,
        DataType::Float16 | DataType::Float32 => ColumnType::F32,
        DataType::Float64 => ColumnType::F64,
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => ColumnType::Timestamp,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => ColumnType::Text,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => ColumnType::Bytes,
        DataType::Dictionary(_, values) => return column_type_of_data(values),
        _ => return None,
    })
}
