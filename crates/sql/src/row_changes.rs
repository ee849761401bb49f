//! Rows that INSERT, UPDATE and DELETE write, in a transaction of tables.

use crate::error::{Result, SqlError, SqlState};
use crate::schema_statements::identifier;
use crate::sql_types::type_name;
use crate::table_provider::{TableSource, key_positions};
use crate::values::values_at;
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::datatypes::Schema as ArrowSchema;
use datafusion::sql::sqlparser::ast::{
    ConflictTarget, DoUpdate, Insert, OnConflictAction, OnInsert,
};
use perigee_tables::{ErrorKind, TableTxn, UuidFormat, Value, rows_from_batch};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What an INSERT does with rows that conflict.
#[derive(Clone, Debug)]
pub enum OnConflict<'a> {
    Fail,
    Skip { target: Option<Vec<String>> },
    Update { target: Vec<String>, update: &'a DoUpdate },
}

/// Returns what the conflict clause of an INSERT demands.
pub fn conflict_clause(insert: &Insert) -> Result<OnConflict<'_>> {
    let names = |columns: &[_]| columns.iter().map(identifier).collect::<Vec<String>>();
    let Some(clause) = &insert.on else { return Ok(OnConflict::Fail) };
    let OnInsert::OnConflict(clause) = clause else {
        let hint = "write ON CONFLICT (key) DO UPDATE SET ...";
        return Err(SqlError::unsupported("ON DUPLICATE KEY UPDATE", hint));
    };
    let target = match &clause.conflict_target {
        None => None,
        Some(ConflictTarget::Columns(columns)) => Some(names(columns)),
        Some(ConflictTarget::OnConstraint(_)) => {
            let hint = "name the columns: ON CONFLICT (id)";
            return Err(SqlError::unsupported("ON CONFLICT ON CONSTRAINT", hint));
        }
    };
    match (&clause.action, target) {
        (OnConflictAction::DoNothing, target) => Ok(OnConflict::Skip { target }),
        (OnConflictAction::DoUpdate(update), Some(target)) => {
            Ok(OnConflict::Update { target, update })
        }
        (OnConflictAction::DoUpdate(_), None) => {
            let text = "ON CONFLICT DO UPDATE needs the columns of the key";
            Err(SqlError::new(SqlState::SYNTAX_ERROR, text)
                .with_hint("write ON CONFLICT (id) DO UPDATE SET ..."))
        }
    }
}

/// The key that the columns of ON CONFLICT name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConflictKey {
    Primary,
    /// A unique index, and the positions of its columns in the rows.
    Index {
        name: String,
        positions: Vec<usize>,
    },
}

/// What [`insert_rows`] does with rows that conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowConflicts {
    Fail,
    SkipAll,
    /// Skips conflicts of this key; those of other keys fail.
    Skip(ConflictKey),
}

/// Returns the primary key or unique index with exactly these columns.
pub fn find_conflict_key(source: &TableSource, target: &[String]) -> Result<ConflictKey> {
    let same = |columns: &[perigee_tables::KeyColumn]| {
        columns.len() == target.len() && columns.iter().all(|c| target.contains(&c.column))
    };
    if same(source.schema.key_columns()) {
        return Ok(ConflictKey::Primary);
    }
    let index = source.indexes.iter().find(|index| index.is_unique() && same(index.columns()));
    let Some(index) = index else {
        let text = format!("({}) is no primary key or unique index", target.join(", "));
        return Err(SqlError::new(SqlState::INVALID_VALUE, text)
            .with_hint("name all columns of the primary key or of a unique index"));
    };
    let positions = key_positions(&source.schema, index.columns());
    Ok(ConflictKey::Index { name: index.name().to_owned(), positions })
}

/// Returns the error for NULL in a column that is not nullable.
pub fn not_null_violation(table: &str, column: &str) -> SqlError {
    let text = format!("NULL in column {column:?} of table {table:?}, which is NOT NULL");
    SqlError::new(SqlState::NOT_NULL_VIOLATION, text)
        .with_hint("pass a value, or declare a default")
        .in_table(table)
        .in_column(column)
}

/// Decodes rows of all columns of a table, matched by position.
///
/// # Errors
/// `NOT_NULL_VIOLATION`; `INVALID_TEXT` or `OUT_OF_RANGE` if a value does not fit its column.
pub fn decode_rows(source: &TableSource, batch: &RecordBatch) -> Result<Vec<Vec<Value>>> {
    let schema = &source.schema;
    for (column, array) in schema.columns().iter().zip(batch.columns()) {
        if !column.nullable && array.null_count() > 0 {
            return Err(not_null_violation(source.table.name(), &column.name));
        }
    }
    let fields = schema.to_arrow(UuidFormat::Text);
    let named = fields.fields().iter().zip(batch.columns()).map(|(field, array)| {
        field.as_ref().clone().with_data_type(array.data_type().clone()).with_nullable(true)
    });
    let arrow = ArrowSchema::new(named.collect::<Vec<_>>());
    let columns = batch.columns()[..schema.columns().len()].to_vec();
    let batch = RecordBatch::try_new(Arc::new(arrow), columns)
        .map_err(|e| SqlError::new(SqlState::INTERNAL, e.to_string()))?;
    rows_from_batch(&batch, schema).map_err(|e| {
        let column = e.column().unwrap_or_default().to_owned();
        let position = schema.position(&column);
        let name = position.map_or("", |i| type_name(schema.columns()[i].column_type));
        let text = format!("a value of column {column:?} is no {name}: {}", e.message());
        let error = SqlError::new(SqlState::INVALID_TEXT, text).in_column(&column);
        error.in_table(source.table.name())
    })
}

/// Returns the row that has the values of `row` in the columns of a key.
pub fn find_conflicting(
    txn: &TableTxn<'static>,
    source: &TableSource,
    key: &ConflictKey,
    row: &[Value],
) -> Result<Option<Vec<Value>>> {
    let table = txn.on(&source.table);
    let ConflictKey::Index { name, positions } = key else {
        return Ok(table.get(source.key_of(row))?);
    };
    let values = values_at(row, positions);
    if values.iter().any(Value::is_null) {
        return Ok(None);
    }
    Ok(table.index(name)?.get(values)?)
}

/// Inserts rows; returns the positions of those that were inserted.
pub fn insert_rows(
    txn: &TableTxn<'static>,
    source: &TableSource,
    rows: &[Vec<Value>],
    conflicts: &RowConflicts,
) -> Result<Vec<usize>> {
    let table = txn.on(&source.table);
    // A unique violation leaves a part of the index entries behind.
    let savepoint = source.indexes.iter().any(|index| index.is_unique());
    let mut inserted = Vec::with_capacity(rows.len());
    for (i, row) in rows.iter().enumerate() {
        match conflicts {
            RowConflicts::Fail => table.insert(row)?,
            RowConflicts::Skip(key) => {
                if find_conflicting(txn, source, key, row)?.is_some() {
                    continue;
                }
                table.insert(row)?;
            }
            RowConflicts::SkipAll => {
                if savepoint {
                    txn.engine_txn().savepoint(ROW_SAVEPOINT)?;
                }
                let result = table.insert(row);
                match result {
                    Err(e)
                        if matches!(
                            e.kind(),
                            ErrorKind::KeyExists | ErrorKind::UniqueViolation
                        ) =>
                    {
                        if savepoint {
                            txn.engine_txn().rollback_to(ROW_SAVEPOINT)?;
                            txn.engine_txn().release_savepoint(ROW_SAVEPOINT)?;
                        }
                        continue;
                    }
                    result => result?,
                }
                if savepoint {
                    txn.engine_txn().release_savepoint(ROW_SAVEPOINT)?;
                }
            }
        }
        inserted.push(i);
    }
    Ok(inserted)
}

/// Name of the savepoint around the insert of a row that may conflict.
const ROW_SAVEPOINT: &str = "@sql/row";

/// A changed row, with the key of the old one.
pub type RowChange = (Vec<Value>, Vec<Value>);

/// Writes changed rows; each key once, with its first change. Rows whose key changes are deleted
/// first, so that keys can be exchanged. Returns the positions of the changes that were applied.
pub fn update_rows(
    txn: &TableTxn<'static>,
    source: &TableSource,
    changes: &[RowChange],
) -> Result<Vec<usize>> {
    let table = txn.on(&source.table);
    let mut seen = BTreeSet::new();
    let mut moved = Vec::new();
    let mut updated = Vec::with_capacity(changes.len());
    for (i, (key, row)) in changes.iter().enumerate() {
        if !seen.insert(key) {
            continue;
        }
        let is_moved = source.key_of(row) != *key;
        let is_written = match is_moved {
            false => table.update(key, |old| old.clone_from(row))?.is_some(),
            true => table.delete(key)?,
        };
        if is_written {
            updated.push(i);
            moved.extend(is_moved.then_some(row));
        }
    }
    for row in moved {
        table.insert(row)?;
    }
    Ok(updated)
}

/// Deletes rows by key; returns the positions of the keys that were deleted.
pub fn delete_rows(
    txn: &TableTxn<'static>,
    source: &TableSource,
    keys: &[Vec<Value>],
) -> Result<Vec<usize>> {
    let table = txn.on(&source.table);
    let mut deleted = Vec::with_capacity(keys.len());
    for (i, key) in keys.iter().enumerate() {
        if table.delete(key)? {
            deleted.push(i);
        }
    }
    Ok(deleted)
}
