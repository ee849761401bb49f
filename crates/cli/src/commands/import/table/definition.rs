//! Determines columns, key and indexes of a new table from the arguments and the rows.

use crate::failure::{Failure, Result};
use crate::table_formats::schema_json::TableDefinition;
use crate::table_formats::schema_text::parse_ordered_columns;
use perigee_tables::{Column, IndexDef, Order, Schema};

use super::infer::ColumnEvidence;
use super::row_source::{ColumnNames, RowSource};

/// Arguments that define a new table.
#[derive(Clone, Debug, Default)]
pub struct DefinitionArgs {
    /// Columns of the key, as written.
    pub key: Option<String>,
    /// Columns with a given type.
    pub columns: Vec<Column>,
    /// The secondary indexes.
    pub indexes: Vec<IndexDef>,
}

/// Returns the definition of a table for rows; reads them unless all columns are given.
pub fn define_table(args: &DefinitionArgs, rows: &RowSource) -> Result<TableDefinition> {
    let row_columns = if rows.is_stream() {
        if args.columns.is_empty() {
            return Err(Failure::usage(
                "the types cannot be inferred, because the input can be read only once",
            )
            .hint("give the columns with --columns 'id:i64,name:text?', or --schema FILE"));
        }
        Vec::new()
    } else {
        infer_columns(args, rows)?
    };
    let mut columns = Vec::new();
    for (name, evidence) in &row_columns {
        columns.push(match args.columns.iter().find(|c| c.name == *name) {
            Some(given) => given.clone(),
            None => inferred_column(name, evidence),
        });
    }
    complete_definition(args, columns, &row_columns, rows.is_json())
}

/// Adds the given columns that the rows lack, and key and indexes. `row_columns` is empty if the
/// types were not inferred.
pub fn complete_definition(
    args: &DefinitionArgs,
    mut columns: Vec<Column>,
    row_columns: &[(String, ColumnEvidence)],
    json: bool,
) -> Result<TableDefinition> {
    let is_new = |c: &&Column| !columns.iter().any(|known| known.name == c.name);
    let new: Vec<Column> = args.columns.iter().filter(is_new).cloned().collect();
    columns.extend(new);
    let key = key_columns(args.key.as_deref(), &columns, json)?;
    for (name, _) in &key {
        check_key_column(name, &columns, row_columns)?;
    }
    let schema = columns.into_iter().fold(Schema::new(), Schema::add);
    let schema =
        key.into_iter().fold(schema, |schema, (name, order)| schema.key_column(name, order));
    Ok(TableDefinition { schema, indexes: args.indexes.clone() })
}

fn inferred_column(name: &str, evidence: &ColumnEvidence) -> Column {
    let column = Column::new(name, evidence.column_type());
    if evidence.has_null() { column.nullable() } else { column }
}

/// Returns the names of the columns in the rows, and what their values have in common.
fn infer_columns(args: &DefinitionArgs, rows: &RowSource) -> Result<Vec<(String, ColumnEvidence)>> {
    let with_evidence = |columns: &ColumnNames, mut evidence: Vec<ColumnEvidence>| {
        evidence.resize_with(columns.names().len(), ColumnEvidence::default);
        columns.names().iter().cloned().zip(evidence).collect()
    };
    if let Some(headers) = rows.read_headers()? {
        let given = |name: &String| args.columns.iter().any(|c| c.name == *name);
        if headers.names().iter().all(given) {
            return Ok(with_evidence(&headers, Vec::new()));
        }
    }
    let mut columns = ColumnNames::default();
    let mut evidence: Vec<ColumnEvidence> = Vec::new();
    let mut first_row = None;
    rows.read_rows("inferring types", &mut columns, &mut |row| {
        evidence.resize_with(row.len(), || ColumnEvidence::missing_since(first_row.clone()));
        for (i, evidence) in evidence.iter_mut().enumerate() {
            let (kind, text) = row.cell(i);
            evidence.add(kind, text, &|| row.location());
        }
        first_row.get_or_insert_with(|| row.location());
        Ok(true)
    })?;
    Ok(with_evidence(&columns, evidence))
}

/// Returns the columns of the key: the given ones, otherwise the first column, in JSON lines the
/// field `id` or `key`.
pub fn key_columns(
    requested: Option<&str>,
    columns: &[Column],
    json: bool,
) -> Result<Vec<(String, Order)>> {
    if let Some(text) = requested {
        // A name may contain a comma or end with a direction.
        if columns.iter().any(|c| c.name == text) {
            return Ok(vec![(text.to_owned(), Order::Ascending)]);
        }
        return Ok(parse_ordered_columns(text));
    }
    let named = |name: &str| columns.iter().find(|c| c.name == name);
    let key = if json { named("id").or_else(|| named("key")) } else { columns.first() };
    match key {
        Some(column) => Ok(vec![(column.name.clone(), Order::Ascending)]),
        None => Err(Failure::usage("the rows have no field id or key to use as the primary key")
            .hint("name the columns of the key with --key COLUMN[,COLUMN desc]")),
    }
}

fn check_key_column(
    name: &str,
    columns: &[Column],
    row_columns: &[(String, ColumnEvidence)],
) -> Result<()> {
    let Some(column) = columns.iter().find(|c| c.name == name) else {
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        return Err(Failure::usage(format!(
            "there is no column {name:?} to use in the key; the columns are {}",
            names.join(", ")
        )));
    };
    if !column.nullable {
        return Ok(());
    }
    let evidence = row_columns.iter().find(|(column, _)| column == name);
    let message = match evidence.and_then(|(_, evidence)| evidence.first_null()) {
        Some(location) => format!("{location}: the key column {name:?} has no value"),
        None => format!("the key column {name:?} cannot be nullable"),
    };
    Err(Failure::usage(message).hint("use other columns as the key: --key COLUMN[,COLUMN desc]"))
}
