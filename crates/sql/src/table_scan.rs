//! [`TableScanExec`]: the operator that reads a table or index and returns record batches.

use crate::error::{Result as SqlResult, SqlError};
use crate::key_ranges::{AccessPath, ValueRange};
use crate::limits::EXPLAINED_RANGES_MAX;
use crate::read_state::ReadState;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::equivalence::EquivalenceProperties;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    AcrossPartitions, ConstExpr, Partitioning, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions, SendableRecordBatchStream, SortOrderPushdownResult,
};
use perigee_tables::{BatchReader, BatchScan, DynTable, KeyColumn, Order, UuidFormat, Value};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// What a scan reads.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    pub table: DynTable,
    /// The columns, by name.
    pub columns: Vec<String>,
    pub path: AccessPath,
    /// The columns of the key or index that the path follows.
    pub key: Vec<KeyColumn>,
    pub limit: Option<usize>,
    pub reversed: bool,
    pub estimated_rows: u64,
}

impl ScanRequest {
    fn to_scan(&self) -> BatchScan {
        let scan = BatchScan::new().columns(self.columns.iter().cloned());
        let scan = scan.uuids(UuidFormat::Text).reversed(self.reversed);
        let scan = self.path.ranges.iter().cloned().fold(scan, BatchScan::range);
        let scan = match &self.path.index {
            Some(index) => scan.index(index),
            None => scan,
        };
        match self.limit {
            Some(limit) => scan.limit(limit as u64),
            None => scan,
        }
    }
    /// Returns what the planner can know of the order of the rows.
    fn equivalences(&self, schema: &SchemaRef) -> EquivalenceProperties {
        let find = |key: &KeyColumn| -> Option<Arc<dyn PhysicalExpr>> {
            let position = self.columns.iter().position(|name| *name == key.column)?;
            Some(Arc::new(Column::new(&key.column, position)))
        };
        let sort = |key: &KeyColumn| {
            let descending = (key.order == Order::Descending) != self.reversed;
            // NULL is the smallest value.
            let options = SortOptions { descending, nulls_first: !descending };
            Some(PhysicalSortExpr { expr: find(key)?, options })
        };
        // The order after columns with one value does not depend on them.
        let (constants, rest) = self.key.split_at(self.path.constants.min(self.key.len()));
        let ordering: Vec<PhysicalSortExpr> = rest.iter().map_while(sort).collect();
        let mut properties = EquivalenceProperties::new(Arc::clone(schema));
        if !ordering.is_empty() {
            properties.add_ordering(ordering);
        }
        let constant =
            |key: &KeyColumn| Some(ConstExpr::new(find(key)?, AcrossPartitions::Uniform(None)));
        // Without them the scan sorts more than needed; no reason to fail.
        let _ = properties.add_constants(constants.iter().filter_map(constant));
        properties
    }
}

/// See the module. It has one partition.
#[derive(Debug)]
pub struct TableScanExec {
    request: ScanRequest,
    read_state: ReadState,
    schema: SchemaRef,
    covered: bool,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl TableScanExec {
    pub fn new(request: ScanRequest, read_state: ReadState) -> SqlResult<TableScanExec> {
        let reader = open_reader(&request, &read_state)?;
        let (schema, covered) = (reader.schema(), reader.is_covered());
        Ok(TableScanExec::with_schema(request, read_state, schema, covered))
    }
    fn with_schema(
        request: ScanRequest,
        read_state: ReadState,
        schema: SchemaRef,
        covered: bool,
    ) -> TableScanExec {
        let properties = PlanProperties::new(
            request.equivalences(&schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        TableScanExec {
            request,
            read_state,
            schema,
            covered,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
    /// Returns the scan with another limit or direction; columns and index stay the same.
    fn with_request(&self, request: ScanRequest) -> Arc<dyn ExecutionPlan> {
        let (read_state, schema) = (self.read_state.clone(), Arc::clone(&self.schema));
        Arc::new(TableScanExec::with_schema(request, read_state, schema, self.covered))
    }
}

/// Begins a scan as of the read state.
fn open_reader(request: &ScanRequest, read_state: &ReadState) -> SqlResult<BatchReader> {
    let scan = request.to_scan();
    Ok(match read_state {
        ReadState::Snapshot(snapshot) => request.table.at(snapshot).batches(&scan)?.detach(),
        ReadState::Txn(txn) => {
            txn.with(|txn| Ok(txn.on(&request.table).batches(&scan)?.detach()))?
        }
    })
}

fn read_batch(reader: &mut BatchReader, read_state: &ReadState) -> SqlResult<Option<RecordBatch>> {
    match read_state {
        ReadState::Snapshot(snapshot) => reader.read_at(snapshot).map_err(SqlError::from),
        ReadState::Txn(txn) => txn.with(|txn| Ok(reader.read_in(txn)?)),
    }
}

/// Formats a range as `(7, 1) <= key < (7, 5)`.
fn format_range(range: &ValueRange) -> String {
    let tuple = |values: &[Value]| {
        let values: Vec<String> = values.iter().map(Value::to_string).collect();
        format!("({})", values.join(", "))
    };
    if let (Bound::Included(low), Bound::Included(high)) = range
        && low == high
    {
        return format!("= {}", tuple(low));
    }
    let mut text = match &range.0 {
        Bound::Included(low) => format!("from {}", tuple(low)),
        Bound::Excluded(low) => format!("after {}", tuple(low)),
        Bound::Unbounded => String::new(),
    };
    let end = match &range.1 {
        Bound::Included(high) => format!("to {}", tuple(high)),
        Bound::Excluded(high) => format!("before {}", tuple(high)),
        Bound::Unbounded => String::new(),
    };
    if !text.is_empty() && !end.is_empty() {
        text.push(' ');
    }
    text + &end
}

impl DisplayAs for TableScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = &self.request;
        write!(f, "TableScanExec: table={}", request.table.name())?;
        if let Some(index) = &request.path.index {
            let covered = if self.covered { " (index only)" } else { "" };
            write!(f, ", index={index}{covered}")?;
        }
        let names: Vec<&str> = request.key.iter().map(|key| key.column.as_str()).collect();
        if !request.path.ranges.is_empty() {
            let shown = request.path.ranges.iter().take(EXPLAINED_RANGES_MAX).map(format_range);
            let more = request.path.ranges.len().saturating_sub(EXPLAINED_RANGES_MAX);
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            let shown: Vec<String> = shown.collect();
            write!(f, ", range=({}) {}{more}", names.join(", "), shown.join(", "))?;
        }
        write!(f, ", columns=[{}]", request.columns.join(", "))?;
        if let Some(limit) = request.limit {
            write!(f, ", limit={limit}")?;
        }
        if request.reversed {
            f.write_str(", reversed")?;
        }
        write!(f, ", estimated_rows={}", request.estimated_rows)
    }
}

impl ExecutionPlan for TableScanExec {
    fn name(&self) -> &str {
        "TableScanExec"
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }
    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }
    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let rows_read = MetricBuilder::new(&self.metrics).counter("rows_read", partition);
        let reader = open_reader(&self.request, &self.read_state)?;
        let read_state = self.read_state.clone();
        let stream = futures::stream::try_unfold(reader, move |mut reader| {
            let timer = metrics.elapsed_compute().timer();
            let batch = read_batch(&mut reader, &read_state);
            timer.done();
            if let Ok(Some(batch)) = &batch {
                metrics.record_output(batch.num_rows());
                rows_read.add(batch.num_rows());
            }
            std::future::ready(match batch {
                Ok(batch) => Ok(batch.map(|batch| (batch, reader))),
                Err(e) => Err(e.into()),
            })
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream)))
    }
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let limit = self.request.limit.unwrap_or(usize::MAX);
        let rows = usize::try_from(self.request.estimated_rows).unwrap_or(usize::MAX);
        let mut statistics = Statistics::new_unknown(&self.schema);
        statistics.num_rows = Precision::Inexact(rows.min(limit));
        Ok(Arc::new(statistics))
    }
    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(self.with_request(ScanRequest { limit, ..self.request.clone() }))
    }
    fn fetch(&self) -> Option<usize> {
        self.request.limit
    }
    /// Reads in reverse order if that is the demanded one.
    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
    ) -> Result<SortOrderPushdownResult<Arc<dyn ExecutionPlan>>> {
        if self.request.limit.is_some() {
            return Ok(SortOrderPushdownResult::Unsupported);
        }
        let reversed = ScanRequest { reversed: !self.request.reversed, ..self.request.clone() };
        let fits = reversed.equivalences(&self.schema).ordering_satisfy(order.to_vec())?;
        Ok(match fits {
            true => SortOrderPushdownResult::Exact { inner: self.with_request(reversed) },
            false => SortOrderPushdownResult::Unsupported,
        })
    }
}
