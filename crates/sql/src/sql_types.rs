//! Types in CREATE TABLE, and names of column types.

use crate::error::{Result, SqlError, SqlState};
use datafusion::sql::sqlparser::ast::{BinaryLength, CharacterLength, DataType, ExactNumberInfo};
use perigee_tables::ColumnType;

/// Returns the column type of a type in a statement.
///
/// # Errors
/// `UNSUPPORTED`, with the type to use instead.
pub fn column_type(data_type: &DataType) -> Result<ColumnType> {
    use DataType as D;
    Ok(match data_type {
        D::Boolean | D::Bool => ColumnType::Bool,
        D::TinyInt(None) => ColumnType::I8,
        D::SmallInt(None) | D::Int2(None) | D::Int16 => ColumnType::I16,
        D::Int(None) | D::Integer(None) | D::Int4(None) | D::Int32 => ColumnType::I32,
        D::BigInt(None) | D::Int8(None) | D::Int64 => ColumnType::I64,
        D::HugeInt | D::Int128 => ColumnType::I128,
        D::UTinyInt | D::TinyIntUnsigned(None) | D::UInt8 => ColumnType::U8,
        D::USmallInt | D::SmallIntUnsigned(None) | D::Int2Unsigned(None) | D::UInt16 => {
            ColumnType::U16
        }
        D::IntUnsigned(None) | D::IntegerUnsigned(None) | D::Int4Unsigned(None) | D::UInt32 => {
            ColumnType::U32
        }
        D::UBigInt | D::BigIntUnsigned(None) | D::Int8Unsigned(None) | D::UInt64 => ColumnType::U64,
        D::UHugeInt | D::UInt128 => ColumnType::U128,
        D::Real | D::Float4 | D::Float32 => ColumnType::F32,
        D::Float(ExactNumberInfo::None)
        | D::Float8
        | D::Float64
        | D::Double(ExactNumberInfo::None)
        | D::DoublePrecision => ColumnType::F64,
        D::Text | D::String(None) | D::Clob(None) => ColumnType::Text,
        D::Varchar(None) | D::CharacterVarying(None) | D::CharVarying(None) => ColumnType::Text,
        D::Bytea | D::Blob(None) | D::Varbinary(None) | D::Bytes(None) => ColumnType::Bytes,
        D::Timestamp(None, _) | D::Datetime(None) => ColumnType::Timestamp,
        D::Uuid => ColumnType::Uuid,
        D::Custom(name, parameters) if parameters.is_empty() => custom_type(&name.to_string())?,
        other => return Err(refuse(other)),
    })
}

/// Returns the column type for names that are no keywords of the parser.
fn custom_type(name: &str) -> Result<ColumnType> {
    Ok(match name.to_ascii_lowercase().as_str() {
        "hugeint" => ColumnType::I128,
        "uhugeint" => ColumnType::U128,
        "utinyint" => ColumnType::U8,
        "usmallint" => ColumnType::U16,
        "uinteger" | "uint" => ColumnType::U32,
        "ubigint" => ColumnType::U64,
        "serial" | "bigserial" | "smallserial" => {
            let hint = "there are no sequences: declare BIGINT and pass the values, or use UUID";
            return Err(SqlError::unsupported(format!("the type {name}"), hint));
        }
        _ => {
            let text = format!("there is no type {name}");
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, text).with_hint(KNOWN_TYPES));
        }
    })
}

const KNOWN_TYPES: &str = "types are BOOLEAN, TINYINT, SMALLINT, INTEGER, BIGINT, HUGEINT and the \
    unsigned UTINYINT to UHUGEINT, REAL, DOUBLE PRECISION, TEXT, BYTEA, TIMESTAMP, UUID";

fn refuse(data_type: &DataType) -> SqlError {
    use DataType as D;
    let hint = match data_type {
        D::Numeric(_) | D::Decimal(_) | D::Dec(_) | D::BigNumeric(_) | D::BigDecimal(_) => {
            "store an integer in the smallest unit (BIGINT), or DOUBLE PRECISION"
        }
        D::Date | D::Date32 => "use TIMESTAMP, with the time 00:00",
        D::Time(..) | D::Interval { .. } => "store a number of microseconds as BIGINT",
        D::JSON | D::JSONB => "use TEXT",
        D::Timestamp(Some(_), _) | D::Datetime(Some(_)) => {
            "times have microseconds: write TIMESTAMP without a precision"
        }
        D::Varchar(Some(CharacterLength::IntegerLength { .. } | CharacterLength::Max))
        | D::CharacterVarying(Some(_))
        | D::Char(_)
        | D::Character(_)
        | D::Nvarchar(_)
        | D::String(Some(_)) => "the length of text is not limited or padded: use TEXT",
        D::Varbinary(Some(BinaryLength::IntegerLength { .. } | BinaryLength::Max))
        | D::Binary(_)
        | D::Blob(Some(_)) => "the length of bytes is not limited or padded: use BYTEA",
        D::Array(_) | D::Struct(..) | D::Map(..) => "use a table of its own, or TEXT",
        _ => KNOWN_TYPES,
    };
    SqlError::unsupported(format!("the type {data_type}"), hint)
}

/// Returns the name of a column type in SQL.
///
/// ```
/// use perigee_tables::ColumnType;
/// assert_eq!(perigee_sql::type_name(ColumnType::I64), "BIGINT");
/// ```
pub fn type_name(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::Bool => "BOOLEAN",
        ColumnType::I8 => "TINYINT",
        ColumnType::I16 => "SMALLINT",
        ColumnType::I32 => "INTEGER",
        ColumnType::I64 => "BIGINT",
        ColumnType::I128 => "HUGEINT",
        ColumnType::U8 => "UTINYINT",
        ColumnType::U16 => "USMALLINT",
        ColumnType::U32 => "UINTEGER",
        ColumnType::U64 => "UBIGINT",
        ColumnType::U128 => "UHUGEINT",
        ColumnType::F32 => "REAL",
        ColumnType::F64 => "DOUBLE PRECISION",
        ColumnType::Timestamp => "TIMESTAMP",
        ColumnType::Uuid => "UUID",
        ColumnType::Text => "TEXT",
        ColumnType::Bytes => "BYTEA",
        _ => "UNKNOWN",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    fn parse(text: &str) -> Result<ColumnType> {
        let dialect = PostgreSqlDialect {};
        let mut parser = Parser::new(&dialect).try_with_sql(text).unwrap();
        column_type(&parser.parse_data_type().unwrap())
    }

    #[test]
    fn names_of_types_are_read_back() {
        for &column_type in ColumnType::ALL {
            assert_eq!(parse(type_name(column_type)).unwrap(), column_type);
        }
    }

    #[test]
    fn other_types_are_refused_with_a_hint() {
        for text in ["NUMERIC(10, 2)", "DATE", "VARCHAR(10)", "JSON", "INTERVAL", "serial", "money"]
        {
            assert!(parse(text).unwrap_err().hint().is_some(), "{text}");
        }
    }
}
