//! CREATE TABLE, CREATE INDEX, ALTER TABLE and DROP: from the parsed statements to schemas.

use crate::constants::SCHEMA;
use crate::error::{Result, SqlError, SqlState};
use crate::sql_types::column_type;
use datafusion::sql::sqlparser::ast::{
    AlterTable, AlterTableOperation, ColumnDef, ColumnOption, CreateIndex, CreateTable,
    CreateTableOptions, Expr, Ident, IndexColumn, ObjectName, TableConstraint,
};
use perigee_tables::{Column, ColumnType, IndexDef, Order, Schema, SchemaChange, Value};

/// Evaluates a constant expression as a value of a column type.
pub trait ConstantEvaluator {
    async fn evaluate(&self, expr: &Expr, column_type: ColumnType) -> Result<Value>;
}

/// Returns an identifier in the form in which it is stored: lower case unless it is quoted.
pub fn identifier(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// Returns the name of a table, index or column, which may be qualified by the schema.
pub fn object_name(name: &ObjectName) -> Result<String> {
    let parts: Vec<String> =
        name.0.iter().filter_map(|part| part.as_ident()).map(identifier).collect();
    match parts.as_slice() {
        [name] => Ok(name.clone()),
        [schema, name] if schema == SCHEMA => Ok(name.clone()),
        _ => {
            let text = format!("the name {name} has an unknown schema");
            let hint = "all tables are in the schema public";
            Err(SqlError::new(SqlState::UNDEFINED_OBJECT, text).with_hint(hint))
        }
    }
}

/// Returns column and direction of a column of a key or index.
fn index_column(column: &IndexColumn) -> Result<(String, Order)> {
    let Expr::Identifier(name) = &column.column.expr else {
        let hint = "store the value of the expression in a column";
        let what = format!("an index over the expression {}", column.column.expr);
        return Err(SqlError::unsupported(what, hint));
    };
    let descending = column.column.options.asc == Some(false);
    // NULL is the smallest value.
    if column.column.options.nulls_first.is_some_and(|first| first == descending) {
        let hint = "NULL comes first in ascending columns and last in descending ones";
        return Err(SqlError::unsupported("this position of NULL in an index", hint));
    }
    let order = if descending { Order::Descending } else { Order::Ascending };
    Ok((identifier(name), order))
}

fn index_def(name: String, columns: &[IndexColumn]) -> Result<IndexDef> {
    columns.iter().try_fold(IndexDef::new(name), |def, column| {
        let (name, order) = index_column(column)?;
        Ok(def.add(name, order))
    })
}

/// A table as CREATE TABLE declares it.
#[derive(Debug)]
pub struct TableDeclaration {
    pub name: String,
    pub schema: Schema,
    /// For UNIQUE constraints.
    pub indexes: Vec<IndexDef>,
}

/// Columns and constraints in the order of their declaration.
struct Declared {
    name: String,
    columns: Vec<Column>,
    key: Vec<(String, Order)>,
    indexes: Vec<IndexDef>,
}

impl Declared {
    fn set_key(&mut self, key: Vec<(String, Order)>) -> Result<()> {
        if !self.key.is_empty() {
            let text = "the table has two primary keys";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, text)
                .with_hint("declare one PRIMARY KEY (a, b) after the columns"));
        }
        self.key = key;
        Ok(())
    }
    /// Adds a unique index, named as PostgreSQL does.
    fn add_unique(&mut self, name: Option<&Ident>, columns: &[IndexColumn]) -> Result<()> {
        let def = index_def(String::new(), columns)?;
        let names: Vec<&str> = def.columns().iter().map(|c| c.column.as_str()).collect();
        let default = || format!("{}_{}_key", self.name, names.join("_"));
        let name = name.map_or_else(default, identifier);
        self.indexes.push(index_def(name, columns)?.unique());
        Ok(())
    }
}

/// Returns the table that a statement declares.
pub async fn declare_table(
    statement: &CreateTable,
    evaluator: &impl ConstantEvaluator,
) -> Result<TableDeclaration> {
    refuse_table_clauses(statement)?;
    let mut declared = Declared {
        name: object_name(&statement.name)?,
        columns: Vec::new(),
        key: Vec::new(),
        indexes: Vec::new(),
    };
    for column in &statement.columns {
        declare_column(column, &mut declared, evaluator).await?;
    }
    for constraint in &statement.constraints {
        match constraint {
            TableConstraint::PrimaryKey(key) => {
                let columns = key.columns.iter().map(index_column).collect::<Result<_>>()?;
                declared.set_key(columns)?;
            }
            TableConstraint::Unique(unique) => {
                declared.add_unique(unique.name.as_ref(), &unique.columns)?;
            }
            TableConstraint::ForeignKey(_) => return Err(unsupported_constraint("FOREIGN KEY")),
            TableConstraint::Check(_) => return Err(unsupported_constraint("CHECK")),
            other => {
                return Err(SqlError::unsupported(
                    format!("the constraint {other}"),
                    "constraints are PRIMARY KEY, UNIQUE and NOT NULL; for others: CREATE INDEX",
                ));
            }
        }
    }
    if declared.key.is_empty() {
        let text = format!("table {:?} has no primary key", declared.name);
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, text)
            .with_hint("declare one, for example: id BIGINT PRIMARY KEY"));
    }
    finish_declaration(declared)
}

/// Builds the schema: columns in the order of the statement, the key in its own order.
fn finish_declaration(declared: Declared) -> Result<TableDeclaration> {
    let Declared { name, columns, key, indexes } = declared;
    let mut schema = Schema::new();
    for mut column in columns {
        if key.iter().any(|(name, _)| *name == column.name) {
            column.nullable = false;
        }
        schema = schema.add(column);
    }
    for (column, order) in key {
        if schema.position(&column).is_none() {
            let text = format!("the primary key names a column {column:?} that is not declared");
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, text)
                .with_hint("declare it, or name another column"));
        }
        if schema.key_columns().iter().any(|key| key.column == column) {
            let text = format!("the primary key names the column {column:?} twice");
            return Err(
                SqlError::new(SqlState::DUPLICATE_COLUMN, text).with_hint("name each column once")
            );
        }
        schema = schema.key_column(column, order);
    }
    Ok(TableDeclaration { name, schema, indexes })
}

fn refuse_table_clauses(statement: &CreateTable) -> Result<()> {
    let refuse = |what: &str, hint: &str| Err(SqlError::unsupported(what, hint));
    if statement.temporary {
        return refuse("CREATE TEMPORARY TABLE", "create a table and drop it afterwards");
    }
    if statement.or_replace {
        return refuse("CREATE OR REPLACE TABLE", "use DROP TABLE first");
    }
    if statement.query.is_some() {
        let hint = "create the table with a primary key, then INSERT INTO ... SELECT";
        return refuse("CREATE TABLE AS SELECT", hint);
    }
    if statement.like.is_some() || statement.clone.is_some() {
        return refuse("CREATE TABLE LIKE", "repeat the columns");
    }
    if statement.inherits.is_some() || statement.partition_by.is_some() {
        return refuse("a partitioned or inherited table", "rows are ordered by the primary key");
    }
    if !matches!(statement.table_options, CreateTableOptions::None) {
        return refuse("WITH and other table options", "leave them out");
    }
    Ok(())
}

fn unsupported_constraint(name: &str) -> SqlError {
    SqlError::unsupported(
        format!("the constraint {name}"),
        "constraints are PRIMARY KEY, UNIQUE and NOT NULL: check others in the program",
    )
}

async fn declare_column(
    def: &ColumnDef,
    declared: &mut Declared,
    evaluator: &impl ConstantEvaluator,
) -> Result<()> {
    let (column, is_key, is_unique) = read_column(def, evaluator).await?;
    if is_key {
        declared.set_key(vec![(column.name.clone(), Order::Ascending)])?;
    }
    if is_unique {
        let name = format!("{}_{}_key", declared.name, column.name);
        declared.indexes.push(IndexDef::new(name).column(&column.name).unique());
    }
    declared.columns.push(column);
    Ok(())
}

/// Returns a column, and whether it is declared PRIMARY KEY and UNIQUE.
async fn read_column(
    def: &ColumnDef,
    evaluator: &impl ConstantEvaluator,
) -> Result<(Column, bool, bool)> {
    let name = identifier(&def.name);
    let column_type = column_type(&def.data_type).map_err(|e| e.in_column(&name))?;
    let mut column = Column::new(name, column_type);
    column.nullable = true;
    let (mut is_key, mut is_unique) = (false, false);
    for option in &def.options {
        match &option.option {
            ColumnOption::Null => {}
            ColumnOption::NotNull => column.nullable = false,
            ColumnOption::PrimaryKey(_) => is_key = true,
            ColumnOption::Unique(_) => is_unique = true,
            ColumnOption::Default(expr) => {
                column.default = Some(evaluator.evaluate(expr, column_type).await?);
            }
            ColumnOption::ForeignKey(_) => return Err(unsupported_constraint("REFERENCES")),
            ColumnOption::Check(_) => return Err(unsupported_constraint("CHECK")),
            ColumnOption::Generated { .. } | ColumnOption::Identity(_) => {
                let hint = "pass the values, or use UUID";
                return Err(SqlError::unsupported("a generated column", hint));
            }
            other => {
                let what = format!("the column option {other}");
                return Err(SqlError::unsupported(what, "leave it out"));
            }
        }
    }
    if is_key {
        column.nullable = false;
    }
    Ok((column, is_key, is_unique))
}

/// Returns the table and the index that CREATE INDEX declares.
pub fn declare_index(statement: &CreateIndex) -> Result<(String, IndexDef)> {
    let refuse = |what: &str, hint: &str| Err(SqlError::unsupported(what, hint));
    if statement.predicate.is_some() {
        return refuse("an index with WHERE", "leave it out: the index then has all rows");
    }
    if !statement.include.is_empty() {
        return refuse("INCLUDE", "add the columns to the end of the index");
    }
    if statement.nulls_distinct == Some(false) {
        return refuse("NULLS NOT DISTINCT", "declare the columns NOT NULL");
    }
    if statement
        .using
        .as_ref()
        .is_some_and(|using| !using.to_string().eq_ignore_ascii_case("btree"))
    {
        return refuse("USING with another method than btree", "leave it out");
    }
    let table = object_name(&statement.table_name)?;
    let name = match &statement.name {
        Some(name) => object_name(name)?,
        None => {
            let def = index_def(String::new(), &statement.columns)?;
            let names: Vec<&str> = def.columns().iter().map(|c| c.column.as_str()).collect();
            format!("{table}_{}_idx", names.join("_"))
        }
    };
    let def = index_def(name, &statement.columns)?;
    Ok((table, if statement.unique { def.unique() } else { def }))
}

/// Returns the changes of ALTER TABLE.
pub async fn declare_changes(
    statement: &AlterTable,
    schema: &Schema,
    evaluator: &impl ConstantEvaluator,
) -> Result<Vec<SchemaChange>> {
    let mut changes = Vec::new();
    for operation in &statement.operations {
        match operation {
            AlterTableOperation::AddColumn { if_not_exists, column_def, .. } => {
                let (column, is_key, is_unique) = read_column(column_def, evaluator).await?;
                if *if_not_exists && schema.position(&column.name).is_some() {
                    continue;
                }
                if is_key || is_unique {
                    let hint = "add the column, fill it, then CREATE UNIQUE INDEX";
                    return Err(SqlError::unsupported("ADD COLUMN with a key", hint));
                }
                changes.push(SchemaChange::AddColumn(column));
            }
            AlterTableOperation::DropColumn { column_names, if_exists, .. } => {
                for name in column_names.iter().map(identifier) {
                    if !(*if_exists && schema.position(&name).is_none()) {
                        changes.push(SchemaChange::DropColumn { name });
                    }
                }
            }
            AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                changes.push(SchemaChange::RenameColumn {
                    from: identifier(old_column_name),
                    to: identifier(new_column_name),
                });
            }
            AlterTableOperation::RenameTable { .. } => {
                let hint = "create a table of the new name, then INSERT INTO ... SELECT";
                return Err(SqlError::unsupported("ALTER TABLE RENAME TO", hint));
            }
            AlterTableOperation::AlterColumn { .. } => {
                let hint = "add a column with the new type, fill it by UPDATE, drop the old one";
                return Err(SqlError::unsupported("ALTER COLUMN", hint));
            }
            AlterTableOperation::AddConstraint { .. } => {
                let hint = "use CREATE UNIQUE INDEX for a unique constraint";
                return Err(SqlError::unsupported("ADD CONSTRAINT", hint));
            }
            other => {
                let hint = "ADD COLUMN, DROP COLUMN and RENAME COLUMN are";
                return Err(SqlError::unsupported(format!("ALTER TABLE {other}"), hint));
            }
        }
    }
    Ok(changes)
}
