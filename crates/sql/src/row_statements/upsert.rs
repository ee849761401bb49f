//! INSERT ... ON CONFLICT (key) DO UPDATE: rows that conflict change the existing ones.

use crate::error::{Result, SqlError, SqlState};
use crate::read_state::SharedTxn;
use crate::row_changes::{
    ConflictKey, RowChange, RowConflicts, decode_rows, find_conflicting, insert_rows, update_rows,
};
use crate::row_plan::rows_to_columns;
use crate::schema_statements::{identifier, object_name};
use crate::session::Session;
use crate::table_provider::TableSource;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, cast::AsArray};
use datafusion::arrow::datatypes::{DataType, Schema as ArrowSchema};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, TableReference};
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast::{AssignmentTarget, DoUpdate, Expr as AstExpr};
use perigee_tables::{UuidFormat, Value};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Name by which assignments refer to the row that was to be inserted.
const EXCLUDED: &str = "excluded";

/// A row that exists, and the one that was to be inserted.
struct Conflicting {
    /// Position of the latter in the statement.
    position: usize,
    existing: Vec<Value>,
    excluded: Vec<Value>,
}

/// Inserts rows, or applies the assignments to the rows that they conflict with. Returns the rows
/// that were written, in the order of the statement. `name` is that of the table in assignments.
pub async fn upsert_rows(
    session: &Session,
    txn: &Arc<SharedTxn>,
    source: &TableSource,
    name: &str,
    key: &ConflictKey,
    update: &DoUpdate,
    batches: &[RecordBatch],
) -> Result<Vec<Vec<Value>>> {
    let mut conflicts = Vec::new();
    let mut written: Vec<Option<Vec<Value>>> = Vec::new();
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
                Some(existing) => {
                    let position = written.len();
                    conflicts.push(Conflicting { position, existing, excluded: row });
                    written.push(None);
                }
                None => {
                    let rows = [row];
                    txn.with(|txn| insert_rows(txn, source, &rows, &RowConflicts::Fail))?;
                    written.extend(rows.map(Some));
                }
            }
        }
    }
    if !conflicts.is_empty() {
        let (positions, changes) = evaluate(session, source, name, update, &conflicts)?;
        let updated = txn.with(|txn| update_rows(txn, source, &changes))?;
        for i in updated {
            written[positions[i]] = Some(changes[i].1.clone());
        }
    }
    Ok(written.into_iter().flatten().collect())
}

/// Evaluates the assignments for the rows whose condition holds. Returns the positions of the rows
/// in the statement, and the changes.
fn evaluate(
    session: &Session,
    source: &TableSource,
    name: &str,
    update: &DoUpdate,
    conflicts: &[Conflicting],
) -> Result<(Vec<usize>, Vec<RowChange>)> {
    let fields = source.schema.to_arrow(UuidFormat::Text);
    let schema =
        |name: &str| DFSchema::try_from_qualified_schema(TableReference::bare(name), &fields);
    let schema = schema(name)?.join(&schema(EXCLUDED)?)?;
    let types: Vec<&DataType> = fields.fields().iter().map(|field| field.data_type()).collect();
    let existing: Vec<&[Value]> = conflicts.iter().map(|c| c.existing.as_slice()).collect();
    let excluded: Vec<&[Value]> = conflicts.iter().map(|c| c.excluded.as_slice()).collect();
    let existing = rows_to_columns(source, &existing, &types)?;
    let columns = [existing.clone(), rows_to_columns(source, &excluded, &types)?].concat();
    let arrow: ArrowSchema = schema.as_arrow().clone();
    let batch = RecordBatch::try_new(Arc::new(arrow), columns)
        .map_err(|e| SqlError::new(SqlState::INTERNAL, e.to_string()))?;

    let keep = match &update.selection {
        None => vec![true; conflicts.len()],
        Some(condition) => {
            let keep =
                evaluate_expr(session, name, condition, &DataType::Boolean, &schema, &batch)?;
            let keep = keep.as_boolean();
            (0..conflicts.len()).map(|i| keep.is_valid(i) && keep.value(i)).collect()
        }
    };
    let mut assigned = existing;
    for assignment in &update.assignments {
        let AssignmentTarget::ColumnName(column) = &assignment.target else {
            return Err(SqlError::unsupported("SET of several columns", "set them one by one"));
        };
        let column = object_name(column)?;
        let Some(position) = source.schema.position(&column) else {
            let text = format!("there is no column {column:?}");
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, text));
        };
        let data_type = fields.field(position).data_type();
        assigned[position] =
            evaluate_expr(session, name, &assignment.value, data_type, &schema, &batch)?;
    }
    let nullable = fields.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
    let nullable = Arc::new(ArrowSchema::new(nullable.collect::<Vec<_>>()));
    let new = RecordBatch::try_new(nullable, assigned)
        .map_err(|e| SqlError::new(SqlState::INTERNAL, e.to_string()))?;
    let rows = decode_rows(source, &new)?;
    let changes = conflicts.iter().zip(rows).zip(keep);
    let changes = changes.filter(|(_, keep)| *keep);
    let change =
        |((c, row), _): ((&Conflicting, _), _)| (c.position, (source.key_of(&c.existing), row));
    Ok(changes.map(change).unzip())
}

/// Evaluates an expression over the rows; unqualified columns are those of the existing row.
fn evaluate_expr(
    session: &Session,
    table: &str,
    expr: &AstExpr,
    data_type: &DataType,
    schema: &DFSchema,
    batch: &RecordBatch,
) -> Result<ArrayRef> {
    let expr = qualify(expr, table);
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
