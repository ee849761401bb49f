//! [`Binding`]: a stored schema resolved for a row type: which field is which column, how each
//! layout is encoded, and what the indexes contain. Computed once for each version of a schema, so
//! that reads and writes of rows look up nothing by name.

use crate::error::{Error, Malformed, Result};
use crate::ordered::{Component, KeyFormat, KeyReader};
use crate::row_format::{ColumnStep, LayoutPlan, read_header, split_columns};
use crate::schema::Schema;
use crate::schema::check::missing_columns;
use crate::schema::stored::{ColumnId, IndexStatus, StoredColumn, StoredIndex, StoredSchema};
use crate::value::ColumnType;
use std::collections::HashMap;
use std::sync::Arc;

/// A field of a row type, or a column of a dynamic row.
#[derive(Clone, Debug)]
pub struct BoundField {
    pub name: String,
    pub column: ColumnId,
    pub column_type: ColumnType,
    pub nullable: bool,
}

/// Where a column of the primary key is found in an index entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyColumnSource {
    /// It is column `position` of the index; its bits are inverted if the directions differ.
    IndexColumn { position: usize, inverted: bool },
    /// The entry contains it after the columns of the index.
    Appended,
}

/// How the entries of an index are encoded and decoded.
#[derive(Clone, Debug)]
pub struct IndexPlan {
    pub number: u8,
    pub name: String,
    pub unique: bool,
    pub ready: bool,
    pub columns: Vec<Component>,
    /// The fields of the columns; `None`: the row type does not have the column any more.
    pub fields: Vec<Option<u32>>,
    /// The permanent ids of the columns.
    pub column_ids: Vec<ColumnId>,
    /// For each column of the primary key, in order.
    pub key_sources: Vec<KeyColumnSource>,
}

/// See the module.
#[derive(Debug)]
pub struct Binding {
    /// Name of the table.
    pub table: Arc<str>,
    /// The stored schema.
    pub schema: Arc<StoredSchema>,
    /// The format of the primary key.
    pub key: Vec<Component>,
    /// The field of each column of the key.
    pub key_fields: Vec<u32>,
    /// The fields of the row type, in order.
    pub fields: Vec<BoundField>,
    /// The plan of each layout that rows can have.
    layouts: Vec<LayoutPlan>,
    /// The plans of the secondary indexes.
    pub indexes: Vec<IndexPlan>,
}

impl Binding {
    /// Binds a stored schema to a row type that declares `declared`, or to dynamic rows of all
    /// columns.
    ///
    /// # Errors
    /// `SchemaMismatch` if they do not fit.
    pub fn new(
        table: &Arc<str>,
        schema: Arc<StoredSchema>,
        declared: Option<&Schema>,
    ) -> Result<Binding> {
        if let Some(declared) = declared {
            let missing = missing_columns(&schema, declared)?;
            if let Some(column) = missing.first() {
                let text = "the stored table lacks this column: open the table again to add it";
                return Err(Error::mismatch(text).in_column(&column.name));
            }
        }
        let names: Vec<&str> = match declared {
            Some(declared) => declared.columns().iter().map(|c| c.name.as_str()).collect(),
            None => schema.visible_columns().map(|c| c.name.as_str()).collect(),
        };
        let column = |name: &&str| {
            let column = schema.column_named(name)?;
            Some(BoundField {
                name: column.name.clone(),
                column: column.id,
                column_type: column.column_type,
                nullable: column.nullable,
            })
        };
        let fields: Vec<BoundField> = names.iter().filter_map(column).collect();
        let unknown = || Error::corruption("the stored schema refers to an unknown column");
        let key = schema.components(&schema.key).ok_or_else(unknown)?;
        let key_fields: Option<Vec<u32>> =
            schema.key.iter().map(|k| field_of(&fields, k.column)).collect();
        let columns = plan_columns(&schema, &fields);
        let layouts = schema.layouts.iter().enumerate();
        let layouts = layouts.map(|(n, ids)| columns.plan_layout(n, ids).ok_or_else(unknown));
        let layouts = layouts.collect::<Result<Vec<LayoutPlan>>>()?;
        let indexes = schema.indexes.iter();
        let indexes = indexes.map(|i| plan_index(&schema, i, &fields).ok_or_else(unknown));
        Ok(Binding {
            table: Arc::clone(table),
            key,
            key_fields: key_fields.ok_or_else(unknown)?,
            layouts,
            indexes: indexes.collect::<Result<_>>()?,
            fields,
            schema,
        })
    }
    /// Returns the plan by which rows are written.
    #[inline]
    pub fn current_layout(&self) -> &LayoutPlan {
        self.layouts.last().expect("a schema has at least one layout")
    }
    /// Splits a stored row into its parts.
    #[inline]
    pub fn stored_row<'a>(
        &'a self,
        key: &'a [u8],
        row: &'a [u8],
    ) -> std::result::Result<StoredRow<'a>, Malformed> {
        let (layout, _, columns) = read_header(row)?;
        let plan = usize::try_from(layout).ok().and_then(|n| self.layouts.get(n));
        let plan = plan.ok_or(Malformed::UnknownLayout)?;
        Ok(StoredRow { key, columns, plan, binding: self })
    }
    /// Returns the plan of an index that another version of the schema defines, for reading.
    pub fn plan_index_of(schema: &StoredSchema, index: &StoredIndex) -> Result<IndexPlan> {
        let unknown = || Error::corruption("the stored schema refers to an unknown column");
        plan_index(schema, index, &[]).ok_or_else(unknown)
    }
}

/// A row as stored, with what is needed to decode it; passed to [`crate::Row::read`].
#[derive(Debug)]
pub struct StoredRow<'a> {
    key: &'a [u8],
    columns: &'a [u8],
    plan: &'a LayoutPlan,
    binding: &'a Binding,
}

impl<'a> StoredRow<'a> {
    /// Returns a reader of the primary key.
    #[inline]
    pub fn key(&self) -> KeyReader<'a> {
        KeyReader::new(self.key)
    }
    /// Returns the format of the primary key.
    pub fn key_format(&self) -> &'a KeyFormat {
        &self.binding.key
    }
    /// Splits the other columns into fields; `None` is NULL.
    #[inline]
    pub fn split(&self, fields: &mut [Option<&'a [u8]>]) -> std::result::Result<(), Malformed> {
        split_columns(self.plan, self.columns, fields)
    }
    /// Returns the binding.
    pub fn binding(&self) -> &'a Binding {
        self.binding
    }
}

fn field_of(fields: &[BoundField], column: ColumnId) -> Option<u32> {
    fields.iter().position(|f| f.column == column).and_then(|i| u32::try_from(i).ok())
}

/// What the plans of all layouts need to know of the columns: a schema can have thousands of
/// layouts of thousands of columns, so nothing is searched for each of them.
struct ColumnPlans {
    columns: HashMap<ColumnId, ColumnPlan>,
    /// For each field outside the primary key, its number and stored default value.
    fields: Vec<(u32, Option<Arc<[u8]>>)>,
    field_count: usize,
}

struct ColumnPlan {
    /// Size of a value in bytes; 0: variable.
    stored_bytes: usize,
    nullable: bool,
    field: Option<u32>,
}

fn plan_columns(schema: &StoredSchema, fields: &[BoundField]) -> ColumnPlans {
    let mut columns: HashMap<ColumnId, ColumnPlan> = (schema.columns.iter())
        .map(|column| {
            let StoredColumn { column_type, nullable, .. } = *column;
            let stored_bytes = column_type.stored_bytes();
            (column.id, ColumnPlan { stored_bytes, nullable, field: None })
        })
        .collect();
    let defaults: HashMap<ColumnId, &[u8]> =
        schema.columns.iter().filter_map(|c| Some((c.id, c.default.as_deref()?))).collect();
    let mut outside_key = Vec::new();
    for (field, bound) in (0..).zip(fields) {
        if let Some(column) = columns.get_mut(&bound.column) {
            column.field = Some(field);
        }
        if !schema.is_key_column(bound.column) {
            outside_key.push((field, defaults.get(&bound.column).map(|value| Arc::from(*value))));
        }
    }
    ColumnPlans { columns, fields: outside_key, field_count: fields.len() }
}

impl ColumnPlans {
    /// Returns the plan of layout `number`; `None` if it has an unknown column.
    fn plan_layout(&self, number: usize, ids: &[ColumnId]) -> Option<LayoutPlan> {
        let mut plan = LayoutPlan { header: (number as u64) << 2, ..LayoutPlan::default() };
        let mut nullable = 0;
        let mut is_present = vec![false; self.field_count];
        for (i, id) in ids.iter().enumerate() {
            let column = self.columns.get(id)?;
            let null_bit = column.nullable.then_some(nullable);
            nullable += u32::from(column.nullable);
            if let Some(field) = column.field {
                is_present[field as usize] = true;
            }
            plan.steps.push(ColumnStep {
                field: column.field,
                fixed_bytes: (column.stored_bytes > 0).then_some(column.stored_bytes as u32),
                null_bit,
                ends_row: column.stored_bytes == 0 && i + 1 == ids.len(),
            });
        }
        plan.null_bytes = nullable.div_ceil(8) as usize;
        let absent = self.fields.iter().filter(|(field, _)| !is_present[*field as usize]);
        plan.absent = absent.cloned().collect();
        Some(plan)
    }
}

fn plan_index(
    schema: &StoredSchema,
    index: &StoredIndex,
    fields: &[BoundField],
) -> Option<IndexPlan> {
    let columns = schema.components(&index.columns)?;
    let source = |key: &crate::schema::stored::OrderedColumn| {
        let position = index.columns.iter().position(|c| c.column == key.column);
        position.map_or(KeyColumnSource::Appended, |position| KeyColumnSource::IndexColumn {
            position,
            inverted: index.columns[position].order != key.order,
        })
    };
    Some(IndexPlan {
        number: index.number,
        name: index.name.clone(),
        unique: index.unique,
        ready: index.status == IndexStatus::Ready,
        columns,
        fields: index.columns.iter().map(|c| field_of(fields, c.column)).collect(),
        column_ids: index.columns.iter().map(|c| c.column).collect(),
        key_sources: schema.key.iter().map(source).collect(),
    })
}
