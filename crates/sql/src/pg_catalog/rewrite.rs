//! Rewrites queries of `pg_catalog`, as psql and drivers send them, so that DataFusion can plan
//! them.
//!
//! - Names: `pg_class` becomes `pg_catalog.pg_class`, and `pg_catalog.format_type` `format_type`,
//!   because functions have no schema.
//! - Operators and casts: `OPERATOR(pg_catalog.~)`, `COLLATE`, `::regclass` and the like.
//! - A SELECT that joins a table of the catalog that is always empty, such as `pg_policy`, becomes
//!   one without rows, whatever else it contains.
//! - Scalar subqueries become aggregates, because others cannot be correlated; their conditions on
//!   the outer query are moved there. EXISTS in a select list becomes a count.
//! - `_pg_expandarray(i.indkey)`, which returns a row for each column of an index, becomes a join.

use crate::pg_catalog::tables::{is_always_empty, is_catalog_table};
use crate::pg_catalog::{INDEX_COLUMNS, PG_CATALOG};
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, DataType, Expr, Function, FunctionArguments, GroupByExpr, Ident,
    JoinOperator, ObjectName, ObjectNamePart, Query, Select, SelectItem, SetExpr, Statement,
    Subscript, TableFactor, TableWithJoins, Value, VisitMut, VisitorMut, visit_expressions,
    visit_expressions_mut, visit_relations,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use std::ops::ControlFlow;

/// Rewrites a query in place.
pub fn rewrite_query(statement: &mut Statement) {
    let reads_catalog = visit_relations(statement, |name| match catalog_table(name) {
        Some(_) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    });
    let reads_catalog = reads_catalog.is_break();
    let _ = VisitMut::visit(statement, &mut Rewriter { reads_catalog });
}

/// Returns the name of a table of the catalog; PostgreSQL looks there first.
fn catalog_table(name: &ObjectName) -> Option<String> {
    let parts: Vec<&Ident> = name.0.iter().filter_map(ObjectNamePart::as_ident).collect();
    match parts.as_slice() {
        [table] if is_catalog_table(&table.value.to_lowercase()) => {
            Some(table.value.to_lowercase())
        }
        [schema, table] if schema.value.eq_ignore_ascii_case(PG_CATALOG) => {
            Some(table.value.to_lowercase())
        }
        _ => None,
    }
}

struct Rewriter {
    /// True if the statement reads a table of the catalog.
    reads_catalog: bool,
}

impl VisitorMut for Rewriter {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<()> {
        if relation.0.len() == 1
            && let Some(table) = catalog_table(relation)
        {
            *relation = ObjectName::from(vec![Ident::new(PG_CATALOG), Ident::new(table)]);
        }
        ControlFlow::Continue(())
    }
    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        // The order may name columns that the emptied SELECT does not have.
        if self.reads_catalog && empty_selects(&mut query.body) {
            query.order_by = None;
        }
        ControlFlow::Continue(())
    }
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if self.reads_catalog {
            join_index_columns(select);
            count_existing(select);
        }
        ControlFlow::Continue(())
    }
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(rewritten) = self.rewrite_expr(expr) {
            *expr = rewritten;
        }
        ControlFlow::Continue(())
    }
}

impl Rewriter {
    /// Returns the expression to use instead.
    fn rewrite_expr(&self, expr: &mut Expr) -> Option<Expr> {
        match expr {
            Expr::Function(function) => {
                strip_schema(&mut function.name);
                if let FunctionArguments::Subquery(query) = &function.args
                    && is_empty(&query.body)
                {
                    return parse_expr("'{}'");
                }
                None
            }
            Expr::BinaryOp { op, .. } => {
                if let BinaryOperator::PGCustomBinaryOperator(parts) = op
                    && let Some(plain) = parts.last().and_then(|name| plain_operator(name))
                {
                    *op = plain;
                }
                None
            }
            // For others the collation matters: they fail.
            Expr::Collate { expr, .. } if self.reads_catalog => Some((**expr).clone()),
            Expr::Cast { expr: operand, data_type, .. } => rewrite_cast(operand, data_type),
            Expr::CompoundFieldAccess { root, access_chain } if self.reads_catalog => {
                rewrite_access(root, access_chain)
            }
            Expr::Subquery(query) if self.reads_catalog => {
                if is_empty(&query.body) {
                    return parse_expr("NULL");
                }
                if !aggregate_scalar(query) {
                    return None;
                }
                let condition = take_outer_condition(query)?;
                parse_expr(&format!("CASE WHEN {condition} THEN ({query}) END"))
            }
            Expr::Exists { subquery, negated } if is_empty(&subquery.body) => {
                parse_expr(if *negated { "true" } else { "false" })
            }
            Expr::InSubquery { subquery, negated, .. } if is_empty(&subquery.body) => {
                parse_expr(if *negated { "true" } else { "false" })
            }
            _ => None,
        }
    }
}

fn parse_expr(sql: &str) -> Option<Expr> {
    Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).ok()?.parse_expr().ok()
}

/// Removes the schema from the name of a function of PostgreSQL.
fn strip_schema(name: &mut ObjectName) {
    if let [ObjectNamePart::Identifier(schema), function] = name.0.as_slice()
        && matches!(schema.value.as_str(), PG_CATALOG | "information_schema")
    {
        *name = ObjectName(vec![function.clone()]);
    }
}

fn plain_operator(name: &str) -> Option<BinaryOperator> {
    Some(match name {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" => BinaryOperator::NotEq,
        _ => return None,
    })
}

/// Replaces types that only PostgreSQL has. Casts to types of object identifiers become function
/// calls.
fn rewrite_cast(operand: &Expr, data_type: &mut DataType) -> Option<Expr> {
    let name = match data_type {
        DataType::Custom(name, _) => name.0.last()?.as_ident()?.value.to_lowercase(),
        DataType::Regclass => "regclass".to_owned(),
        _ => return None,
    };
    let is_literal =
        matches!(operand, Expr::Value(v) if matches!(v.value, Value::SingleQuotedString(_)));
    let plain = match name.as_str() {
        "regclass" if is_literal => return parse_expr(&format!("pg_class_oid({operand})")),
        "regclass" => return parse_expr(&format!("pg_class_name({operand})")),
        "regtype" if is_literal => return parse_expr(&format!("pg_type_oid({operand})")),
        "regtype" => return parse_expr(&format!("format_type({operand}, NULL)")),
        "regnamespace" => return parse_expr(&format!("pg_namespace_name({operand})")),
        "text" | "name" | "char" | "varchar" | "regproc" => DataType::Text,
        "oid" | "int4" => DataType::Integer(None),
        "int2" => DataType::SmallInt(None),
        "int8" => DataType::BigInt(None),
        "bool" => DataType::Boolean,
        _ => return None,
    };
    *data_type = plain;
    None
}

/// Replaces elements of arrays, which are text here, by function calls, and fields of the rows of
/// `_pg_expandarray` by columns.
fn rewrite_access(root: &Expr, chain: &[AccessExpr]) -> Option<Expr> {
    match chain {
        [names @ .., AccessExpr::Subscript(Subscript::Index { index })] => {
            let is_array = matches!(root, Expr::Nested(inner) if is_call(inner, "current_schemas"));
            let function = if is_array { "pg_array_element" } else { "pg_vector_element" };
            // The column is the root, or the name of its table is.
            let names: String = names.iter().map(AccessExpr::to_string).collect();
            parse_expr(&format!("{function}({root}{names}, {index})"))
        }
        [AccessExpr::Dot(Expr::Identifier(field))] if field.value.eq_ignore_ascii_case("x") => {
            Some(root.clone())
        }
        _ => None,
    }
}

fn is_call(expr: &Expr, function: &str) -> bool {
    matches!(expr, Expr::Function(Function { name, .. })
        if name.0.last().and_then(|part| part.as_ident()).is_some_and(|i| i.value == function))
}

/// Replaces `_pg_expandarray(i.indkey)` in the select list: joins the table with a row for each
/// column of each index.
fn join_index_columns(select: &mut Select) {
    let mut index = None;
    for item in &mut select.projection {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
            continue;
        };
        let (call, column) = match &*expr {
            Expr::CompoundFieldAccess { root, access_chain } => match access_chain.as_slice() {
                [AccessExpr::Dot(Expr::Identifier(field))] => (&**root, field.value.to_lowercase()),
                _ => continue,
            },
            other => (other, "x".to_owned()),
        };
        let call = if let Expr::Nested(inner) = call { &**inner } else { call };
        if !is_call(call, "_pg_expandarray") {
            continue;
        }
        // The argument is the column of a table whose name or alias is the first part.
        let Expr::Function(function) = call else { continue };
        let text = function.args.to_string();
        let argument = text.trim_matches(['(', ')']);
        let Some((table, "indkey")) = argument.split_once('.') else { continue };
        index = Some(table.to_owned());
        if let Some(replacement) = parse_expr(&format!("{INDEX_COLUMNS}.{column}")) {
            *expr = replacement;
        }
    }
    let Some(index) = index else { return };
    let condition = parse_expr(&format!("{INDEX_COLUMNS}.indexrelid = {index}.indexrelid"));
    if let (Some(condition), Some(table)) = (condition, parse_table(INDEX_COLUMNS)) {
        select.from.push(table);
        select.selection = Some(match select.selection.take() {
            None => condition,
            Some(selection) => and(Expr::Nested(Box::new(selection)), condition),
        });
    }
}

fn parse_table(name: &str) -> Option<TableWithJoins> {
    let sql = format!("{PG_CATALOG}.{name}");
    Parser::new(&PostgreSqlDialect {}).try_with_sql(&sql).ok()?.parse_table_and_joins().ok()
}

/// Makes a scalar subquery an aggregate, which returns the same for at most one row; returns false
/// if it has another form.
fn aggregate_scalar(query: &mut Query) -> bool {
    let SetExpr::Select(select) = &mut *query.body else { return false };
    if query.limit_clause.is_some() || has_aggregate(select) {
        return false;
    }
    if let [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] =
        select.projection.as_mut_slice()
        && let Some(aggregate) = parse_expr(&format!("max({expr})"))
    {
        *expr = aggregate;
        query.order_by = None;
        return true;
    }
    false
}

/// Removes the conditions of an aggregated subquery that concern the outer query only, and returns
/// them: they cannot be correlated.
fn take_outer_condition(query: &mut Query) -> Option<Expr> {
    let SetExpr::Select(select) = &mut *query.body else { return None };
    let tables = select.from.iter().flat_map(|item| {
        std::iter::once(&item.relation).chain(item.joins.iter().map(|join| &join.relation))
    });
    let name = |factor: &TableFactor| match factor {
        TableFactor::Table { alias: Some(alias), .. } => Some(alias.name.value.to_lowercase()),
        TableFactor::Table { name, .. } => Some(name.0.last()?.as_ident()?.value.to_lowercase()),
        _ => None,
    };
    let inner: Vec<String> = tables.map(name).collect::<Option<_>>()?;
    let is_outer = |condition: &Expr| {
        let mut qualified = false;
        let visited = visit_expressions(condition, |part| match part {
            Expr::Identifier(_) => ControlFlow::Break(()),
            Expr::CompoundIdentifier(parts) => {
                qualified = true;
                match parts.first() {
                    Some(table) if !inner.contains(&table.value.to_lowercase()) => {
                        ControlFlow::Continue(())
                    }
                    _ => ControlFlow::Break(()),
                }
            }
            _ => ControlFlow::Continue(()),
        });
        qualified && visited.is_continue()
    };
    let mut conditions = Vec::new();
    split_conjunction(select.selection.take()?, &mut conditions);
    let (outer, inner) = conditions.into_iter().partition::<Vec<Expr>, _>(is_outer);
    select.selection = inner.into_iter().reduce(and);
    outer.into_iter().reduce(and)
}

fn split_conjunction(condition: Expr, parts: &mut Vec<Expr>) {
    match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            split_conjunction(*left, parts);
            split_conjunction(*right, parts);
        }
        other => parts.push(other),
    }
}

fn and(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::And, right: Box::new(right) }
}

/// Replaces EXISTS in the select list, which DataFusion supports in conditions only.
fn count_existing(select: &mut Select) {
    for item in &mut select.projection {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
            continue;
        };
        let _ = visit_expressions_mut(expr, |part| {
            if let Expr::Exists { subquery, negated } = part
                && let SetExpr::Select(select) = &mut *subquery.body
                && !has_aggregate(select)
                && let Some(count) = parse_expr("count(*)")
            {
                select.projection = vec![SelectItem::UnnamedExpr(count)];
                let op = if *negated { "=" } else { ">" };
                if let Some(counted) = parse_expr(&format!("({subquery}) {op} 0")) {
                    *part = counted;
                }
            }
            ControlFlow::<()>::Continue(())
        });
    }
}

/// Returns true if the SELECT may return a row although there is none to read.
fn has_aggregate(select: &Select) -> bool {
    const AGGREGATES: [&str; 8] =
        ["count", "sum", "min", "max", "avg", "string_agg", "array_agg", "bool_or"];
    let is_grouped =
        !matches!(&select.group_by, GroupByExpr::Expressions(columns, _) if columns.is_empty());
    is_grouped
        || select.projection.iter().any(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                AGGREGATES.iter().any(|name| is_call(expr, name))
            }
            _ => false,
        })
}

/// Empties each SELECT that joins a table without rows; returns true if all of them are empty.
fn empty_selects(body: &mut SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => {
            let joins_empty =
                select.from.iter().any(reads_empty_table) || demands_foreign_key(select);
            if joins_empty && !has_aggregate(select) {
                empty_select(select);
            }
        }
        SetExpr::SetOperation { left, right, .. } => {
            empty_selects(left);
            empty_selects(right);
        }
        // Visited as a query of its own.
        _ => {}
    }
    is_empty(body)
}

fn is_empty(body: &SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => {
            let is_false =
                |e: &Expr| matches!(e, Expr::Value(v) if v.value == Value::Boolean(false));
            select.from.is_empty() && select.selection.as_ref().is_some_and(is_false)
        }
        SetExpr::SetOperation { left, right, .. } => is_empty(left) && is_empty(right),
        SetExpr::Query(query) => is_empty(&query.body),
        _ => false,
    }
}

/// Returns true if the condition demands constraints that are foreign keys: there are none.
fn demands_foreign_key(select: &Select) -> bool {
    fn demands(condition: &Expr) -> bool {
        match condition {
            Expr::Nested(inner) => demands(inner),
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                demands(left) || demands(right)
            }
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                let column = match &**left {
                    Expr::CompoundIdentifier(parts) => parts.last(),
                    Expr::Identifier(name) => Some(name),
                    _ => None,
                };
                let is_type = column.is_some_and(|name| name.value == "contype");
                let is_foreign =
                    |value: &Value| matches!(value, Value::SingleQuotedString(t) if t == "f");
                is_type && matches!(&**right, Expr::Value(v) if is_foreign(&v.value))
            }
            _ => false,
        }
    }
    let reads_constraints = |table: &TableWithJoins| {
        let factors =
            std::iter::once(&table.relation).chain(table.joins.iter().map(|j| &j.relation));
        factors.into_iter().any(|factor| match factor {
            TableFactor::Table { name, .. } => {
                catalog_table(name).is_some_and(|table| table == "pg_constraint")
            }
            _ => false,
        })
    };
    select.from.iter().any(reads_constraints) && select.selection.as_ref().is_some_and(demands)
}

/// Returns true if the item of FROM has no rows, because it is or inner-joins an empty table.
fn reads_empty_table(item: &TableWithJoins) -> bool {
    let is_empty_table = |factor: &TableFactor| match factor {
        // Columns of the catalog that are arrays of options or rights are NULL.
        TableFactor::Table { name, .. } => {
            catalog_table(name).is_some_and(|table| table == "unnest" || is_always_empty(&table))
        }
        _ => false,
    };
    let mut empty = is_empty_table(&item.relation);
    for join in &item.joins {
        empty = match &join.join_operator {
            JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_) => {
                empty || is_empty_table(&join.relation)
            }
            JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => empty,
            // Not an error: the table is read.
            _ => false,
        };
    }
    empty
}

/// Replaces all expressions by NULL, under the same names.
fn empty_select(select: &mut Select) {
    let mut names: Vec<String> = Vec::new();
    for item in &mut select.projection {
        let name = match item {
            SelectItem::ExprWithAlias { alias, .. } => alias.value.clone(),
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => name.value.clone(),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                parts.last().map(|part| part.value.clone()).unwrap_or_default()
            }
            SelectItem::UnnamedExpr(_) => "?column?".to_owned(),
            // The columns of the table are needed.
            _ => return,
        };
        names.push(name);
    }
    for (i, name) in names.iter().enumerate() {
        let is_repeated = names[..i].contains(name);
        let name = if is_repeated { format!("{name}/{i}") } else { name.clone() };
        let Some(expr) = parse_expr("NULL") else { return };
        let alias = Ident::with_quote('"', name);
        select.projection[i] = SelectItem::ExprWithAlias { expr, alias };
    }
    select.from.clear();
    select.distinct = None;
    select.selection = parse_expr("false");
}
