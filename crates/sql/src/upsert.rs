//! INSERT ... ON CONFLICT (key) DO UPDATE: rows that conflict change the existing ones.

use crate::error::{Result, SqlError, SqlState};
use crate::read_state::SharedTxn;
use crate::row_changes::{
    ConflictKey, RowChange, RowConflicts, decode_rows, find_conflicting, insert_rows, update_rows,
};
use crate::schema_statements::{identifier, object_name};
use crate::session::Session;
use crate::table_provider::TableSource;
use crate::values::scalar_of;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, cast::AsArray};
use datafusion::arrow::datatypes::{DataType, Schema as ArrowSchema};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, ScalarValue, TableReference};
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast::{AssignmentTarget, DoUpdate, Expr as AstExpr};
use perigee_tables::{UuidFormat, Value};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Name by which assignments refer to the row that was to be inserted.
const EXCLUDED: &str = "excluded";

/// A row that exists, and the one that was to be inserted.
struct Conflicting {
    existing: Vec<Value>,
    excluded: Vec<Value>,
}

/// Inserts rows, or applies the assignments to the rows that they conflict with.
pub async fn upsert_rows(
    session: &Session,
    txn: &Arc<SharedTxn>,
    source: &TableSource,
    key: &ConflictKey,
    update: &DoUpdate,
    batches: &[RecordBatch],
) -> Result<u64> {
    let mut conflicts = Vec::new();
    let mut written = 0;
    let mut seen = BTreeSet::new();
    for batch in batches {
        for row in decode_rows(source, batch)? {
            let existing = txn.with(|txn| find_conflicting(txn, source, key, &row))?;
            let touched = existing.as_ref().unwrap_or(&row);
            if !seen.insert(source.key_of(touched)) {
                let text = "the statement inserts or updates a row twice";
                return Err(
                    SqlError::new(SqlState::UNIQUE_VIOLATION, text).with_hint("pass each key once")
                );
            }
            match existing {
                Some(existing) => conflicts.push(Conflicting { existing, excluded: row }),
                None => {
                    let insert = |txn: &_| insert_rows(txn, source, &[row], &RowConflicts::Fail);
                    written += txn.with(insert)?;
                }
            }
        }
    }
    if conflicts.is_empty() {
        return Ok(written);
    }
    let changes = evaluate(session, source, update, &conflicts)?;
    Ok(written + txn.with(|txn| update_rows(txn, source, changes))?)
}

/// Evaluates the assignments for the rows whose condition holds.
fn evaluate(
    session: &Session,
    source: &TableSource,
    update: &DoUpdate,
    conflicts: &[Conflicting],
) -> Result<Vec<RowChange>> {
    let fields = source.schema.to_arrow(UuidFormat::Text);
    let schema =
        |name: &str| DFSchema::try_from_qualified_schema(TableReference::bare(name), &fields);
    let schema = schema(source.table.name())?.join(&schema(EXCLUDED)?)?;
    let existing: Vec<&[Value]> = conflicts.iter().map(|c| c.existing.as_slice()).collect();
    let excluded: Vec<&[Value]> = conflicts.iter().map(|c| c.excluded.as_slice()).collect();
    let existing = rows_to_columns(source, &existing)?;
    let columns = [existing.clone(), rows_to_columns(source, &excluded)?].concat();
    let arrow: ArrowSchema = schema.as_arrow().clone();
    let batch = RecordBatch::try_new(Arc::new(arrow), columns)
        .map_err(|e| SqlError::new(SqlState::INTERNAL, e.to_string()))?;

    let keep = match &update.selection {
        None => vec![true; conflicts.len()],
        Some(condition) => {
            let keep =
                evaluate_expr(session, source, condition, &DataType::Boolean, &schema, &batch)?;
            let keep = keep.as_boolean();
            (0..conflicts.len()).map(|i| keep.is_valid(i) && keep.value(i)).collect()
        }
    };
    let mut assigned = existing;
    for assignment in &update.assignments {
        let AssignmentTarget::ColumnName(name) = &assignment.target else {
            return Err(SqlError::unsupported("SET of several columns", "set them one by one"));
        };
        let name = object_name(name)?;
        let Some(position) = source.schema.position(&name) else {
            let text = format!("there is no column {name:?}");
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, text));
        };
        let data_type = fields.field(position).data_type();
        assigned[position] =
            evaluate_expr(session, source, &assignment.value, data_type, &schema, &batch)?;
    }
    let nullable = fields.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
    let nullable = Arc::new(ArrowSchema::new(nullable.collect::<Vec<_>>()));
    let new = RecordBatch::try_new(nullable, assigned)
        .map_err(|e| SqlError::new(SqlState::INTERNAL, e.to_string()))?;
    let rows = decode_rows(source, &new)?;
    let changes = conflicts.iter().zip(rows).zip(keep);
    let changes = changes.filter(|(_, keep)| *keep);
    Ok(changes.map(|((c, row), _)| (source.key_of(&c.existing), row)).collect())
}

/// Evaluates an expression over the rows; unqualified columns are those of the existing row.
fn evaluate_expr(
    session: &Session,
    source: &TableSource,
    expr: &AstExpr,
    data_type: &DataType,
    schema: &DFSchema,
    batch: &RecordBatch,
) -> Result<ArrayRef> {
    let expr = qualify(expr, source.table.name());
    let state = session.context.state();
    let expr = state.create_logical_expr(&expr.to_string(), schema)?;
    if expr.exists(|e| Ok(matches!(e, Expr::Placeholder(_))))? {
        let hint = "use excluded.column, the value that was to be inserted";
        return Err(SqlError::unsupported("a parameter in DO UPDATE", hint));
    }
    let expr = expr.cast_to(data_type, schema)?;
    let physical = session.context.create_physical_expr(expr, schema)?;
    let value = physical.evaluate(batch)?;
    Ok(value.into_array(batch.num_rows())?)
}

/// Qualifies columns by the name of the table, which would be ambiguous otherwise.
fn qualify(expr: &AstExpr, table: &str) -> AstExpr {
    use datafusion::sql::sqlparser::ast::{Ident, visit_expressions_mut};
    let mut expr = expr.clone();
    let _ = visit_expressions_mut(&mut expr, |part| {
        if let AstExpr::Identifier(column) = part {
            let column = Ident::with_quote('"', identifier(column));
            *part = AstExpr::CompoundIdentifier(vec![Ident::with_quote('"', table), column]);
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
    expr
}

/// Returns rows as the columns of all fields.
fn rows_to_columns(source: &TableSource, rows: &[&[Value]]) -> Result<Vec<ArrayRef>> {
    let columns = source.schema.columns().iter().enumerate();
    let array = |(i, column): (usize, &perigee_tables::Column)| {
        let scalars = rows.iter().map(|row| scalar_of(&row[i], column.column_type));
        Ok(ScalarValue::iter_to_array(scalars)?)
    };
    columns.map(array).collect()
}
