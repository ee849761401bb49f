//! CREATE, ALTER and DROP of tables and indexes, and external tables, in a session.

use crate::error::{Result, SqlError, SqlState};
use crate::schema_statements::{
    ConstantEvaluator, declare_changes, declare_index, declare_table, object_name,
};
use crate::session::{Outcome, Session};
use crate::statement::Statement;
use crate::values::value_of;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::ExprSchemable;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{
    CreateIndex, CreateTable, Expr, ObjectName, ObjectType, Statement as Ast,
};
use futures::TryStreamExt;
use perigee_tables::{ColumnType, ErrorKind, TableDb, UuidFormat, Value};

impl ConstantEvaluator for Session {
    async fn evaluate(&self, expr: &Expr, column_type: ColumnType) -> Result<Value> {
        let refuse = |text: String| {
            Err(SqlError::new(SqlState::INVALID_VALUE, text)
                .with_hint("a default is a constant, such as 0, 'text' or NULL"))
        };
        let schema = DFSchema::empty();
        let logical = self.context.state().create_logical_expr(&expr.to_string(), &schema)?;
        if logical.is_volatile() || matches!(expr, Expr::Function(_)) {
            return refuse(format!("the default {expr} is no constant"));
        }
        let declared = perigee_tables::Schema::new().column("value", column_type);
        let arrow = declared.to_arrow(UuidFormat::Text);
        let logical = logical.cast_to(arrow.field(0).data_type(), &schema)?;
        let physical = self.context.create_physical_expr(logical, &schema)?;
        let empty = RecordBatch::try_new_with_options(
            std::sync::Arc::new(datafusion::arrow::datatypes::Schema::empty()),
            Vec::new(),
            &datafusion::arrow::array::RecordBatchOptions::new().with_row_count(Some(1)),
        );
        let empty = empty.map_err(|e| SqlError::new(SqlState::INTERNAL, e.to_string()))?;
        let array = physical.evaluate(&empty)?.into_array(1)?;
        let scalar = ScalarValue::try_from_array(&array, 0)?;
        match value_of(&scalar, column_type) {
            Some(value) => Ok(value),
            None => refuse(format!("the default {expr} does not fit its column")),
        }
    }
}

impl Session {
    /// Runs a change of the schema; returns the name of the command.
    pub(crate) async fn change_schema(&mut self, statement: &Statement) -> Result<&'static str> {
        match statement.ast() {
            Some(Ast::CreateTable(create)) => self.create_table(create).await,
            Some(Ast::CreateIndex(create)) => self.create_index(create),
            Some(Ast::AlterTable(alter)) => {
                let name = object_name(&alter.name)?;
                let Some(source) = self.catalog.find(&name)? else {
                    return match alter.if_exists {
                        true => Ok("ALTER TABLE"),
                        false => Err(missing_table(&name)),
                    };
                };
                let changes = declare_changes(alter, &source.schema, self).await?;
                self.db.alter_table(&name, &changes)?;
                Ok("ALTER TABLE")
            }
            Some(Ast::Drop { object_type, if_exists, names, .. }) => {
                for name in names {
                    match object_type {
                        ObjectType::Table => self.drop_table(name, *if_exists)?,
                        _ => self.drop_index(name, *if_exists)?,
                    }
                }
                Ok(if *object_type == ObjectType::Table { "DROP TABLE" } else { "DROP INDEX" })
            }
            _ => Err(statement.refusal()),
        }
    }
    async fn create_table(&self, create: &CreateTable) -> Result<&'static str> {
        let declared = declare_table(create, self).await?;
        let name = &declared.name;
        if self.catalog.is_file(name) {
            let text = format!("{name:?} is an external table of this session");
            return Err(SqlError::new(SqlState::DUPLICATE_TABLE, text)
                .with_hint("drop it first, or choose another name"));
        }
        let table = match self.db.create_dyn_table(name, declared.schema) {
            Ok(table) => table,
            Err(e) if e.kind() == ErrorKind::AlreadyExists && create.if_not_exists => {
                return Ok("CREATE TABLE");
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                let text = format!("table {name:?} exists");
                return Err(SqlError::new(SqlState::DUPLICATE_TABLE, text)
                    .with_hint("choose another name, or write CREATE TABLE IF NOT EXISTS"));
            }
            Err(e) => return Err(e.into()),
        };
        for index in declared.indexes {
            if let Err(e) = table.create_index(index) {
                // Without its constraints the table must not exist.
                self.db.drop_table(name)?;
                return Err(e.into());
            }
        }
        Ok("CREATE TABLE")
    }
    fn create_index(&self, create: &CreateIndex) -> Result<&'static str> {
        let (table, def) = declare_index(create)?;
        let Some(source) = self.catalog.find(&table)? else { return Err(missing_table(&table)) };
        let exists = source.indexes.iter().any(|index| index.name() == def.name());
        if exists && create.if_not_exists {
            return Ok("CREATE INDEX");
        }
        let ready = source.table.index(def.name()).is_ok();
        if exists && ready {
            let text = format!("index {:?} exists", def.name());
            return Err(SqlError::new(SqlState::DUPLICATE_TABLE, text)
                .with_hint("choose another name, or write CREATE INDEX IF NOT EXISTS"));
        }
        source.table.create_index(def)?;
        Ok("CREATE INDEX")
    }
    fn drop_table(&self, name: &ObjectName, if_exists: bool) -> Result<()> {
        let name = object_name(name)?;
        if self.catalog.remove_file(&name) {
            return Ok(());
        }
        match self.db.drop_table(&name) {
            Err(e) if e.kind() == ErrorKind::NotFound && if_exists => Ok(()),
            Err(e) if e.kind() == ErrorKind::NotFound => Err(missing_table(&name)),
            result => Ok(result?),
        }
    }
    /// Names of indexes are unique within a table only.
    fn drop_index(&self, name: &ObjectName, if_exists: bool) -> Result<()> {
        let name = object_name(name)?;
        let mut tables = self.db.tables()?;
        tables.retain(|table| table.indexes.iter().any(|index| index.name() == name));
        match tables.as_slice() {
            [] if if_exists => Ok(()),
            [] => {
                let text = format!("there is no index {name:?}");
                Err(SqlError::new(SqlState::UNDEFINED_TABLE, text)
                    .with_hint("names are in lower case unless they are quoted"))
            }
            [table] => Ok(self.db.dyn_table(&table.name)?.drop_index(&name)?),
            several => {
                let tables: Vec<&str> = several.iter().map(|t| t.name.as_str()).collect();
                let text = format!("several tables have an index {name:?}: {}", tables.join(", "));
                Err(SqlError::new(SqlState::INVALID_VALUE, text)
                    .with_hint("drop it by Table::drop_index"))
            }
        }
    }
    /// Runs CREATE EXTERNAL TABLE or COPY TO.
    pub(crate) async fn run_on_files(&mut self, statement: &Statement) -> Result<Outcome> {
        self.begin_read()?;
        let parsed = statement.parsed().clone();
        if let Parsed::CreateExternalTable(create) = &parsed {
            let name = object_name(&create.name)?;
            if self.catalog.find(&name)?.is_some() {
                let text = format!("table {name:?} exists");
                return Err(SqlError::new(SqlState::DUPLICATE_TABLE, text)
                    .with_hint("choose another name for the file"));
            }
        }
        let is_copy = matches!(parsed, Parsed::CopyTo(_));
        let plan = self.context.state().statement_to_plan(parsed).await?;
        let frame = self.context.execute_logical_plan(plan).await?;
        let batches: Vec<RecordBatch> = frame.execute_stream().await?.try_collect().await?;
        if !is_copy {
            return Ok(Outcome::Done { command: "CREATE EXTERNAL TABLE", rows: None });
        }
        let count = batches.first().map(|batch| ScalarValue::try_from_array(batch.column(0), 0));
        let rows = match count.transpose()? {
            Some(ScalarValue::UInt64(rows)) => rows,
            _ => None,
        };
        Ok(Outcome::Done { command: "COPY", rows })
    }
}

fn missing_table(name: &str) -> SqlError {
    let text = format!("there is no table {name:?}");
    SqlError::new(SqlState::UNDEFINED_TABLE, text)
        .with_hint("SHOW TABLES lists them; names are in lower case unless they are quoted")
}
