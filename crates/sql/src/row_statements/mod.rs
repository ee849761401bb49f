//! INSERT, UPDATE and DELETE: the query that finds the rows, and their writes, in one transaction.

mod upsert;

use crate::error::{Result, SqlError, SqlState};
use crate::read_state::SharedTxn;
use crate::row_changes::{
    OnConflict, RowChange, RowConflicts, decode_rows, delete_rows, find_conflict_key, insert_rows,
    not_null_violation, update_rows,
};
use crate::row_plan::{Change, RowPlan};
use crate::session::Session;
use crate::statement::Statement;
use crate::table_provider::TableSource;
use crate::values::value_of;
use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use datafusion::arrow::compute::{concat_batches, take};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::LogicalPlan;
use futures::TryStreamExt;
use perigee_tables::Value;
use std::sync::Arc;
use upsert::upsert_rows;

/// What a statement wrote.
#[derive(Debug)]
pub struct WrittenRows {
    /// Number of rows.
    pub rows: u64,
    /// Schema and rows of RETURNING.
    pub returned: Option<(SchemaRef, Vec<RecordBatch>)>,
}

/// Runs the plan of a statement that changes rows.
pub async fn write_rows(
    session: &Session,
    txn: &Arc<SharedTxn>,
    statement: &Statement,
    plan: &RowPlan,
) -> Result<WrittenRows> {
    match &plan.change {
        Change::Insert => {
            let inserted = insert(session, txn, statement, plan).await;
            inserted.map_err(|e| match plan.source() {
                Ok(source) => explain_null(e, statement, source),
                Err(_) => e,
            })
        }
        Change::Update { assigned } => update(session, txn, plan, assigned).await,
        Change::Delete => delete(session, txn, plan).await,
    }
}

/// Evaluates RETURNING, if there is one.
async fn written(
    session: &Session,
    plan: &RowPlan,
    count: usize,
    rows: &[Vec<Value>],
    others: &[ArrayRef],
) -> Result<WrittenRows> {
    let returned = match plan.returned_schema() {
        None => None,
        Some(schema) => {
            Some((schema, plan.evaluate_returning(&session.context, rows, others).await?))
        }
    };
    Ok(WrittenRows { rows: count as u64, returned })
}

/// Names the column if the executor has found NULL in a column of VALUES that is not nullable: it
/// calls them `column1`, `column2` and so on.
fn explain_null(error: SqlError, statement: &Statement, source: &TableSource) -> SqlError {
    let rest = error.message().split_once("Column 'column").map(|(_, rest)| rest);
    let number = rest.and_then(|rest| rest.split_once("' is declared as non-nullable"));
    let Some(number) = number.and_then(|(n, _)| n.parse::<usize>().ok()) else { return error };
    let listed = statement.insert_columns();
    let position = number.saturating_sub(1);
    let column = match listed.is_empty() {
        true => source.schema.columns().get(position).map(|c| c.name.clone()),
        false => listed.get(position).cloned(),
    };
    not_null_violation(source.table.name(), &column.unwrap_or_default())
}

async fn insert(
    session: &Session,
    txn: &Arc<SharedTxn>,
    statement: &Statement,
    plan: &RowPlan,
) -> Result<WrittenRows> {
    let source = plan.source()?;
    let conflicts = match statement.on_conflict()? {
        OnConflict::Fail => RowConflicts::Fail,
        OnConflict::Skip { target: None } => RowConflicts::SkipAll,
        OnConflict::Skip { target: Some(target) } => {
            RowConflicts::Skip(find_conflict_key(source, &target)?)
        }
        OnConflict::Update { target, update } => {
            let key = find_conflict_key(source, &target)?;
            let alias = statement.insert_alias();
            let name = alias.as_deref().unwrap_or_else(|| source.table.name());
            let batches = collect(session, plan.rows.clone()).await?;
            let rows = upsert_rows(session, txn, source, name, &key, update, &batches).await?;
            return written(session, plan, rows.len(), &rows, &[]).await;
        }
    };
    let mut inserted = 0;
    let mut returned = Vec::new();
    let mut write = |batch: &RecordBatch| -> Result<()> {
        let rows = decode_rows(source, batch)?;
        let positions = txn.with(|txn| insert_rows(txn, source, &rows, &conflicts))?;
        inserted += positions.len();
        if plan.returning.is_some() {
            returned.extend(positions.into_iter().map(|i| rows[i].clone()));
        }
        Ok(())
    };
    // A query that reads the table must not see the rows that it inserts.
    let name = source.table.name();
    let reads_target = |node: &LogicalPlan| {
        Ok(matches!(node, LogicalPlan::TableScan(scan) if scan.table_name.table() == name))
    };
    if has_subquery(&plan.rows)? || plan.rows.exists(reads_target)? {
        for batch in collect(session, plan.rows.clone()).await? {
            write(&batch)?;
        }
    } else {
        let mut stream = session.run_plan(plan.rows.clone()).await?;
        while let Some(batch) = stream.try_next().await? {
            write(&batch)?;
        }
    }
    written(session, plan, inserted, &returned, &[]).await
}

/// Returns true if the plan contains a subquery in an expression.
fn has_subquery(plan: &LogicalPlan) -> Result<bool> {
    Ok(plan.exists(|node| {
        let mut found = false;
        node.apply_subqueries(|_| {
            found = true;
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Stop)
        })?;
        Ok(found)
    })?)
}

async fn collect(session: &Session, plan: LogicalPlan) -> Result<Vec<RecordBatch>> {
    Ok(session.run_plan(plan).await?.try_collect().await?)
}

/// Returns the values at these positions of the columns from `first` on.
fn take_columns(batch: &RecordBatch, first: usize, positions: &[usize]) -> Result<Vec<ArrayRef>> {
    let indices = positions.iter().map(|i| *i as u64).collect::<Vec<_>>();
    let indices = UInt64Array::from(indices);
    let columns = batch.columns().iter().skip(first);
    columns.map(|array| Ok(take(array, &indices, None).map_err(DataFusionError::from)?)).collect()
}

/// Joins batches into one, so that rows have positions.
fn concat(plan: &RowPlan, batches: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
    match batches.first() {
        Some(first) if plan.returning.is_some() => {
            let batch = concat_batches(&first.schema(), &batches).map_err(DataFusionError::from)?;
            Ok(vec![batch])
        }
        _ => Ok(batches),
    }
}

async fn update(
    session: &Session,
    txn: &Arc<SharedTxn>,
    plan: &RowPlan,
    assigned: &[usize],
) -> Result<WrittenRows> {
    let source = plan.source()?;
    let columns = source.schema.columns().len();
    let batches = concat(plan, collect(session, plan.rows.clone()).await?)?;
    let mut changes: Vec<RowChange> = Vec::new();
    for batch in &batches {
        // The new row: the old one, with the assigned values instead.
        let mut positions: Vec<usize> = (assigned.len()..assigned.len() + columns).collect();
        assigned.iter().enumerate().for_each(|(value, column)| positions[*column] = value);
        let rows = decode_rows(source, &batch.project(&positions).map_err(DataFusionError::from)?)?;
        let keys = decode_keys(source, batch, |i| assigned.len() + source.key_positions[i])?;
        changes.extend(keys.into_iter().zip(rows));
    }
    let updated = txn.with(|txn| update_rows(txn, source, &changes))?;
    let (mut rows, mut others) = (Vec::new(), Vec::new());
    if let (true, Some(batch)) = (plan.returning.is_some(), batches.first()) {
        rows.extend(updated.iter().map(|i| changes[*i].1.clone()));
        others = take_columns(batch, assigned.len() + columns, &updated)?;
    }
    written(session, plan, updated.len(), &rows, &others).await
}

async fn delete(session: &Session, txn: &Arc<SharedTxn>, plan: &RowPlan) -> Result<WrittenRows> {
    let source = plan.source()?;
    let is_whole = plan.returning.is_some();
    let batches = concat(plan, collect(session, plan.rows.clone()).await?)?;
    let mut keys = Vec::new();
    for batch in &batches {
        let position = |i: usize| if is_whole { source.key_positions[i] } else { i };
        keys.extend(decode_keys(source, batch, position)?);
    }
    let deleted = txn.with(|txn| delete_rows(txn, source, &keys))?;
    let (mut rows, mut others) = (Vec::new(), Vec::new());
    if let (true, Some(batch)) = (is_whole, batches.first()) {
        let old = decode_rows(source, batch)?;
        rows.extend(deleted.iter().map(|i| old[*i].clone()));
        others = take_columns(batch, source.schema.columns().len(), &deleted)?;
    }
    written(session, plan, deleted.len(), &rows, &others).await
}

/// Decodes the primary keys; `column` returns where each of its columns is in the batch.
fn decode_keys(
    source: &TableSource,
    batch: &RecordBatch,
    column: impl Fn(usize) -> usize,
) -> Result<Vec<Vec<Value>>> {
    let mut keys = vec![Vec::new(); batch.num_rows()];
    for (i, position) in source.key_positions.iter().enumerate() {
        let column_type = source.schema.columns()[*position].column_type;
        for (row, values) in keys.iter_mut().enumerate() {
            let scalar = ScalarValue::try_from_array(batch.column(column(i)), row)?;
            let value = value_of(&scalar, column_type).ok_or_else(|| {
                let text = format!("the value {scalar} of a key has another type");
                SqlError::new(SqlState::INTERNAL, text)
            })?;
            values.push(value);
        }
    }
    Ok(keys)
}
