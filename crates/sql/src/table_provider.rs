//! [`TableSource`]: a table for the planner: which filters become key ranges, and by which key or
//! index a statement reads.

use crate::error::SqlError;
use crate::key_ranges::{AccessPath, ColumnCondition, condition_of};
use crate::limits::INDEX_LOOKUP_COST;
use crate::read_state::CurrentReadState;
use crate::table_scan::{ScanRequest, TableScanExec};
use crate::values::{scalar_of, value_of, values_at};
use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Constraint, Constraints, DFSchema, Result, ScalarValue};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExecBuilder;
use perigee_tables::{
    BatchScan, ColumnType, DynTable, IndexDef, KeyColumn, Schema, UuidFormat, Value,
};
use std::collections::HashMap;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub struct TableSource {
    pub table: DynTable,
    pub schema: Schema,
    pub indexes: Vec<IndexDef>,
    /// Positions of the columns of the primary key.
    pub key_positions: Vec<usize>,
    arrow: SchemaRef,
    constraints: Constraints,
    defaults: HashMap<String, Expr>,
    read_state: Arc<CurrentReadState>,
}

impl TableSource {
    pub fn new(
        table: DynTable,
        read_state: Arc<CurrentReadState>,
    ) -> perigee_tables::Result<TableSource> {
        // Reads the stored schema: the handle may be older.
        let indexes = table.indexes()?;
        let schema = table.schema();
        let key_positions = key_positions(&schema, schema.key_columns());
        let key = Constraint::PrimaryKey(key_positions.clone());
        let with_default = |c: &perigee_tables::Column| {
            let default = c.default.as_ref()?;
            let scalar = scalar_of(default, c.column_type);
            Some((c.name.clone(), Expr::Literal(scalar, None)))
        };
        Ok(TableSource {
            arrow: Arc::new(schema.to_arrow(UuidFormat::Text)),
            constraints: Constraints::new_unverified(vec![key]),
            defaults: schema.columns().iter().filter_map(with_default).collect(),
            table,
            schema,
            indexes,
            key_positions,
            read_state,
        })
    }
    /// Returns the primary key of a row.
    pub fn key_of(&self, row: &[Value]) -> Vec<Value> {
        values_at(row, &self.key_positions)
    }
    /// Returns the cheapest way to read the rows that fulfill the conditions, the columns of its
    /// key, and the estimated number of rows.
    fn choose_path(
        &self,
        conditions: &[Option<ColumnCondition>],
        columns: &[String],
    ) -> perigee_tables::Result<(AccessPath, Vec<KeyColumn>, u64)> {
        let key = self.schema.key_columns();
        let path = AccessPath::new(None, key, &self.schema, conditions);
        let rows = self.estimate(&path)?;
        let (mut best, mut best_cost) = ((path, key.to_vec(), rows), rows);
        for index in &self.indexes {
            let name = Some(index.name());
            let path = AccessPath::new(name, index.columns(), &self.schema, conditions);
            let has =
                |name: &String| index.columns().iter().chain(key).any(|key| key.column == *name);
            let covered = columns.iter().all(has);
            if !path.is_selective() {
                continue;
            }
            let rows = self.estimate(&path)?;
            let cost = if covered { rows } else { rows.saturating_mul(INDEX_LOOKUP_COST) };
            // An index that is being built cannot be read.
            if cost < best_cost && self.is_ready(index) {
                (best, best_cost) = ((path, index.columns().to_vec(), rows), cost);
            }
        }
        Ok(best)
    }
    fn is_ready(&self, index: &IndexDef) -> bool {
        let read_state = self.read_state.get();
        let opened = read_state.map(|state| match state {
            crate::read_state::ReadState::Snapshot(snapshot) => {
                self.table.at(&snapshot).index(index.name()).is_ok()
            }
            crate::read_state::ReadState::Txn(txn) => {
                txn.with(|txn| Ok(txn.on(&self.table).index(index.name()).is_ok())).unwrap_or(false)
            }
        });
        opened.unwrap_or(false)
    }
    /// Returns the estimated number of rows; at most one for each value of a whole unique key.
    fn estimate(&self, path: &AccessPath) -> perigee_tables::Result<u64> {
        if path.empty {
            return Ok(0);
        }
        let key = match &path.index {
            None => Some(self.schema.key_columns()),
            Some(name) => {
                let index = self.indexes.iter().find(|i| i.is_unique() && i.name() == name);
                index.map(|index| index.columns())
            }
        };
        if key.is_some_and(|key| path.values == key.len()) {
            return Ok(path.ranges.len() as u64);
        }
        let scan = path.ranges.iter().cloned().fold(BatchScan::new(), BatchScan::range);
        let scan = match &path.index {
            Some(index) => scan.index(index),
            None => scan,
        };
        self.table.estimate_rows(&scan)
    }
    /// Writes UUIDs in conditions in the form in which SQL sees them.
    fn normalize_uuids(&self, filter: Expr) -> Result<Expr> {
        let is_uuid = |expr: &Expr| match expr {
            Expr::Column(column) => self
                .schema
                .position(&column.name)
                .is_some_and(|i| self.schema.columns()[i].column_type == ColumnType::Uuid),
            _ => false,
        };
        let normalize = |expr: Box<Expr>| -> Box<Expr> {
            if let Expr::Literal(scalar, _) = &*expr
                && let Some(id) = value_of(scalar, ColumnType::Uuid)
                && !id.is_null()
            {
                return Box::new(Expr::Literal(scalar_of(&id, ColumnType::Uuid), None));
            }
            expr
        };
        let rewritten = filter.transform(|expr| match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if is_uuid(&left) || is_uuid(&right) =>
            {
                let (left, right) = (normalize(left), normalize(right));
                Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
            }
            other => Ok(Transformed::no(other)),
        });
        Ok(rewritten?.data)
    }
}

#[async_trait]
impl TableProvider for TableSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.arrow)
    }
    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }
    fn table_type(&self) -> TableType {
        TableType::Base
    }
    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.defaults.get(column)
    }
    /// All filters are evaluated by the scan: as key ranges, or by an operator above it. So the
    /// path can be chosen when all of them are known.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let supports = |filter: &&Expr| {
            let subquery = |expr: &Expr| {
                Ok(matches!(
                    expr,
                    Expr::ScalarSubquery(_)
                        | Expr::InSubquery(_)
                        | Expr::Exists(_)
                        | Expr::SetComparison(_)
                        | Expr::OuterReferenceColumn(..)
                ))
            };
            Ok(match filter.exists(subquery)? {
                true => TableProviderFilterPushDown::Unsupported,
                false => TableProviderFilterPushDown::Exact,
            })
        };
        filters.iter().map(supports).collect()
    }
    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let name = |position: &usize| self.schema.columns()[*position].name.clone();
        let wanted: Vec<usize> = match projection {
            Some(projection) => projection.clone(),
            None => (0..self.schema.columns().len()).collect(),
        };
        let filters = filters.iter().map(|filter| self.normalize_uuids(filter.clone()));
        let filters = filters.collect::<Result<Vec<Expr>>>()?;
        let conditions: Vec<Option<ColumnCondition>> =
            filters.iter().map(|filter| condition_of(filter, &self.schema)).collect();
        // Columns that filters may need.
        let mut positions = wanted.clone();
        for filter in &filters {
            for column in filter.column_refs() {
                if let Some(position) = self.schema.position(&column.name)
                    && !positions.contains(&position)
                {
                    positions.push(position);
                }
            }
        }
        let names = |positions: &[usize]| positions.iter().map(name).collect::<Vec<String>>();
        let (path, key, estimated_rows) =
            self.choose_path(&conditions, &names(&positions)).map_err(SqlError::from)?;
        if path.empty || filters.iter().any(is_never_true) {
            let schema = Arc::new(self.arrow.project(&wanted)?);
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        let rest: Vec<Expr> = filters
            .into_iter()
            .zip(&path.answered)
            .filter(|(_, answered)| !**answered)
            .map(|(filter, _)| filter)
            .collect();
        // Only the columns of the filters that are left.
        let mut positions = wanted.clone();
        for column in rest.iter().flat_map(Expr::column_refs) {
            if let Some(position) = self.schema.position(&column.name)
                && !positions.contains(&position)
            {
                positions.push(position);
            }
        }
        let request = ScanRequest {
            table: self.table.clone(),
            columns: names(&positions),
            path,
            key,
            limit: if rest.is_empty() { limit } else { None },
            reversed: false,
            estimated_rows,
        };
        let scan = TableScanExec::new(request, self.read_state.get()?)?;
        let scan: Arc<dyn ExecutionPlan> = Arc::new(scan);
        let Some(predicate) = conjunction(rest) else { return Ok(scan) };
        let unqualified = predicate.transform(|expr| match expr {
            Expr::Column(column) => Ok(Transformed::yes(Expr::Column(
                datafusion::common::Column::from_name(column.name),
            ))),
            other => Ok(Transformed::no(other)),
        })?;
        let schema = DFSchema::try_from(scan.schema())?;
        let predicate = state.create_physical_expr(unqualified.data, &schema)?;
        let filter = FilterExecBuilder::new(predicate, scan);
        let filter = match positions.len() > wanted.len() {
            true => filter.apply_projection(Some((0..wanted.len()).collect()))?,
            false => filter,
        };
        Ok(Arc::new(filter.build()?))
    }
}

/// Returns the positions in the rows of the columns of a key or index.
pub fn key_positions(schema: &Schema, key: &[KeyColumn]) -> Vec<usize> {
    key.iter().filter_map(|key| schema.position(&key.column)).collect()
}

/// Returns true for conditions that the planner has found to be false or NULL.
fn is_never_true(filter: &Expr) -> bool {
    match filter {
        Expr::Literal(scalar, _) => *scalar != ScalarValue::Boolean(Some(true)),
        _ => false,
    }
}
