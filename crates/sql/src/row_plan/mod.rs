//! [`RowPlan`]: the plan of an INSERT, UPDATE or DELETE.

mod row_queries;

use crate::error::{Result, SqlError, SqlState};
use crate::statement::Statement;
use crate::table_provider::TableSource;
use crate::values::scalar_of;
use datafusion::arrow::array::{ArrayRef, RecordBatch, new_empty_array};
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchemaRef, ScalarValue, TableReference};
use datafusion::logical_expr::{
    EmptyRelation, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Projection,
    TableSource as PlannedTable,
};
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use perigee_tables::Value;
use row_queries::RowQueries;
use std::collections::HashMap;
use std::sync::Arc;

/// What a statement does with the rows of [`RowPlan::rows`].
pub enum Change {
    /// They are the new rows.
    Insert,
    /// They have the values for these positions of columns, then the columns of the old row, then
    /// those of other tables that RETURNING may need.
    Update { assigned: Vec<usize> },
    /// They have the columns of the key; with RETURNING all columns of the row, then those of other
    /// tables.
    Delete,
}

/// See the module.
pub struct RowPlan {
    /// The table that was planned: its name may denote another one by now, or one that an external
    /// table of the session hides.
    target: Arc<dyn TableProvider>,
    pub change: Change,
    pub rows: LogicalPlan,
    /// A projection over the columns of the tables, without rows.
    pub returning: Option<LogicalPlan>,
}

impl RowPlan {
    /// Plans a statement.
    pub async fn new(context: &SessionContext, statement: &Statement) -> Result<RowPlan> {
        let queries = RowQueries::new(statement)?;
        let plan = context.state().statement_to_plan(queries.rows).await?;
        let returning = match queries.returning {
            None => None,
            Some(query) => {
                let plan = context.state().statement_to_plan(query).await?;
                Some(projection_without_rows(plan)?)
            }
        };
        let projection = match plan {
            LogicalPlan::Dml(insert) => {
                let target = changed_table(&insert.target)?;
                let rows = LogicalPlan::clone(&insert.input);
                return Ok(RowPlan { target, change: Change::Insert, rows, returning });
            }
            plan => into_projection(plan, "an assignment")?,
        };
        let target = first_table(&projection.input)?;
        let source = table_source(&target)?;
        let input = projection.input.schema();
        let all =
            |count: usize| (0..count).map(|i| Expr::Column(Column::from(input.qualified_field(i))));
        let columns = source.schema.columns().len();
        let needed = if returning.is_some() { input.fields().len() } else { columns };
        let (exprs, change) = if queries.assigned.is_empty() {
            let exprs = match returning {
                Some(_) => all(needed).collect(),
                None => {
                    let row: Vec<Expr> = all(columns).collect();
                    source.key_positions.iter().map(|i| row[*i].clone()).collect()
                }
            };
            (exprs, Change::Delete)
        } else {
            let (mut exprs, assigned) = assigned_values(source, &projection, &queries.assigned)?;
            exprs.extend(all(needed));
            (exprs, Change::Update { assigned })
        };
        let rows = Projection::try_new(exprs, Arc::clone(&projection.input))?;
        Ok(RowPlan { target, change, rows: LogicalPlan::Projection(rows), returning })
    }
    /// Returns the table whose rows are changed.
    pub fn source(&self) -> Result<&TableSource> {
        table_source(&self.target)
    }
    /// Returns the plan with values for the parameters.
    pub fn with_parameters(mut self, parameters: &[ScalarValue]) -> Result<RowPlan> {
        self.rows = bind_parameters(self.rows, parameters)?;
        let returning = self.returning.map(|plan| bind_parameters(plan, parameters));
        self.returning = returning.transpose()?;
        Ok(self)
    }
    /// Returns the types of the parameters, by their names.
    pub fn parameter_types(&self) -> Result<HashMap<String, Option<DataType>>> {
        let mut types = self.rows.get_parameter_types()?;
        if let Some(returning) = &self.returning {
            for (name, data_type) in returning.get_parameter_types()? {
                let known = types.entry(name).or_default();
                *known = known.take().or(data_type);
            }
        }
        Ok(types)
    }
    /// Returns the schema of the rows of RETURNING.
    pub fn returned_schema(&self) -> Option<SchemaRef> {
        self.returning.as_ref().map(|plan| Arc::clone(plan.schema().inner()))
    }
    /// Evaluates RETURNING for rows of the table, and the columns of other tables beside them.
    pub async fn evaluate_returning(
        &self,
        context: &SessionContext,
        rows: &[Vec<Value>],
        others: &[ArrayRef],
    ) -> Result<Vec<RecordBatch>> {
        let Some(LogicalPlan::Projection(projection)) = &self.returning else {
            return Ok(Vec::new());
        };
        let source = self.source()?;
        let schema = projection.input.schema();
        let types: Vec<&DataType> = schema.fields().iter().map(|field| field.data_type()).collect();
        let mut columns = rows_to_columns(source, rows, &types)?;
        columns.extend(others.iter().cloned());
        let input = memory_scan(schema, columns)?;
        let plan = Projection::try_new(projection.expr.clone(), Arc::new(input))?;
        // One partition, so that rows keep their order.
        let mut state = context.state();
        state.config_mut().options_mut().execution.target_partitions = 1;
        let physical = state.create_physical_plan(&LogicalPlan::Projection(plan)).await?;
        Ok(execute_stream(physical, context.task_ctx())?.try_collect().await?)
    }
}

/// Returns a plan with values for the parameters.
pub fn bind_parameters(plan: LogicalPlan, parameters: &[ScalarValue]) -> Result<LogicalPlan> {
    match parameters.is_empty() {
        true => Ok(plan),
        false => Ok(plan.with_param_values(parameters.to_vec())?),
    }
}

fn table_source(provider: &Arc<dyn TableProvider>) -> Result<&TableSource> {
    provider.downcast_ref::<TableSource>().ok_or_else(|| {
        let text = "a file or a table of the catalog cannot be changed: this";
        SqlError::unsupported(text, "create a table and INSERT INTO it")
    })
}

fn changed_table(planned: &Arc<dyn PlannedTable>) -> Result<Arc<dyn TableProvider>> {
    let provider = source_as_provider(planned)?;
    table_source(&provider)?;
    Ok(provider)
}

/// Returns the first table of a FROM clause.
fn first_table(plan: &LogicalPlan) -> Result<Arc<dyn TableProvider>> {
    let mut found = None;
    plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            found = Some(Arc::clone(&scan.source));
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let found = found.ok_or_else(|| SqlError::new(SqlState::INTERNAL, "no table was planned"))?;
    changed_table(&found)
}

/// Returns the values for assigned columns, in the types of these columns, and their positions.
fn assigned_values(
    source: &TableSource,
    projection: &Projection,
    names: &[String],
) -> Result<(Vec<Expr>, Vec<usize>)> {
    let input = projection.input.schema();
    let (mut exprs, mut positions) = (Vec::new(), Vec::new());
    for (name, expr) in names.iter().zip(&projection.expr) {
        let Some(position) = source.schema.position(name) else {
            let text = format!("table {:?} has no column {name:?}", source.table.name());
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, text)
                .with_hint("names are in lower case unless they are quoted"));
        };
        let field = input.field(position);
        let mut expr = expr.clone().unalias();
        if let Expr::Placeholder(placeholder) = &mut expr {
            placeholder.field.get_or_insert_with(|| Arc::clone(field));
        }
        let expr = expr.cast_to(field.data_type(), input)?;
        exprs.push(expr.alias(format!("@set/{}", positions.len())));
        positions.push(position);
    }
    Ok((exprs, positions))
}

/// Returns the projection that a SELECT without aggregates consists of.
fn into_projection(plan: LogicalPlan, place: &str) -> Result<Projection> {
    match plan {
        LogicalPlan::Projection(projection)
            if !matches!(
                &*projection.input,
                LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) | LogicalPlan::Unnest(_)
            ) =>
        {
            Ok(projection)
        }
        _ => {
            let what = format!("an aggregate or window function in {place}");
            Err(SqlError::unsupported(what, "use a subquery"))
        }
    }
}

/// Returns a projection over no rows of the same columns.
fn projection_without_rows(plan: LogicalPlan) -> Result<LogicalPlan> {
    let projection = into_projection(plan, "RETURNING")?;
    let target = first_table(&projection.input)?;
    let name = table_source(&target)?.table.name().to_owned();
    let schema = Arc::clone(projection.input.schema());
    let input = LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema });
    let plan = LogicalPlan::Projection(Projection::try_new(projection.expr, Arc::new(input))?);
    // It would see the rows as they are after the change; PostgreSQL shows those before.
    let mut reads_target = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            reads_target |= scan.table_name.table() == name;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if reads_target {
        let what = format!("a subquery in RETURNING that reads the changed table {name:?}");
        return Err(SqlError::unsupported(what, "send a SELECT before, in the same transaction"));
    }
    Ok(plan)
}

/// Returns rows as the columns of the types.
pub fn rows_to_columns<R: AsRef<[Value]>>(
    source: &TableSource,
    rows: &[R],
    types: &[&DataType],
) -> Result<Vec<ArrayRef>> {
    let columns = source.schema.columns().iter().zip(types).enumerate();
    let array = |(i, (column, data_type)): (usize, (&perigee_tables::Column, &&DataType))| {
        if rows.is_empty() {
            return Ok(new_empty_array(data_type));
        }
        let scalars = rows.iter().map(|row| scalar_of(&row.as_ref()[i], column.column_type));
        Ok(ScalarValue::iter_to_array(scalars)?)
    };
    columns.map(array).collect()
}

/// Returns a plan that reads these columns, under the names of a schema.
fn memory_scan(schema: &DFSchemaRef, columns: Vec<ArrayRef>) -> Result<LogicalPlan> {
    let fields = schema.fields().iter().enumerate();
    let fields =
        fields.map(|(i, f)| Field::new(format!("c{i}"), f.data_type().clone(), f.is_nullable()));
    let arrow = Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()));
    let batch = RecordBatch::try_new(Arc::clone(&arrow), columns)
        .map_err(|e| SqlError::new(SqlState::INTERNAL, e.to_string()))?;
    let table = MemTable::try_new(arrow, vec![vec![batch]])?;
    let names = (0..schema.fields().len()).map(|i| {
        let (qualifier, field) = schema.qualified_field(i);
        let column = Expr::Column(Column::from_name(format!("c{i}")));
        column.alias_qualified(qualifier.cloned(), field.name())
    });
    let scan = LogicalPlanBuilder::scan(
        TableReference::bare("@returning"),
        provider_as_source(Arc::new(table)),
        None,
    )?;
    Ok(scan.project(names)?.build()?)
}
