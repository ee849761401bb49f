//! [`Relation`]: tables and indexes as PostgreSQL sees them, with object identifiers.

use crate::values::scalar_of;
use crate::wire_types::wire_type;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::array_value_to_string;
use perigee::Db;
use perigee_tables::{ColumnType, KeyColumn, Order, Schema, TableDb, UuidFormat, Value};
use postgres_types::Type;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// First object identifier of tables and indexes, as in PostgreSQL.
const FIRST_OID: u32 = 16_384;

/// A table or an index.
#[derive(Clone, Debug)]
pub struct Relation {
    pub oid: i32,
    pub name: String,
    pub columns: Vec<RelationColumn>,
    /// Estimated number of rows or entries.
    pub rows: u64,
    pub bytes: u64,
    /// `None`: a table.
    pub index: Option<IndexRelation>,
}

/// A column of a table or index.
#[derive(Clone, Debug)]
pub struct RelationColumn {
    pub name: String,
    /// Type in the protocol.
    pub wire_type: Type,
    pub nullable: bool,
    /// The default as an SQL literal.
    pub default: Option<String>,
}

/// What an index has in addition.
#[derive(Clone, Debug)]
pub struct IndexRelation {
    pub table_oid: i32,
    pub table: String,
    pub is_primary: bool,
    pub is_unique: bool,
    pub is_ready: bool,
    pub key: Vec<KeyColumn>,
    /// Positions of the columns in the table, from 1 on.
    pub positions: Vec<usize>,
}

/// Returns the Arrow type that represents a column type in SQL.
fn arrow_type(column_type: ColumnType) -> DataType {
    let arrow = Schema::new().column("value", column_type).to_arrow(UuidFormat::Text);
    arrow.field(0).data_type().clone()
}

/// Returns a value as a literal of SQL.
fn literal(value: &Value, column_type: ColumnType) -> String {
    match value {
        Value::Text(_) | Value::Bytes(_) | Value::Uuid(_) | Value::Timestamp(_) => {
            let array = scalar_of(value, column_type).to_array();
            let text = array
                .map_err(|e| e.to_string())
                .and_then(|array| array_value_to_string(&array, 0).map_err(|e| e.to_string()));
            let prefix = if matches!(value, Value::Bytes(_)) { "\\x" } else { "" };
            format!("'{prefix}{}'", text.unwrap_or_default().replace('\'', "''"))
        }
        other => other.to_string(),
    }
}

/// Chooses object identifiers: hashes of names, so that all connections have the same ones, also
/// after a restart.
#[derive(Default)]
struct Oids(BTreeSet<u32>);

impl Oids {
    fn choose(&mut self, table: &str, index: Option<&str>) -> i32 {
        // FNV-1a.
        let bytes = table.bytes().chain(index.map(|_| 0)).chain(index.unwrap_or_default().bytes());
        let hash =
            bytes.fold(0x811c_9dc5u32, |hash, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193));
        let mut oid = FIRST_OID + hash % (i32::MAX as u32 - FIRST_OID);
        while !self.0.insert(oid) {
            oid = FIRST_OID + (oid + 1 - FIRST_OID) % (i32::MAX as u32 - FIRST_OID);
        }
        oid as i32
    }
}

/// The relations, listed once for each statement of a session.
#[derive(Debug)]
pub struct RelationCache {
    db: Db,
    relations: Mutex<Option<Arc<Vec<Relation>>>>,
}

impl RelationCache {
    pub fn new(db: &Db) -> RelationCache {
        RelationCache { db: db.clone(), relations: Mutex::default() }
    }
    /// Forgets the relations: a statement begins.
    pub fn clear(&self) {
        *self.relations.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
    /// Returns all tables, each followed by its primary key and its indexes.
    pub fn get(&self) -> perigee_tables::Result<Arc<Vec<Relation>>> {
        let mut relations = self.relations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(relations) = &*relations {
            return Ok(Arc::clone(relations));
        }
        let listed = Arc::new(list_relations(&self.db)?);
        *relations = Some(Arc::clone(&listed));
        Ok(listed)
    }
}

fn list_relations(db: &Db) -> perigee_tables::Result<Vec<Relation>> {
    let mut oids = Oids::default();
    let mut relations = Vec::new();
    for table in db.tables()? {
        let table_oid = oids.choose(&table.name, None);
        let columns: Vec<RelationColumn> = table
            .schema
            .columns()
            .iter()
            .map(|column| RelationColumn {
                name: column.name.clone(),
                wire_type: wire_type(&arrow_type(column.column_type)),
                nullable: column.nullable,
                default: column.default.as_ref().map(|v| literal(v, column.column_type)),
            })
            .collect();
        let index =
            |oid, name: String, key: &[KeyColumn], is_primary, is_unique, is_ready, rows| {
                let positions: Vec<usize> =
                    key.iter().filter_map(|key| table.schema.position(&key.column)).collect();
                Relation {
                    oid,
                    name,
                    columns: positions.iter().map(|i| columns[*i].clone()).collect(),
                    rows,
                    bytes: 0,
                    index: Some(IndexRelation {
                        table_oid,
                        table: table.name.clone(),
                        is_primary,
                        is_unique,
                        is_ready,
                        key: key.to_vec(),
                        positions: positions.iter().map(|i| i + 1).collect(),
                    }),
                }
            };
        let primary = format!("{}_pkey", table.name);
        let primary_oid = oids.choose(&table.name, Some(""));
        let key = table.schema.key_columns();
        let mut indexes = vec![index(primary_oid, primary, key, true, true, true, table.rows)];
        for (def, state) in table.indexes.iter().zip(&table.index_states) {
            let oid = oids.choose(&table.name, Some(def.name()));
            let (name, unique) = (def.name().to_owned(), def.is_unique());
            let mut relation =
                index(oid, name, def.columns(), false, unique, state.ready, state.entries);
            relation.bytes = state.bytes;
            indexes.push(relation);
        }
        relations.push(Relation {
            oid: table_oid,
            name: table.name.clone(),
            columns: columns.clone(),
            rows: table.rows,
            bytes: table.bytes,
            index: None,
        });
        relations.extend(indexes);
    }
    Ok(relations)
}

/// Quotes an identifier, unless it is in lower case and has no special characters.
pub fn quote_identifier(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

impl IndexRelation {
    /// Returns the columns as in CREATE INDEX: `a, b DESC`.
    pub fn column_list(&self) -> String {
        let column = |key: &KeyColumn| {
            let order = if key.order == Order::Descending { " DESC" } else { "" };
            quote_identifier(&key.column) + order
        };
        self.key.iter().map(column).collect::<Vec<_>>().join(", ")
    }
    /// Returns the statement that creates the index.
    pub fn definition(&self, name: &str) -> String {
        let unique = if self.is_unique { "UNIQUE " } else { "" };
        let (name, table) = (quote_identifier(name), quote_identifier(&self.table));
        format!(
            "CREATE {unique}INDEX {name} ON public.{table} USING btree ({})",
            self.column_list()
        )
    }
}
