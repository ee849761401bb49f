//! [`RowQueries`]: the queries that an INSERT, UPDATE or DELETE consists of: the one that finds the
//! rows, and the one that RETURNING stands for.

use crate::error::{Result, SqlError, SqlState};
use crate::pg_catalog::rewrite::rewrite_query;
use crate::row_changes::conflict_clause;
use crate::schema_statements::identifier;
use crate::statement::Statement;
use datafusion::sql::parser::{DFParser, Statement as Parsed};
use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, Delete, Expr, FromTable, Ident, Insert, ObjectName, ObjectNamePart, Select,
    SelectItem, SetExpr, Statement as Ast, TableAlias, TableFactor, TableObject, TableWithJoins,
    Update, UpdateTableFromKind,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

/// See the module.
pub struct RowQueries {
    /// INSERT without the clauses that are not planned, or a SELECT from the table and the others
    /// of FROM or USING, with the condition: of the assigned values, or of a constant.
    pub rows: Parsed,
    /// Columns that the values of `rows` are assigned to.
    pub assigned: Vec<String>,
    /// A SELECT of the list of RETURNING, from the same tables.
    pub returning: Option<Parsed>,
}

impl RowQueries {
    /// Returns the queries of a statement that changes rows.
    pub fn new(statement: &Statement) -> Result<RowQueries> {
        match statement.ast() {
            Some(Ast::Insert(insert)) => insert_queries(insert),
            Some(Ast::Update(update)) => update_queries(update),
            Some(Ast::Delete(delete)) => delete_queries(delete),
            _ => Err(statement.refusal()),
        }
    }
}

/// Returns the error for a clause that PostgreSQL does not have.
fn refuse_clause(is_used: bool, clause: &str, hint: &str) -> Result<()> {
    if is_used { Err(SqlError::unsupported(clause, hint)) } else { Ok(()) }
}

fn insert_queries(insert: &Insert) -> Result<RowQueries> {
    conflict_clause(insert)?;
    let is_replace = insert.replace_into || insert.or.is_some() || insert.overwrite;
    let hint = "use INSERT ... ON CONFLICT (key) DO UPDATE SET ...";
    refuse_clause(is_replace, "INSERT OR REPLACE", hint)?;
    let returning = match (&insert.returning, &insert.table) {
        (None, _) => None,
        (Some(items), TableObject::TableName(name)) => {
            let alias = insert.table_alias.as_ref().map(|alias| alias.alias.clone());
            Some(select(items.clone(), vec![table_named(name, alias)?], None)?)
        }
        _ => return Err(SqlError::unsupported("INSERT into a function", "name a table")),
    };
    let mut rows = insert.clone();
    (rows.on, rows.returning, rows.table_alias) = (None, None, None);
    let rows = Parsed::Statement(Box::new(Ast::Insert(rows)));
    Ok(RowQueries { rows, assigned: Vec::new(), returning })
}

fn update_queries(update: &Update) -> Result<RowQueries> {
    let hint = "use WHERE key IN (SELECT key ... LIMIT n)";
    refuse_clause(update.limit.is_some() || !update.order_by.is_empty(), "UPDATE LIMIT", hint)?;
    refuse_clause(update.or.is_some(), "UPDATE OR", "leave it out")?;
    refuse_clause(!update.table.joins.is_empty(), "UPDATE of a join", "use UPDATE ... FROM")?;
    let mut from = vec![update.table.clone()];
    match &update.from {
        None => {}
        Some(UpdateTableFromKind::AfterSet(tables)) => from.extend(tables.iter().cloned()),
        Some(UpdateTableFromKind::BeforeSet(_)) => {
            return Err(SqlError::unsupported("FROM before SET", "write it after SET"));
        }
    }
    let mut assigned: Vec<String> = Vec::new();
    let mut items = Vec::new();
    for (column, value) in assignments(update)? {
        if assigned.contains(&column) {
            let text = format!("column {column:?} is assigned twice");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, text).with_hint("assign it once"));
        }
        let alias = Ident::with_quote('"', format!("@set/{}", assigned.len()));
        items.push(SelectItem::ExprWithAlias { expr: value, alias });
        assigned.push(column);
    }
    let returning = returning_query(update.returning.as_ref(), &from)?;
    Ok(RowQueries { rows: select(items, from, update.selection.clone())?, assigned, returning })
}

/// Returns the columns of SET and their values; `(a, b) = (1, 2)` as two of them.
fn assignments(update: &Update) -> Result<Vec<(String, Expr)>> {
    let column = |name: &ObjectName| {
        let ident = name.0.last().and_then(ObjectNamePart::as_ident);
        ident.map(identifier).unwrap_or_default()
    };
    let mut all = Vec::new();
    for assignment in &update.assignments {
        match (&assignment.target, &assignment.value) {
            (AssignmentTarget::ColumnName(name), value) => all.push((column(name), value.clone())),
            (AssignmentTarget::Tuple(names), Expr::Tuple(values))
                if names.len() == values.len() =>
            {
                all.extend(names.iter().map(column).zip(values.iter().cloned()));
            }
            _ => {
                let what = "SET of several columns to something else than as many values";
                return Err(SqlError::unsupported(what, "set them one by one"));
            }
        }
    }
    Ok(all)
}

fn delete_queries(delete: &Delete) -> Result<RowQueries> {
    let hint = "use WHERE key IN (SELECT key ... LIMIT n)";
    refuse_clause(delete.limit.is_some() || !delete.order_by.is_empty(), "DELETE LIMIT", hint)?;
    let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &delete.from;
    let is_single = delete.tables.is_empty() && tables.len() == 1 && tables[0].joins.is_empty();
    refuse_clause(!is_single, "DELETE of a join", "use DELETE FROM ... USING")?;
    let mut from = tables.clone();
    from.extend(delete.using.iter().flatten().cloned());
    let returning = returning_query(delete.returning.as_ref(), &from)?;
    let constant =
        SelectItem::UnnamedExpr(Expr::value(datafusion::sql::sqlparser::ast::Value::Null));
    let rows = select(vec![constant], from, delete.selection.clone())?;
    Ok(RowQueries { rows, assigned: Vec::new(), returning })
}

fn returning_query(
    items: Option<&Vec<SelectItem>>,
    from: &[TableWithJoins],
) -> Result<Option<Parsed>> {
    items.map(|items| select(items.clone(), from.to_vec(), None)).transpose()
}

/// Returns the select of a template, to be filled.
fn template() -> Result<(Box<Ast>, Select)> {
    let parsed = DFParser::parse_sql_with_dialect("SELECT 1 FROM t AS a", &PostgreSqlDialect {})?;
    if let Some(Parsed::Statement(ast)) = parsed.into_iter().next()
        && let Ast::Query(query) = &*ast
        && let SetExpr::Select(select) = &*query.body
    {
        let select = Select::clone(select);
        return Ok((ast, select));
    }
    Err(SqlError::new(SqlState::INTERNAL, "the template of a query does not parse"))
}

/// Returns `SELECT items FROM tables WHERE selection`, with the positions of the parts in the text.
fn select(
    items: Vec<SelectItem>,
    from: Vec<TableWithJoins>,
    selection: Option<Expr>,
) -> Result<Parsed> {
    let is_table = |table: &TableWithJoins| matches!(table.relation, TableFactor::Table { .. });
    if !from.first().is_some_and(is_table) {
        return Err(SqlError::unsupported("a change of something else than a table", "name one"));
    }
    let (mut ast, mut select) = template()?;
    (select.projection, select.from, select.selection) = (items, from, selection);
    if let Ast::Query(query) = &mut *ast {
        *query.body = SetExpr::Select(Box::new(select));
    }
    rewrite_query(&mut ast);
    Ok(Parsed::Statement(ast))
}

/// Returns a table of a FROM clause.
fn table_named(name: &ObjectName, alias: Option<Ident>) -> Result<TableWithJoins> {
    let (_, mut select) = template()?;
    let mut table = select.from.remove(0);
    if let TableFactor::Table { name: table_name, alias: table_alias, .. } = &mut table.relation {
        *table_name = name.clone();
        match alias {
            None => *table_alias = None,
            Some(ident) => {
                *table_alias = table_alias.take().map(|alias| TableAlias { name: ident, ..alias });
            }
        }
    }
    Ok(table)
}
