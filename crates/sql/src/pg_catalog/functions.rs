//! Functions of `pg_catalog`.

use crate::error::SqlError;
use crate::pg_catalog::relations::{Relation, RelationCache, quote_identifier};
use crate::pg_catalog::{INFORMATION_SCHEMA_OID, OWNER, PG_CATALOG, PG_CATALOG_OID, PUBLIC_OID};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarUDF, Signature, SimpleScalarUDF, TypeSignature, Volatility,
};
use datafusion::prelude::SessionContext;
use postgres_types::Type;
use std::cell::OnceCell;
use std::sync::Arc;

/// Returns a value of a function for the arguments of one row.
type Evaluate = fn(&Arguments<'_>) -> Option<ScalarValue>;

/// The arguments of a call in one row. Missing ones, and those of another type, are `None`.
struct Arguments<'a> {
    values: Vec<ScalarValue>,
    listing: &'a Listing<'a>,
}

/// The relations, listed for the functions that need them.
struct Listing<'a> {
    cache: &'a RelationCache,
    listed: OnceCell<perigee_tables::Result<Arc<Vec<Relation>>>>,
}

impl Listing<'_> {
    /// Returns none after an error, which the caller of the function returns.
    fn relations(&self) -> &[Relation] {
        match self.listed.get_or_init(|| self.cache.get()) {
            Ok(relations) => relations,
            Err(_) => &[],
        }
    }
}

impl Arguments<'_> {
    fn integer(&self, i: usize) -> Option<i64> {
        let scalar = self.values.get(i)?.cast_to(&DataType::Int64).ok()?;
        if let ScalarValue::Int64(value) = scalar { value } else { None }
    }
    fn text(&self, i: usize) -> Option<String> {
        let scalar = self.values.get(i)?.cast_to(&DataType::Utf8).ok()?;
        if let ScalarValue::Utf8(value) = scalar { value } else { None }
    }
    /// Returns the table or index whose identifier is the first argument.
    fn relation(&self) -> Option<&Relation> {
        let oid = self.integer(0)?;
        self.listing.relations().iter().find(|relation| i64::from(relation.oid) == oid)
    }
}

fn text(value: impl Into<String>) -> Option<ScalarValue> {
    Some(ScalarValue::Utf8(Some(value.into())))
}

fn is_true(_: &Arguments<'_>) -> Option<ScalarValue> {
    Some(ScalarValue::from(true))
}

fn is_false(_: &Arguments<'_>) -> Option<ScalarValue> {
    Some(ScalarValue::from(false))
}

fn null(_: &Arguments<'_>) -> Option<ScalarValue> {
    None
}

fn first_text(arguments: &Arguments<'_>) -> Option<ScalarValue> {
    text(arguments.text(0)?)
}

fn bytes(arguments: &Arguments<'_>) -> Option<ScalarValue> {
    let bytes = arguments.relation()?.bytes;
    Some(ScalarValue::from(i64::try_from(bytes).unwrap_or(i64::MAX)))
}

fn database_bytes(arguments: &Arguments<'_>) -> Option<ScalarValue> {
    let tables = arguments.listing.relations().iter().filter(|relation| relation.index.is_none());
    let bytes = tables.map(|table| table.bytes).sum::<u64>();
    Some(ScalarValue::from(i64::try_from(bytes).unwrap_or(i64::MAX)))
}

/// Returns the name of a type in SQL.
fn type_display_name(oid: u32) -> Option<String> {
    let wire_type = Type::from_oid(oid)?;
    Some(match wire_type {
        Type::BOOL => "boolean".to_owned(),
        Type::INT2 => "smallint".to_owned(),
        Type::INT4 => "integer".to_owned(),
        Type::INT8 => "bigint".to_owned(),
        Type::FLOAT4 => "real".to_owned(),
        Type::FLOAT8 => "double precision".to_owned(),
        Type::TIMESTAMP => "timestamp without time zone".to_owned(),
        Type::TIMESTAMPTZ => "timestamp with time zone".to_owned(),
        Type::VARCHAR => "character varying".to_owned(),
        Type::CHAR => "\"char\"".to_owned(),
        other => other.name().to_owned(),
    })
}

fn format_type(arguments: &Arguments<'_>) -> Option<ScalarValue> {
    let oid = u32::try_from(arguments.integer(0)?).ok()?;
    text(type_display_name(oid).unwrap_or_else(|| "???".to_owned()))
}

fn index_definition(arguments: &Arguments<'_>) -> Option<ScalarValue> {
    let relation = arguments.relation()?;
    let index = relation.index.as_ref()?;
    match arguments.integer(1) {
        None | Some(0) => text(index.definition(&relation.name)),
        Some(n) => {
            let column = index.key.get(usize::try_from(n).ok()?.checked_sub(1)?)?;
            text(quote_identifier(&column.column))
        }
    }
}

/// Constraints have the identifiers of their indexes.
fn constraint_definition(arguments: &Arguments<'_>) -> Option<ScalarValue> {
    let index = arguments.relation()?.index.as_ref()?;
    let columns = index.key.iter().map(|key| quote_identifier(&key.column));
    text(format!("PRIMARY KEY ({})", columns.collect::<Vec<_>>().join(", ")))
}

fn schema_name(arguments: &Arguments<'_>) -> Option<ScalarValue> {
    match i32::try_from(arguments.integer(0)?).ok()? {
        PUBLIC_OID => text("public"),
        PG_CATALOG_OID => text(PG_CATALOG),
        INFORMATION_SCHEMA_OID => text("information_schema"),
        _ => None,
    }
}

fn relation_oid(arguments: &Arguments<'_>) -> Option<ScalarValue> {
    let name = arguments.text(0)?;
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    let known = [("pg_class", 1259), ("pg_type", 1247), ("pg_attribute", 1249), ("pg_proc", 1255)];
    if let Some((_, oid)) = known.iter().find(|(known, _)| *known == name) {
        return Some(ScalarValue::from(*oid));
    }
    let name = name.strip_prefix("public.").unwrap_or(name).trim_matches('"');
    let mut relations = arguments.listing.relations().iter();
    let relation = relations.find(|relation| relation.name == name);
    relation.map(|relation| ScalarValue::from(relation.oid))
}

fn type_oid(arguments: &Arguments<'_>) -> Option<ScalarValue> {
    let name = arguments.text(0)?;
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    let types = crate::pg_catalog::tables::TYPES.iter();
    let mut found =
        types.filter(|t| t.name() == name || type_display_name(t.oid()).as_deref() == Some(name));
    found.next().and_then(|t| i32::try_from(t.oid()).ok()).map(ScalarValue::from)
}

fn pretty_size(arguments: &Arguments<'_>) -> Option<ScalarValue> {
    let mut size = arguments.integer(0)?;
    let mut units = ["bytes", "kB", "MB", "GB", "TB"].into_iter();
    let mut unit = units.next()?;
    while size.abs() >= 10 * 1024 {
        let Some(next) = units.next() else { break };
        unit = next;
        size = (size + 512) / 1024;
    }
    text(format!("{size} {unit}"))
}

/// Returns the element of `1 2 3`; the first one has the index 0.
fn vector_element(arguments: &Arguments<'_>) -> Option<ScalarValue> {
    let (vector, i) = (arguments.text(0)?, usize::try_from(arguments.integer(1)?).ok()?);
    vector.split(' ').nth(i)?.parse::<i16>().ok().map(ScalarValue::from)
}

/// Returns the element of `{a,b}`; the first one has the index 1.
fn array_element(arguments: &Arguments<'_>) -> Option<ScalarValue> {
    let (array, i) = (arguments.text(0)?, usize::try_from(arguments.integer(1)?).ok()?);
    text(array.trim_matches(['{', '}']).split(',').nth(i.checked_sub(1)?)?)
}

/// Name, type of the result, value. Names that PostgreSQL does not have are used by the rewrite of
/// queries only.
const FUNCTIONS: &[(&str, DataType, Evaluate)] = &[
    ("pg_get_userbyid", DataType::Utf8, |_| text(OWNER)),
    ("pg_table_is_visible", DataType::Boolean, is_true),
    ("pg_type_is_visible", DataType::Boolean, is_true),
    ("pg_function_is_visible", DataType::Boolean, is_true),
    ("has_schema_privilege", DataType::Boolean, is_true),
    ("has_table_privilege", DataType::Boolean, is_true),
    ("has_database_privilege", DataType::Boolean, is_true),
    ("pg_relation_is_publishable", DataType::Boolean, is_false),
    ("pg_is_in_recovery", DataType::Boolean, is_false),
    ("format_type", DataType::Utf8, format_type),
    ("pg_get_expr", DataType::Utf8, first_text),
    ("pg_get_indexdef", DataType::Utf8, index_definition),
    ("pg_get_constraintdef", DataType::Utf8, constraint_definition),
    ("pg_encoding_to_char", DataType::Utf8, |_| text("UTF8")),
    ("array_to_string", DataType::Utf8, first_text),
    ("obj_description", DataType::Utf8, null),
    ("col_description", DataType::Utf8, null),
    ("shobj_description", DataType::Utf8, null),
    ("pg_table_size", DataType::Int64, bytes),
    ("pg_relation_size", DataType::Int64, bytes),
    ("pg_total_relation_size", DataType::Int64, bytes),
    ("pg_database_size", DataType::Int64, database_bytes),
    ("pg_tablespace_location", DataType::Utf8, |_| text("")),
    ("pg_size_pretty", DataType::Utf8, pretty_size),
    ("current_schemas", DataType::Utf8, |_| text("{pg_catalog,public}")),
    ("quote_ident", DataType::Utf8, |a| text(quote_identifier(&a.text(0)?))),
    ("pg_class_oid", DataType::Int32, relation_oid),
    ("pg_class_name", DataType::Utf8, |a| text(quote_identifier(&a.relation()?.name))),
    ("to_regclass", DataType::Int32, relation_oid),
    ("to_regtype", DataType::Int32, type_oid),
    ("pg_type_oid", DataType::Int32, type_oid),
    ("pg_namespace_name", DataType::Utf8, schema_name),
    ("pg_vector_element", DataType::Int16, vector_element),
    ("pg_array_element", DataType::Utf8, array_element),
];

/// Adds the functions to a session.
pub fn register(context: &SessionContext, relations: &Arc<RelationCache>) {
    for (name, data_type, evaluate) in FUNCTIONS {
        let (relations, result, evaluate) = (Arc::clone(relations), data_type.clone(), *evaluate);
        let call =
            move |arguments: &[ColumnarValue]| call(&relations, arguments, &result, evaluate);
        let arities = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
        let signature = Signature::one_of(arities, Volatility::Stable);
        let function = SimpleScalarUDF::new_with_signature(
            *name,
            signature,
            data_type.clone(),
            Arc::new(call),
        );
        context.register_udf(ScalarUDF::from(function));
    }
}

fn call(
    relations: &RelationCache,
    arguments: &[ColumnarValue],
    data_type: &DataType,
    evaluate: Evaluate,
) -> Result<ColumnarValue> {
    let listing = Listing { cache: relations, listed: OnceCell::new() };
    let null = ScalarValue::try_new_null(data_type)?;
    let rows = arguments.iter().find_map(|argument| match argument {
        ColumnarValue::Array(array) => Some(array.len()),
        ColumnarValue::Scalar(_) => None,
    });
    let value = |row: usize| {
        let values = arguments.iter().map(|argument| match argument {
            ColumnarValue::Array(array) => ScalarValue::try_from_array(array, row),
            ColumnarValue::Scalar(scalar) => Ok(scalar.clone()),
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        let arguments = Arguments { values, listing: &listing };
        Ok::<_, datafusion::error::DataFusionError>(evaluate(&arguments).unwrap_or(null.clone()))
    };
    let result = match rows {
        None => value(0).map(ColumnarValue::Scalar),
        Some(0) => Ok(ColumnarValue::Array(datafusion::arrow::array::new_empty_array(data_type))),
        Some(rows) => {
            let values = (0..rows).map(value).collect::<Result<Vec<_>>>()?;
            Ok(ColumnarValue::Array(ScalarValue::iter_to_array(values)?))
        }
    };
    match listing.listed.into_inner() {
        Some(Err(e)) => Err(SqlError::from(e).into()),
        _ => result,
    }
}
