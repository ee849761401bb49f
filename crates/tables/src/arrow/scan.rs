//! [`BatchScan`]: scans of a table or index that return record batches. Only the requested columns
//! are decoded, from the stored bytes straight into the columns of the batch.

use crate::arrow::columns::ColumnBuilder;
use crate::arrow::types::{UuidFormat, arrow_field};
use crate::binding::{Binding, IndexPlan, KeyColumnSource};
use crate::error::{Error, Malformed, Result};
use crate::index_entry::read_row_key;
use crate::index_reads::{IndexReadPoint, find_index};
use crate::key::write_values;
use crate::limits::{BATCH_BYTES_MAX, BATCH_ROWS_DEFAULT};
use crate::ordered::{Component, KeyReader};
use crate::row_reads::{
    DirectedCursor, KeyRange, ReadPoint, RowSource, encode_range, malformed_row,
};
use crate::schema::stored::ColumnId;
use crate::table_state::{ROWS, TableState};
use crate::txn::TableTxn;
use crate::value::Value;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use perigee::Snapshot;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// Number of fields up to which the columns of a row are split without an allocation.
const FIELDS_ON_STACK: usize = 16;

/// A range of values for the first columns of a key or index, in its order.
type ValueRange = (Bound<Vec<Value>>, Bound<Vec<Value>>);

/// What a scan reads: columns, ranges of the primary key or of an index, direction, number of rows.
///
/// ```
/// use perigee_tables::{BatchScan, ColumnType, Schema, TableDb, Value};
/// # let db = perigee::example_db()?;
/// let schema = Schema::new().key("id", ColumnType::U32).column("name", ColumnType::Text);
/// let users = db.create_dyn_table("users", schema)?;
/// users.load((0..100u32).map(|id| vec![id.into(), format!("user {id}").into()]))?;
///
/// let scan = BatchScan::new().columns(["name"]).range(vec![Value::U32(10)]..vec![Value::U32(20)]);
/// let batch = users.batches(&scan)?.next().expect("there are rows")?;
/// assert_eq!((batch.num_rows(), batch.num_columns()), (10, 1));
/// # Ok::<(), perigee_tables::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct BatchScan {
    columns: Option<Vec<String>>,
    index: Option<String>,
    /// No range: all rows.
    ranges: Vec<ValueRange>,
    reversed: bool,
    limit: Option<u64>,
    batch_rows: Option<usize>,
    uuids: UuidFormat,
}

impl BatchScan {
    /// Returns a scan of all columns and rows.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.load((0..100u32).map(|id| vec![id.into()]))?;
    /// let batches: Result<Vec<_>> = users.batches(&BatchScan::new())?.collect();
    /// assert_eq!(batches?[0].num_rows(), 100);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn new() -> BatchScan {
        BatchScan::default()
    }
    /// Reads these columns only, in this order. Without any, batches have a number of rows only.
    #[must_use]
    pub fn columns<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> BatchScan {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }
    /// Reads rows in the order of a secondary index, which the ranges then refer to. Rows are not
    /// read if the index and the primary key have all the columns.
    #[must_use]
    pub fn index(mut self, name: impl Into<String>) -> BatchScan {
        self.index = Some(name.into());
        self
    }
    /// Adds a range of values for the first columns of the key, as of
    /// [`Table::range`](crate::Table::range). Ranges must not overlap; they are read in the order
    /// of the key, whatever the order of the calls.
    #[must_use]
    pub fn range(mut self, range: impl RangeBounds<Vec<Value>>) -> BatchScan {
        self.ranges.push((range.start_bound().cloned(), range.end_bound().cloned()));
        self
    }
    /// Reads rows in reverse order.
    #[must_use]
    pub fn reversed(mut self, reversed: bool) -> BatchScan {
        self.reversed = reversed;
        self
    }
    /// Ends after this number of rows.
    #[must_use]
    pub fn limit(mut self, rows: u64) -> BatchScan {
        self.limit = Some(rows);
        self
    }
    /// Sets the number of rows of a batch (default 8,192). A batch ends earlier if its rows take
    /// more than 16 MiB.
    #[must_use]
    pub fn batch_rows(mut self, rows: usize) -> BatchScan {
        self.batch_rows = Some(rows.max(1));
        self
    }
    /// Sets the representation of UUIDs.
    #[must_use]
    pub fn uuids(mut self, format: UuidFormat) -> BatchScan {
        self.uuids = format;
        self
    }

    /// Encodes the ranges, and sorts them in the direction of the scan.
    fn encode_ranges(&self, number: u8, format: &[Component]) -> Result<Vec<KeyRange>> {
        if self.ranges.is_empty() {
            return Ok(vec![(Bound::Included(vec![number]), Bound::Excluded(vec![number + 1]))]);
        }
        let encode = |values: &Vec<Value>, out: &mut Vec<u8>| write_values(values, format, out);
        let ranges = self.ranges.iter().map(|range| encode_range(number, range, encode));
        let mut ranges = ranges.collect::<Result<Vec<_>>>()?;
        ranges.sort_by(|a, b| range_start(a).cmp(range_start(b)));
        if self.reversed {
            ranges.reverse();
        }
        Ok(ranges)
    }
}

fn range_start(range: &KeyRange) -> &[u8] {
    match &range.0 {
        Bound::Included(start) | Bound::Excluded(start) => start,
        Bound::Unbounded => &[],
    }
}

/// Returns the estimated number of rows of a scan, without its limit, from metadata in memory.
pub(crate) fn estimate_rows(source: &RowSource<'_>, scan: &BatchScan) -> Result<u64> {
    let binding = source.binding()?;
    let ranges = match &scan.index {
        None => scan.encode_ranges(ROWS, &binding.key)?,
        Some(name) => {
            let plan = binding.indexes.iter().find(|plan| plan.name == *name);
            let Some(plan) = plan else { return Ok(0) };
            scan.encode_ranges(plan.number, &plan.columns)?
        }
    };
    let mut rows = 0;
    for range in ranges {
        let estimate = source.state.family.estimate_range(range);
        rows += estimate.map_err(|e| source.state.engine_error(e))?.keys;
    }
    Ok(rows)
}

/// An iterator over the record batches of a scan. After an error it ends.
#[derive(Debug)]
pub struct BatchIter<'a> {
    reader: BatchReader,
    read_point: IndexReadPoint<'a>,
    ended: bool,
}

impl<'a> BatchIter<'a> {
    pub(crate) fn open(source: &RowSource<'a>, scan: &BatchScan) -> Result<BatchIter<'a>> {
        let read_point = IndexReadPoint::new(source)?;
        let reader = BatchReader::new(&read_point.source(source.state), scan)
            .map_err(|e| e.in_table(&source.state.name))?;
        Ok(BatchIter { reader, read_point, ended: false })
    }
    /// Returns the schema of the batches.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let batches = users.batches(&BatchScan::new())?;
    /// assert_eq!(batches.schema().field(0).name(), "id");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.reader.schema)
    }
    /// Returns the scan without the snapshot or transaction that it reads, for programs that pass
    /// these to each call.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let tx = db.begin_tables(Default::default())?;
    /// tx.on(&users).put(&vec![Value::U32(1)])?;
    /// let mut reader = tx.on(&users).batches(&BatchScan::new())?.detach();
    /// assert_eq!(reader.read_in(&tx)?.map(|batch| batch.num_rows()), Some(1));
    /// assert!(reader.read_in(&tx)?.is_none());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn detach(self) -> BatchReader {
        self.reader
    }
}

impl Iterator for BatchIter<'_> {
    type Item = Result<RecordBatch>;
    fn next(&mut self) -> Option<Result<RecordBatch>> {
        if self.ended {
            return None;
        }
        let state = Arc::clone(&self.reader.state);
        let batch = self.reader.read(&self.read_point.source(&state)).transpose();
        self.ended = !matches!(batch, Some(Ok(_)));
        batch
    }
}

/// A scan in progress; see [`BatchIter::detach`]. Pass the same snapshot or transaction to each
/// call.
pub struct BatchReader {
    state: Arc<TableState>,
    schema: SchemaRef,
    builder: BatchBuilder,
    index: Option<Arc<IndexPlan>>,
    /// True if the index entries have all the columns.
    covered: bool,
    /// The ranges that follow, the next one last.
    ranges: Vec<KeyRange>,
    cursor: Option<DirectedCursor>,
    reversed: bool,
    /// Rows up to the limit.
    remaining: u64,
    batch_rows: usize,
}

/// What the next row of a scan gave.
enum ReadRow {
    /// A row of this stored size was appended.
    Appended(usize),
    /// An index entry whose row has gone.
    Gone,
    /// The end of the range.
    End,
}

impl BatchReader {
    fn new(source: &RowSource<'_>, scan: &BatchScan) -> Result<BatchReader> {
        let binding = source.binding()?;
        let index = scan.index.as_deref();
        let index = index.map(|name| {
            find_index(source, &binding, name).map(Arc::new).map_err(|e| e.in_index(name))
        });
        let index = index.transpose()?;
        let mut ranges = match &index {
            Some(plan) => scan.encode_ranges(plan.number, &plan.columns)?,
            None => scan.encode_ranges(ROWS, &binding.key)?,
        };
        ranges.reverse();
        let fields = match &scan.columns {
            None => (0..binding.fields.len() as u32).collect(),
            Some(names) => find_fields(&binding, names)?,
        };
        let bound = || fields.iter().map(|field| &binding.fields[*field as usize]);
        let arrow = bound().map(|f| arrow_field(&f.name, f.column_type, f.nullable, scan.uuids));
        let schema = Arc::new(Schema::new(arrow.collect::<Vec<_>>()));
        let batch_rows = scan.batch_rows.unwrap_or(BATCH_ROWS_DEFAULT);
        // A scan of few rows must not reserve space for many.
        let reserved = batch_rows.min(scan.limit.map_or(1024, |n| n.min(1024) as usize));
        let builder = |f: &crate::binding::BoundField| {
            ColumnBuilder::new(f.column_type, scan.uuids, reserved)
        };
        let builders = bound().map(builder).collect();
        let columns: Vec<ColumnId> = bound().map(|f| f.column).collect();
        let covered = index.as_ref().is_some_and(|plan| {
            let has = |id| plan.column_ids.contains(id) || binding.schema.is_key_column(*id);
            columns.iter().all(has)
        });
        Ok(BatchReader {
            state: Arc::clone(source.state),
            schema,
            builder: BatchBuilder::new(binding, columns, fields, builders),
            index,
            covered,
            ranges,
            cursor: None,
            reversed: scan.reversed,
            remaining: scan.limit.unwrap_or(u64::MAX),
            batch_rows,
        })
    }
    /// Returns the schema of the batches.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let reader = users.batches(&BatchScan::new())?.detach();
    /// assert_eq!(reader.schema().fields().len(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
    /// Returns true if an index answers the scan without reads of rows.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.create_index(IndexDef::new("newest").column_desc("id"))?;
    /// let scan = BatchScan::new().index("newest");
    /// assert!(users.batches(&scan)?.detach().is_covered());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_covered(&self) -> bool {
        self.covered
    }
    /// Returns the next batch of a scan of a snapshot; `None` at the end.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.insert(&vec![Value::U32(1)])?;
    /// let snapshot = db.snapshot()?;
    /// let mut reader = users.at(&snapshot).batches(&BatchScan::new())?.detach();
    /// assert_eq!(reader.read_at(&snapshot)?.map(|batch| batch.num_rows()), Some(1));
    /// assert!(reader.read_at(&snapshot)?.is_none());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn read_at(&mut self, snapshot: &Snapshot) -> Result<Option<RecordBatch>> {
        let state = Arc::clone(&self.state);
        self.read(&RowSource { state: &state, read_point: ReadPoint::Snapshot(snapshot) })
    }
    /// Returns the next batch of a scan in a transaction; `None` at the end.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let tx = db.begin_tables(Default::default())?;
    /// tx.on(&users).insert(&vec![Value::U32(1)])?;
    /// let mut reader = tx.on(&users).batches(&BatchScan::new())?.detach();
    /// assert_eq!(reader.read_in(&tx)?.map(|batch| batch.num_rows()), Some(1));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn read_in(&mut self, tx: &TableTxn<'_>) -> Result<Option<RecordBatch>> {
        let state = Arc::clone(&self.state);
        self.read(&RowSource { state: &state, read_point: ReadPoint::Txn(tx) })
    }

    fn read(&mut self, source: &RowSource<'_>) -> Result<Option<RecordBatch>> {
        let (mut rows, mut bytes) = (0, 0);
        let mut row_key = Vec::new();
        while rows < self.batch_rows && bytes < BATCH_BYTES_MAX && self.remaining > 0 {
            if self.cursor.is_none() {
                let Some(range) = self.ranges.pop() else { break };
                let mut cursor = DirectedCursor::new(source.cursor(range)?);
                if self.reversed {
                    cursor.reverse();
                }
                self.cursor = Some(cursor);
            }
            let read = self.read_row(source, &mut row_key).inspect_err(|_| self.cursor = None)?;
            match read {
                ReadRow::Appended(row_bytes) => {
                    rows += 1;
                    bytes += row_bytes;
                    self.remaining -= 1;
                }
                ReadRow::Gone => {}
                ReadRow::End => self.cursor = None,
            }
        }
        if rows == 0 {
            return Ok(None);
        }
        let columns = self.builder.builders.iter_mut().map(ColumnBuilder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options);
        batch.map(Some).map_err(|e| self.state.damaged(&e.to_string()))
    }
    /// Appends the next row of the cursor. Called for every row: moves and counts no references.
    fn read_row(&mut self, source: &RowSource<'_>, row_key: &mut Vec<u8>) -> Result<ReadRow> {
        let state = source.state;
        let fails = |e| state.engine_error(e);
        let Some(cursor) = &mut self.cursor else { return Ok(ReadRow::End) };
        let Some(entry) = cursor.advance().map_err(fails)? else { return Ok(ReadRow::End) };
        let Some(plan) = &self.index else {
            if self.builder.is_empty() {
                // Only the rows are counted: their values are not needed.
                return Ok(ReadRow::Appended(entry.key().len()));
            }
            let (key, row) = entry.entry().map_err(fails)?;
            self.builder.append_row(state, key, row)?;
            return Ok(ReadRow::Appended(key.len() + row.len()));
        };
        let expires = entry.expires_at_ms().is_some();
        let (key, value) = entry.entry().map_err(fails)?;
        let damaged = |_| state.damaged("an index entry is damaged").in_index(&plan.name);
        if self.covered {
            self.builder.append_entry(plan, key, value).map_err(damaged)?;
            return Ok(ReadRow::Appended(key.len() + value.len()));
        }
        read_row_key(plan, &self.builder.binding.key, key, value, row_key).map_err(damaged)?;
        match source.read_value(row_key)? {
            Some(row) => {
                self.builder.append_row(state, row_key, &row)?;
                Ok(ReadRow::Appended(row_key.len() + row.len()))
            }
            // The row has expired since, or the transaction has deleted it.
            None if expires || matches!(source.read_point, ReadPoint::Txn(_)) => Ok(ReadRow::Gone),
            None => {
                let text = "an index entry is damaged (its row does not exist)";
                Err(state.damaged(text).in_index(&plan.name))
            }
        }
    }
}

/// A column of a batch that is stored in the value of a row.
struct StoredField {
    /// Number of the field in the binding.
    field: usize,
    /// Number of its builder.
    builder: usize,
    nullable: bool,
}

/// The columns of a batch, and how rows of a binding are decoded into them.
struct BatchBuilder {
    binding: Arc<Binding>,
    /// The columns of the batches.
    columns: Vec<ColumnId>,
    builders: Vec<ColumnBuilder>,
    /// Those outside of the primary key.
    stored: Vec<StoredField>,
    /// For each column of the primary key its builder, if the batches have it.
    key_builders: Vec<Option<usize>>,
}

impl BatchBuilder {
    /// `fields`: the positions of `columns` in the fields of the binding.
    fn new(
        binding: Arc<Binding>,
        columns: Vec<ColumnId>,
        fields: Vec<u32>,
        builders: Vec<ColumnBuilder>,
    ) -> BatchBuilder {
        let mut builder = BatchBuilder {
            binding,
            columns,
            builders,
            stored: Vec::new(),
            key_builders: Vec::new(),
        };
        builder.plan_columns(&fields);
        builder
    }
    fn plan_columns(&mut self, fields: &[u32]) {
        let binding = &self.binding;
        let outside_key = (0..).zip(fields).filter(|(_, f)| !binding.key_fields.contains(f));
        self.stored = outside_key
            .map(|(builder, field)| {
                let field = *field as usize;
                StoredField { field, builder, nullable: binding.fields[field].nullable }
            })
            .collect();
        let builder_of = |field: &u32| fields.iter().position(|f| f == field);
        self.key_builders = binding.key_fields.iter().map(builder_of).collect();
    }
    /// Returns true if the batches have no columns.
    fn is_empty(&self) -> bool {
        self.builders.is_empty()
    }

    /// Appends the columns of a row; binds the schema again if the row has a newer layout.
    fn append_row(&mut self, state: &TableState, key: &[u8], row: &[u8]) -> Result<()> {
        let mut appended = self.append_stored_row(key, row);
        if appended == Err(Malformed::UnknownLayout) {
            self.binding = state.refresh()?;
            let fields = self.columns.iter().map(|id| self.find_column(state, *id));
            let fields: Vec<u32> = fields.collect::<Result<_>>()?;
            self.plan_columns(&fields);
            appended = self.append_stored_row(key, row);
        }
        appended.map_err(|e| malformed_row(state, &self.binding, key, e))
    }
    /// Returns the field of a column in a schema that has changed during the scan.
    fn find_column(&self, state: &TableState, id: ColumnId) -> Result<u32> {
        let field = self.binding.fields.iter().position(|f| f.column == id);
        field.map(|field| field as u32).ok_or_else(|| {
            let text = "a column of the scan was dropped: begin the scan again";
            Error::mismatch(text).in_table(&state.name)
        })
    }
    /// Appends nothing if it fails with `UnknownLayout`.
    fn append_stored_row(&mut self, key: &[u8], row: &[u8]) -> std::result::Result<(), Malformed> {
        let BatchBuilder { binding, builders, stored: stored_fields, key_builders, .. } = self;
        let stored = binding.stored_row(&key[1..], row)?;
        if !stored_fields.is_empty() {
            let (mut few, mut many) = ([None; FIELDS_ON_STACK], Vec::new());
            let columns = match few.get_mut(..binding.fields.len()) {
                Some(columns) => columns,
                None => {
                    many.resize(binding.fields.len(), None);
                    &mut many[..]
                }
            };
            stored.split(columns)?;
            for StoredField { field, builder, nullable } in stored_fields {
                let stored = columns[*field];
                if stored.is_none() && !*nullable {
                    return Err(Malformed::Bytes("NULL in a column that is not nullable"));
                }
                builders[*builder].append_stored(stored)?;
            }
        }
        if key_builders.iter().any(Option::is_some) {
            let mut key = stored.key();
            for (component, builder) in binding.key.iter().zip(key_builders) {
                append_component(&mut key, *component, builder.map(|i| &mut builders[i]))?;
            }
            key.finish()?;
        }
        Ok(())
    }
    /// Appends the columns of an index entry.
    fn append_entry(
        &mut self,
        plan: &IndexPlan,
        key: &[u8],
        value: &[u8],
    ) -> std::result::Result<(), Malformed> {
        let BatchBuilder { binding, columns, builders, .. } = self;
        let mut append = |reader: &mut KeyReader<'_>, component: Component, id: ColumnId| {
            let position = columns.iter().position(|column| *column == id);
            append_component(reader, component, position.map(|i| &mut builders[i]))
        };
        let mut reader = KeyReader::new(key.get(1..).unwrap_or_default());
        let mut has_null = false;
        for (component, id) in plan.columns.iter().zip(&plan.column_ids) {
            has_null |= append(&mut reader, *component, *id)?;
        }
        if plan.unique && !has_null {
            reader.finish()?;
            reader = KeyReader::new(value);
        }
        for ((source, component), ordered) in
            plan.key_sources.iter().zip(&binding.key).zip(&binding.schema.key)
        {
            if *source == KeyColumnSource::Appended {
                append(&mut reader, *component, ordered.column)?;
            }
        }
        reader.finish()
    }
}

/// Reads a component of a key, appends it to its column if the scan has it, and returns true if it
/// is NULL.
fn append_component(
    reader: &mut KeyReader<'_>,
    component: Component,
    builder: Option<&mut ColumnBuilder>,
) -> std::result::Result<bool, Malformed> {
    let Some(builder) = builder else { return Ok(reader.skip(component)?.1) };
    let value = reader.read_value(component)?;
    builder.append_value(&value)?;
    Ok(value.is_null())
}

/// Returns the fields of columns.
fn find_fields(binding: &Binding, names: &[String]) -> Result<Vec<u32>> {
    let mut fields = Vec::with_capacity(names.len());
    for name in names {
        let field = binding.fields.iter().position(|f| f.name == *name);
        let Some(field) = field.map(|field| field as u32) else {
            let text = "there is no column of this name: choose another one";
            return Err(Error::invalid(text).in_column(name));
        };
        if fields.contains(&field) {
            return Err(Error::invalid("the scan has the column twice").in_column(name));
        }
        fields.push(field);
    }
    Ok(fields)
}

/// Prints the table and the columns.
impl std::fmt::Debug for BatchReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BatchReader({:?}, {:?})", self.state, self.builder.columns)
    }
}
