//! INSERT, UPDATE and DELETE: the query that finds the rows, and their writes, in one transaction.

use crate::error::{Result, SqlError, SqlState};
use crate::read_state::SharedTxn;
use crate::row_changes::{
    OnConflict, RowChange, RowConflicts, decode_rows, delete_rows, find_conflict_key, insert_rows,
    not_null_violation, update_rows,
};
use crate::session::Session;
use crate::statement::Statement;
use crate::table_provider::TableSource;
use crate::values::value_of;
use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, ScalarValue, TableReference};
use datafusion::logical_expr::{
    DmlStatement, Expr, LogicalPlan, LogicalPlanBuilder, Projection, WriteOp,
};
use futures::TryStreamExt;
use perigee_tables::Value;
use std::sync::Arc;

/// Runs the plan of a statement that changes rows; returns their number.
pub async fn write_rows(
    session: &Session,
    txn: &Arc<SharedTxn>,
    statement: &Statement,
    plan: LogicalPlan,
) -> Result<u64> {
    let LogicalPlan::Dml(dml) = plan else { return Err(statement.refusal()) };
    // The table that was planned: its name may denote another one by now, or one that an external
    // table of the session hides.
    let provider = source_as_provider(&dml.target)?;
    let Some(source) = provider.downcast_ref::<TableSource>() else {
        let name = dml.table_name.table();
        let text = format!("{name:?} is a file, which cannot be changed");
        return Err(SqlError::unsupported(text, "create a table and INSERT INTO it"));
    };
    match &dml.op {
        WriteOp::Insert(_) => {
            let inserted = insert(session, txn, statement, &dml, source).await;
            inserted.map_err(|e| explain_null(e, statement, source))
        }
        WriteOp::Update => update(session, txn, statement, &dml, source).await,
        WriteOp::Delete => delete(session, txn, &dml, source).await,
        _ => Err(statement.refusal()),
    }
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
    dml: &DmlStatement,
    source: &TableSource,
) -> Result<u64> {
    let conflicts = match statement.on_conflict()? {
        OnConflict::Fail => RowConflicts::Fail,
        OnConflict::Skip { target: None } => RowConflicts::SkipAll,
        OnConflict::Skip { target: Some(target) } => {
            RowConflicts::Skip(find_conflict_key(source, &target)?)
        }
        OnConflict::Update { target, update } => {
            let key = find_conflict_key(source, &target)?;
            let batches = collect(session, LogicalPlan::clone(&dml.input)).await?;
            return crate::upsert::upsert_rows(session, txn, source, &key, update, &batches).await;
        }
    };
    let write = |batch: &RecordBatch| {
        let rows = decode_rows(source, batch)?;
        txn.with(|txn| insert_rows(txn, source, &rows, &conflicts))
    };
    // A query that reads the table must not see the rows that it inserts.
    let name = dml.table_name.table();
    let reads_target = |node: &LogicalPlan| {
        Ok(matches!(node, LogicalPlan::TableScan(scan) if scan.table_name.table() == name))
    };
    let mut inserted = 0;
    if has_subquery(&dml.input)? || dml.input.exists(reads_target)? {
        for batch in collect(session, LogicalPlan::clone(&dml.input)).await? {
            inserted += write(&batch)?;
        }
        return Ok(inserted);
    }
    let mut stream = session.run_plan(LogicalPlan::clone(&dml.input)).await?;
    while let Some(batch) = stream.try_next().await? {
        inserted += write(&batch)?;
    }
    Ok(inserted)
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

/// Returns the columns of the primary key, as seen under the name of the table in the statement.
fn key_columns(source: &TableSource, table: &TableReference) -> Vec<Expr> {
    let column = |key: &perigee_tables::KeyColumn| {
        Expr::Column(Column::new(Some(table.clone()), key.column.clone()))
    };
    source.schema.key_columns().iter().map(column).collect()
}

async fn update(
    session: &Session,
    txn: &Arc<SharedTxn>,
    statement: &Statement,
    dml: &DmlStatement,
    source: &TableSource,
) -> Result<u64> {
    let LogicalPlan::Projection(projection) = &*dml.input else {
        return Err(SqlError::new(SqlState::INTERNAL, "the plan of an UPDATE has another form"));
    };
    let alias = statement.update_alias().map(TableReference::bare);
    let table = alias.unwrap_or_else(|| dml.table_name.clone());
    // The new row, then the key of the old one.
    let mut exprs = projection.expr.clone();
    let old_key = key_columns(source, &table).into_iter().enumerate();
    exprs.extend(old_key.map(|(i, column)| column.alias(format!("@key/{i}"))));
    let plan = Projection::try_new(exprs, Arc::clone(&projection.input))?;
    let mut changes: Vec<RowChange> = Vec::new();
    for batch in collect(session, LogicalPlan::Projection(plan)).await? {
        let rows = decode_rows(source, &batch)?;
        let keys = decode_keys(source, &batch, source.schema.columns().len())?;
        changes.extend(keys.into_iter().zip(rows));
    }
    txn.with(|txn| update_rows(txn, source, changes))
}

async fn delete(
    session: &Session,
    txn: &Arc<SharedTxn>,
    dml: &DmlStatement,
    source: &TableSource,
) -> Result<u64> {
    let plan = LogicalPlanBuilder::from(LogicalPlan::clone(&dml.input))
        .project(key_columns(source, &dml.table_name))?
        .build()?;
    let mut keys = Vec::new();
    for batch in collect(session, plan).await? {
        keys.extend(decode_keys(source, &batch, 0)?);
    }
    txn.with(|txn| delete_rows(txn, source, &keys))
}

/// Decodes the primary keys in the columns from `first` on.
fn decode_keys(source: &TableSource, batch: &RecordBatch, first: usize) -> Result<Vec<Vec<Value>>> {
    let mut keys = vec![Vec::new(); batch.num_rows()];
    for (i, position) in source.key_positions.iter().enumerate() {
        let column_type = source.schema.columns()[*position].column_type;
        for (row, values) in keys.iter_mut().enumerate() {
            let scalar = ScalarValue::try_from_array(batch.column(first + i), row)?;
            let value = value_of(&scalar, column_type).ok_or_else(|| {
                let text = format!("the value {scalar} of a key has another type");
                SqlError::new(SqlState::INTERNAL, text)
            })?;
            values.push(value);
        }
    }
    Ok(keys)
}
