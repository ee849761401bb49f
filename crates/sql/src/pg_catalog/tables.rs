//! The tables of `pg_catalog`. They are computed when they are read; columns that no known client
//! reads are left out.

use crate::constants::{CATALOG, SHOWN_VARIABLES};
use crate::error::SqlError;
use crate::pg_catalog::relations::{Relation, RelationCache};
use crate::pg_catalog::{
    INDEX_COLUMNS, INFORMATION_SCHEMA_OID, OWNER, OWNER_OID, PG_CATALOG, PG_CATALOG_OID, PUBLIC_OID,
};
use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch, new_empty_array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{MemTable, SchemaProvider, Session, TableProvider};
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use perigee_tables::Order;
use postgres_types::{Kind, Type};
use std::sync::Arc;

/// The types that columns of results can have.
pub const TYPES: &[Type] = &[
    Type::BOOL,
    Type::BYTEA,
    Type::CHAR,
    Type::NAME,
    Type::INT8,
    Type::INT2,
    Type::INT4,
    Type::TEXT,
    Type::OID,
    Type::FLOAT4,
    Type::FLOAT8,
    Type::VARCHAR,
    Type::DATE,
    Type::TIMESTAMP,
    Type::TIMESTAMPTZ,
    Type::NUMERIC,
];

type Row = Vec<ScalarValue>;

/// A table of the catalog.
struct Definition {
    name: &'static str,
    /// Names and types: `oid:int relname:text`.
    columns: &'static str,
    /// Returns the rows, with a value for each column. `None`: the table is always empty.
    rows: Option<fn(&[Relation]) -> Vec<Row>>,
}

/// Returns a row from values of Rust.
macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$(ScalarValue::from($value)),*] };
}

const NO_TEXT: Option<&str> = None;

fn int(n: u64) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn tables(relations: &[Relation]) -> impl Iterator<Item = &Relation> {
    relations.iter().filter(|relation| relation.index.is_none())
}

fn class_rows(relations: &[Relation]) -> Vec<Row> {
    let row = |r: &Relation| {
        let is_table = r.index.is_none();
        let (am, kind) = if is_table { (2, "r") } else { (403, "i") };
        row![
            r.oid,
            r.name.as_str(),
            PUBLIC_OID,
            0,
            0,
            OWNER_OID,
            am,
            r.oid,
            0,
            int(r.bytes / 8192 + 1),
            r.rows as f32,
            0,
            0,
            is_table,
            false,
            "p",
            kind,
            int(r.columns.len() as u64) as i16,
            0i16,
            false,
            false,
            false,
            false,
            false,
            true,
            if is_table { "d" } else { "n" },
            false,
            NO_TEXT,
            NO_TEXT,
            NO_TEXT,
        ]
    };
    relations.iter().map(row).collect()
}

fn attribute_rows(relations: &[Relation]) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in relations {
        for (i, column) in relation.columns.iter().enumerate() {
            let has_default = relation.index.is_none() && column.default.is_some();
            rows.push(row![
                relation.oid,
                column.name.as_str(),
                column.wire_type.oid() as i32,
                type_length(&column.wire_type),
                int(i as u64 + 1) as i16,
                0,
                -1,
                0i16,
                false,
                storage(&column.wire_type),
                "i",
                !column.nullable,
                has_default,
                false,
                "",
                "",
                false,
                true,
                0,
                0,
                -1,
                "",
                NO_TEXT,
                NO_TEXT,
            ]);
        }
    }
    rows
}

fn type_length(wire_type: &Type) -> i16 {
    match *wire_type {
        Type::BOOL | Type::CHAR => 1,
        Type::INT2 => 2,
        Type::INT4 | Type::FLOAT4 | Type::DATE | Type::OID => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIMESTAMP | Type::TIMESTAMPTZ => 8,
        Type::NAME => 64,
        _ => -1,
    }
}

fn storage(wire_type: &Type) -> &'static str {
    match *wire_type {
        Type::NUMERIC => "m",
        _ if type_length(wire_type) > 0 => "p",
        _ => "x",
    }
}

fn type_rows(_: &[Relation]) -> Vec<Row> {
    let category = |t: &Type| match *t {
        Type::BOOL => "B",
        Type::BYTEA => "U",
        Type::CHAR => "Z",
        Type::TEXT | Type::NAME | Type::VARCHAR => "S",
        Type::DATE | Type::TIMESTAMP | Type::TIMESTAMPTZ => "D",
        _ => "N",
    };
    let arrays = [
        Type::BOOL_ARRAY,
        Type::BYTEA_ARRAY,
        Type::CHAR_ARRAY,
        Type::NAME_ARRAY,
        Type::INT8_ARRAY,
        Type::INT2_ARRAY,
        Type::INT4_ARRAY,
        Type::TEXT_ARRAY,
        Type::OID_ARRAY,
        Type::FLOAT4_ARRAY,
        Type::FLOAT8_ARRAY,
        Type::VARCHAR_ARRAY,
        Type::DATE_ARRAY,
        Type::TIMESTAMP_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::NUMERIC_ARRAY,
    ];
    let array_of = |t: &Type| {
        arrays.iter().find(|a| matches!(a.kind(), Kind::Array(of) if of == t)).map_or(0, Type::oid)
    };
    let row = |t: &Type| {
        let length = type_length(t);
        row![
            t.oid() as i32,
            t.name(),
            PG_CATALOG_OID,
            OWNER_OID,
            length,
            (1..=8).contains(&length),
            "b",
            category(t),
            false,
            true,
            ",",
            0,
            0,
            array_of(t) as i32,
            false,
            0,
            -1,
            0i32,
            0,
            format!("{}in", t.name()),
            format!("{}out", t.name()),
            NO_TEXT,
        ]
    };
    TYPES.iter().map(row).collect()
}

fn index_rows(relations: &[Relation]) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in relations {
        let Some(index) = &relation.index else { continue };
        let columns = int(index.key.len() as u64) as i16;
        let join = |numbers: Vec<String>| numbers.join(" ");
        let positions = join(index.positions.iter().map(usize::to_string).collect());
        // Bit 0: descending; bit 1: NULL first.
        let option = |order| if order == Order::Descending { "1" } else { "2" }.to_owned();
        let options = join(index.key.iter().map(|key| option(key.order)).collect());
        let zeros = join(vec!["0".to_owned(); index.key.len()]);
        rows.push(row![
            relation.oid,
            index.table_oid,
            columns,
            columns,
            index.is_unique,
            false,
            index.is_primary,
            false,
            true,
            false,
            index.is_ready,
            false,
            index.is_ready,
            true,
            false,
            positions,
            zeros.as_str(),
            zeros.as_str(),
            options,
            NO_TEXT,
            NO_TEXT,
        ]);
    }
    rows
}

fn index_column_rows(relations: &[Relation]) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in relations {
        let Some(index) = &relation.index else { continue };
        for (n, position) in index.positions.iter().enumerate() {
            rows.push(row![relation.oid, int(n as u64 + 1), int(*position as u64)]);
        }
    }
    rows
}

/// Primary keys only: unique constraints are stored as unique indexes.
fn constraint_rows(relations: &[Relation]) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in relations {
        let Some(index) = relation.index.as_ref().filter(|index| index.is_primary) else {
            continue;
        };
        let positions: Vec<String> = index.positions.iter().map(usize::to_string).collect();
        rows.push(row![
            relation.oid,
            relation.name.as_str(),
            PUBLIC_OID,
            "p",
            false,
            false,
            true,
            index.table_oid,
            0,
            relation.oid,
            0,
            0,
            " ",
            " ",
            " ",
            true,
            0i16,
            true,
            format!("{{{}}}", positions.join(",")),
            NO_TEXT,
            NO_TEXT,
        ]);
    }
    rows
}

fn default_rows(relations: &[Relation]) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in tables(relations) {
        for (i, column) in relation.columns.iter().enumerate() {
            if let Some(default) = &column.default {
                let number = int(i as u64 + 1);
                rows.push(row![relation.oid, relation.oid, number as i16, default.as_str()]);
            }
        }
    }
    rows
}

fn namespace_rows(_: &[Relation]) -> Vec<Row> {
    vec![
        row![PG_CATALOG_OID, PG_CATALOG, OWNER_OID, NO_TEXT],
        row![PUBLIC_OID, "public", OWNER_OID, NO_TEXT],
        row![INFORMATION_SCHEMA_OID, "information_schema", OWNER_OID, NO_TEXT],
    ]
}

fn database_rows(_: &[Relation]) -> Vec<Row> {
    vec![row![
        1, CATALOG, OWNER_OID, 6, "c", false, true, -1, "C", "C", NO_TEXT, NO_TEXT, NO_TEXT, 1663,
        NO_TEXT,
    ]]
}

fn role_rows(_: &[Relation]) -> Vec<Row> {
    vec![row![
        OWNER_OID, OWNER, false, true, false, false, true, false, -1, NO_TEXT, NO_TEXT, false,
    ]]
}

fn table_rows(relations: &[Relation]) -> Vec<Row> {
    let row =
        |r: &Relation| row!["public", r.name.as_str(), OWNER, NO_TEXT, true, false, false, false];
    tables(relations).map(row).collect()
}

fn index_list_rows(relations: &[Relation]) -> Vec<Row> {
    let row = |r: &Relation| {
        let index = r.index.as_ref()?;
        let definition = index.definition(&r.name);
        Some(row!["public", index.table.as_str(), r.name.as_str(), NO_TEXT, definition])
    };
    relations.iter().filter_map(row).collect()
}

fn setting_rows(_: &[Relation]) -> Vec<Row> {
    let own = [("max_index_keys", "32")];
    let shown = SHOWN_VARIABLES.iter().filter(|(name, _)| !name.contains(' '));
    shown.chain(&own).map(|(name, value)| row![*name, *value]).collect()
}

const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "pg_class",
        columns: "oid:int relname:text relnamespace:int reltype:int reloftype:int relowner:int \
                  relam:int relfilenode:int reltablespace:int relpages:int reltuples:real \
                  relallvisible:int reltoastrelid:int relhasindex:bool relisshared:bool \
                  relpersistence:text relkind:text relnatts:small relchecks:small relhasrules:bool \
                  relhastriggers:bool relhassubclass:bool relrowsecurity:bool \
                  relforcerowsecurity:bool relispopulated:bool relreplident:text \
                  relispartition:bool relacl:text reloptions:text relpartbound:text",
        rows: Some(class_rows),
    },
    Definition {
        name: "pg_attribute",
        columns: "attrelid:int attname:text atttypid:int attlen:small attnum:small \
                  attcacheoff:int atttypmod:int attndims:small attbyval:bool attstorage:text \
                  attalign:text attnotnull:bool atthasdef:bool atthasmissing:bool \
                  attidentity:text attgenerated:text attisdropped:bool attislocal:bool \
                  attinhcount:int attcollation:int attstattarget:int attcompression:text \
                  attacl:text attoptions:text",
        rows: Some(attribute_rows),
    },
    Definition {
        name: "pg_type",
        columns: "oid:int typname:text typnamespace:int typowner:int typlen:small typbyval:bool \
                  typtype:text typcategory:text typispreferred:bool typisdefined:bool \
                  typdelim:text typrelid:int typelem:int typarray:int typnotnull:bool \
                  typbasetype:int typtypmod:int typndims:int typcollation:int typinput:text \
                  typoutput:text typdefault:text",
        rows: Some(type_rows),
    },
    Definition {
        name: "pg_index",
        columns: "indexrelid:int indrelid:int indnatts:small indnkeyatts:small indisunique:bool \
                  indnullsnotdistinct:bool indisprimary:bool indisexclusion:bool \
                  indimmediate:bool indisclustered:bool indisvalid:bool indcheckxmin:bool \
                  indisready:bool indislive:bool indisreplident:bool indkey:text \
                  indcollation:text indclass:text indoption:text indexprs:text indpred:text",
        rows: Some(index_rows),
    },
    Definition {
        name: INDEX_COLUMNS,
        columns: "indexrelid:int n:int x:int",
        rows: Some(index_column_rows),
    },
    Definition {
        name: "pg_constraint",
        columns: "oid:int conname:text connamespace:int contype:text condeferrable:bool \
                  condeferred:bool convalidated:bool conrelid:int contypid:int conindid:int \
                  conparentid:int confrelid:int confupdtype:text confdeltype:text \
                  confmatchtype:text conislocal:bool coninhcount:small connoinherit:bool \
                  conkey:text confkey:text conbin:text",
        rows: Some(constraint_rows),
    },
    Definition {
        name: "pg_attrdef",
        columns: "oid:int adrelid:int adnum:small adbin:text",
        rows: Some(default_rows),
    },
    Definition {
        name: "pg_namespace",
        columns: "oid:int nspname:text nspowner:int nspacl:text",
        rows: Some(namespace_rows),
    },
    Definition {
        name: "pg_database",
        columns: "oid:int datname:text datdba:int encoding:int datlocprovider:text \
                  datistemplate:bool datallowconn:bool datconnlimit:int datcollate:text \
                  datctype:text daticulocale:text daticurules:text datcollversion:text \
                  dattablespace:int datacl:text",
        rows: Some(database_rows),
    },
    Definition {
        name: "pg_roles",
        columns: "oid:int rolname:text rolsuper:bool rolinherit:bool rolcreaterole:bool \
                  rolcreatedb:bool rolcanlogin:bool rolreplication:bool rolconnlimit:int \
                  rolpassword:text rolvaliduntil:text rolbypassrls:bool",
        rows: Some(role_rows),
    },
    Definition {
        name: "pg_tablespace",
        columns: "oid:int spcname:text spcowner:int spcacl:text spcoptions:text",
        rows: Some(|_| vec![row![1663, "pg_default", OWNER_OID, NO_TEXT, NO_TEXT]]),
    },
    Definition {
        name: "pg_am",
        columns: "oid:int amname:text amtype:text",
        rows: Some(|_| vec![row![2, "heap", "t"], row![403, "btree", "i"]]),
    },
    Definition {
        name: "pg_tables",
        columns: "schemaname:text tablename:text tableowner:text tablespace:text hasindexes:bool \
                  hasrules:bool hastriggers:bool rowsecurity:bool",
        rows: Some(table_rows),
    },
    Definition {
        name: "pg_indexes",
        columns: "schemaname:text tablename:text indexname:text tablespace:text indexdef:text",
        rows: Some(index_list_rows),
    },
    Definition { name: "pg_settings", columns: "name:text setting:text", rows: Some(setting_rows) },
    Definition {
        name: "pg_description",
        columns: "objoid:int classoid:int objsubid:int description:text",
        rows: None,
    },
];

/// Other tables that are always empty: they have the column `oid` only, because a SELECT that joins
/// one of them is not planned.
const EMPTY_TABLES: &[&str] = &[
    "pg_auth_members",
    "pg_collation",
    "pg_enum",
    "pg_event_trigger",
    "pg_extension",
    "pg_foreign_data_wrapper",
    "pg_foreign_server",
    "pg_foreign_table",
    "pg_inherits",
    "pg_language",
    "pg_matviews",
    "pg_partitioned_table",
    "pg_policy",
    "pg_proc",
    "pg_publication",
    "pg_publication_namespace",
    "pg_publication_rel",
    "pg_range",
    "pg_rewrite",
    "pg_sequence",
    "pg_shdescription",
    "pg_statistic_ext",
    "pg_subscription",
    "pg_trigger",
    "pg_views",
];

/// Returns true for the name of a table of the catalog.
pub fn is_catalog_table(name: &str) -> bool {
    find_definition(name).is_some() || EMPTY_TABLES.contains(&name)
}

/// Returns true for the name of a table without rows.
pub fn is_always_empty(name: &str) -> bool {
    EMPTY_TABLES.contains(&name) || find_definition(name).is_some_and(|d| d.rows.is_none())
}

fn find_definition(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|definition| definition.name == name)
}

/// The schema `pg_catalog`.
#[derive(Clone, Debug)]
pub struct PgCatalog {
    pub relations: Arc<RelationCache>,
}

#[async_trait]
impl SchemaProvider for PgCatalog {
    fn table_names(&self) -> Vec<String> {
        let named = DEFINITIONS.iter().map(|definition| definition.name);
        named.chain(EMPTY_TABLES.iter().copied()).map(str::to_owned).collect()
    }
    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if !is_catalog_table(name) {
            return Ok(None);
        }
        let definition = find_definition(name);
        let columns = definition.map_or("oid:int", |definition| definition.columns);
        let field = |column: &str| {
            let (name, data_type) = column.split_once(':').unwrap_or((column, "text"));
            let data_type = match data_type {
                "int" => DataType::Int32,
                "small" => DataType::Int16,
                "bool" => DataType::Boolean,
                "real" => DataType::Float32,
                _ => DataType::Utf8,
            };
            Field::new(name, data_type, true)
        };
        let schema = Schema::new(columns.split_whitespace().map(field).collect::<Vec<_>>());
        let rows = definition.and_then(|definition| definition.rows);
        let relations = Arc::clone(&self.relations);
        Ok(Some(Arc::new(CatalogTable { relations, schema: Arc::new(schema), rows })))
    }
    fn table_exist(&self, name: &str) -> bool {
        is_catalog_table(name)
    }
}

/// A table whose rows are computed by each scan.
struct CatalogTable {
    relations: Arc<RelationCache>,
    schema: SchemaRef,
    rows: Option<fn(&[Relation]) -> Vec<Row>>,
}

impl std::fmt::Debug for CatalogTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CatalogTable({:?})", self.schema)
    }
}

impl CatalogTable {
    fn read(&self) -> Result<RecordBatch> {
        let rows = match self.rows {
            Some(rows) => rows(&self.relations.get().map_err(SqlError::from)?),
            None => Vec::new(),
        };
        let column = |(i, field): (usize, &Arc<Field>)| -> Result<ArrayRef> {
            if rows.is_empty() {
                return Ok(new_empty_array(field.data_type()));
            }
            ScalarValue::iter_to_array(rows.iter().map(|row| row[i].clone()))
        };
        let columns = self.schema.fields().iter().enumerate().map(column);
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

#[async_trait]
impl TableProvider for CatalogTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
    fn table_type(&self) -> TableType {
        TableType::View
    }
    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let table = MemTable::try_new(Arc::clone(&self.schema), vec![vec![self.read()?]])?;
        table.scan(state, projection, filters, limit).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_a_value_of_the_right_type_for_each_column() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let db = perigee::example_db().unwrap();
            let mut session = crate::Session::new(&db, Default::default()).unwrap();
            let create = "CREATE TABLE t (a INT PRIMARY KEY, b TEXT DEFAULT 'x' UNIQUE)";
            session.run(create).await.unwrap();
            for definition in DEFINITIONS {
                let sql = format!("SELECT * FROM pg_catalog.{}", definition.name);
                let results = session.run(&sql).await.unwrap();
                assert_eq!(results[0].rows > Some(0), definition.rows.is_some(), "{sql}");
            }
        });
    }
}
