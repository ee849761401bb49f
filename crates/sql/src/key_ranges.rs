//! [`AccessPath`]: the conditions of a statement as ranges of the primary key or of an index.

use crate::limits::KEY_RANGES_MAX;
use crate::values::value_of;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use perigee_tables::{KeyColumn, Order, Schema, Value};
use std::ops::{Bound, RangeBounds};

/// A range of values for the first columns of a key, in its order.
pub type ValueRange = (Bound<Vec<Value>>, Bound<Vec<Value>>);

/// What a filter demands of one column.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// One of these values; NULL means IS NULL.
    OneOf(Vec<Value>),
    /// A range of values, without NULL.
    Between(Bound<Value>, Bound<Value>),
}

/// A condition of a column, by its position in the schema.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnCondition {
    pub column: usize,
    pub condition: Condition,
}

/// Returns the literal that an expression is.
fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(scalar, _) => Some(scalar),
        _ => None,
    }
}

fn column(expr: &Expr, schema: &Schema) -> Option<usize> {
    match expr {
        Expr::Column(column) => schema.position(&column.name),
        _ => None,
    }
}

/// Converts a literal to the type of a column; `None` for NULL, which no comparison is true for.
fn operand(schema: &Schema, column: usize, expr: &Expr) -> Option<Value> {
    let value = value_of(literal(expr)?, schema.columns()[column].column_type)?;
    (!value.is_null()).then_some(value)
}

/// Returns the condition that a filter is exactly, if it concerns one column.
pub fn condition_of(filter: &Expr, schema: &Schema) -> Option<ColumnCondition> {
    match filter {
        Expr::Alias(alias) => condition_of(&alias.expr, schema),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let (left, right) = (condition_of(left, schema)?, condition_of(right, schema)?);
            match (left.condition, right.condition) {
                (Condition::OneOf(mut a), Condition::OneOf(b)) if left.column == right.column => {
                    a.extend(b);
                    Some(one_of(left.column, a))
                }
                _ => None,
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            if let Some(position) = column(left, schema) {
                return comparison(position, *op, operand(schema, position, right)?);
            }
            let position = column(right, schema)?;
            comparison(position, op.swap()?, operand(schema, position, left)?)
        }
        Expr::InList(InList { expr, list, negated: false }) => {
            let position = column(expr, schema)?;
            let values = list.iter().map(|item| operand(schema, position, item));
            Some(one_of(position, values.collect::<Option<Vec<_>>>()?))
        }
        Expr::Between(Between { expr, negated: false, low, high }) => {
            let position = column(expr, schema)?;
            let low = Bound::Included(operand(schema, position, low)?);
            let high = Bound::Included(operand(schema, position, high)?);
            Some(ColumnCondition { column: position, condition: Condition::Between(low, high) })
        }
        Expr::IsNull(expr) => Some(one_of(column(expr, schema)?, vec![Value::Null])),
        Expr::IsNotNull(expr) => {
            let condition = Condition::Between(Bound::Unbounded, Bound::Unbounded);
            Some(ColumnCondition { column: column(expr, schema)?, condition })
        }
        Expr::Column(_) => Some(one_of(column(filter, schema)?, vec![Value::Bool(true)])),
        Expr::Not(expr) => Some(one_of(column(expr, schema)?, vec![Value::Bool(false)])),
        _ => None,
    }
}

fn one_of(column: usize, mut values: Vec<Value>) -> ColumnCondition {
    values.sort();
    values.dedup();
    ColumnCondition { column, condition: Condition::OneOf(values) }
}

fn comparison(column: usize, op: Operator, value: Value) -> Option<ColumnCondition> {
    let (included, excluded) = (Bound::Included, Bound::Excluded);
    let condition = match op {
        Operator::Eq => return Some(one_of(column, vec![value])),
        Operator::Lt => Condition::Between(Bound::Unbounded, excluded(value)),
        Operator::LtEq => Condition::Between(Bound::Unbounded, included(value)),
        Operator::Gt => Condition::Between(excluded(value), Bound::Unbounded),
        Operator::GtEq => Condition::Between(included(value), Bound::Unbounded),
        _ => return None,
    };
    Some(ColumnCondition { column, condition })
}

/// How a statement reads a table: by its primary key or an index, and which ranges of it.
#[derive(Clone, Debug, Default)]
pub struct AccessPath {
    /// The index; `None`: the primary key.
    pub index: Option<String>,
    /// The ranges; none: all rows.
    pub ranges: Vec<ValueRange>,
    /// True for each filter that holds for exactly the rows of the ranges.
    pub answered: Vec<bool>,
    /// Number of the first columns that have a single value in all ranges.
    pub constants: usize,
    /// Number of the first columns that have a value, not NULL, in each range.
    pub values: usize,
    /// True if no row fulfills the conditions.
    pub empty: bool,
}

impl AccessPath {
    /// Returns the path through a key or index with these columns. `conditions` has an entry for
    /// each filter.
    pub fn new(
        index: Option<&str>,
        key: &[KeyColumn],
        schema: &Schema,
        conditions: &[Option<ColumnCondition>],
    ) -> AccessPath {
        let mut path = AccessPath {
            index: index.map(str::to_owned),
            answered: vec![false; conditions.len()],
            ..AccessPath::default()
        };
        // Values for the first columns, in all combinations.
        let mut prefixes: Vec<Vec<Value>> = vec![Vec::new()];
        for (depth, key_column) in key.iter().enumerate() {
            let Some(position) = schema.position(&key_column.column) else { break };
            let of_column =
                |i: &usize| conditions[*i].as_ref().is_some_and(|c| c.column == position);
            let filters: Vec<usize> = (0..conditions.len()).filter(of_column).collect();
            let Some(values) = shared_values(&filters, conditions) else {
                let nullable = schema.columns()[position].nullable;
                path.add_ranges(&prefixes, key_column, nullable, &filters, conditions);
                return path;
            };
            if values.len().saturating_mul(prefixes.len()) > KEY_RANGES_MAX {
                break;
            }
            for i in filters {
                path.answered[i] = true;
            }
            if values.len() == 1 && path.constants == depth {
                path.constants += 1;
            }
            path.empty |= values.is_empty();
            if path.values == depth && !values.iter().any(Value::is_null) {
                path.values += 1;
            }
            prefixes = prefixes
                .iter()
                .flat_map(|prefix| values.iter().map(move |value| extended(prefix, value)))
                .collect();
        }
        if prefixes.iter().any(|prefix| !prefix.is_empty()) {
            let point = |p: Vec<Value>| (Bound::Included(p.clone()), Bound::Included(p));
            path.ranges = prefixes.into_iter().map(point).collect();
        }
        path
    }
    /// Adds the range of the column after the prefixes.
    fn add_ranges(
        &mut self,
        prefixes: &[Vec<Value>],
        key_column: &KeyColumn,
        nullable: bool,
        filters: &[usize],
        conditions: &[Option<ColumnCondition>],
    ) {
        let mut low: Bound<Value> = Bound::Unbounded;
        let mut high: Bound<Value> = Bound::Unbounded;
        let mut limited = false;
        for &i in filters {
            let Some(ColumnCondition { condition: Condition::Between(from, to), .. }) =
                &conditions[i]
            else {
                continue;
            };
            limited = true;
            self.answered[i] = true;
            low = tighter(low, from.clone(), |new, old| new > old);
            high = tighter(high, to.clone(), |new, old| new < old);
        }
        if !limited && prefixes == [Vec::new()] {
            return;
        }
        if limited && nullable && low == Bound::Unbounded {
            // NULL is the smallest value.
            low = Bound::Excluded(Value::Null);
        }
        self.empty |= is_empty_range(&low, &high);
        if key_column.order == Order::Descending {
            std::mem::swap(&mut low, &mut high);
        }
        let bound = |prefix: &Vec<Value>, bound: &Bound<Value>| match bound.as_ref() {
            Bound::Unbounded if prefix.is_empty() => Bound::Unbounded,
            Bound::Unbounded => Bound::Included(prefix.clone()),
            limited => limited.map(|value| extended(prefix, value)),
        };
        let range = |prefix: &Vec<Value>| (bound(prefix, &low), bound(prefix, &high));
        self.ranges = prefixes.iter().map(range).collect();
    }
    /// Returns true if the path reads less than all rows.
    pub fn is_selective(&self) -> bool {
        self.empty || !self.ranges.is_empty()
    }
}

/// Returns the values that all of the filters allow; `None` if one of them is a range, or there is
/// no filter.
fn shared_values(filters: &[usize], conditions: &[Option<ColumnCondition>]) -> Option<Vec<Value>> {
    let mut shared: Option<Vec<Value>> = None;
    for &i in filters {
        if let Some(ColumnCondition { condition: Condition::OneOf(values), .. }) = &conditions[i] {
            shared = Some(match shared {
                None => values.clone(),
                Some(shared) => shared.into_iter().filter(|v| values.contains(v)).collect(),
            });
        }
    }
    let mut shared = shared?;
    for &i in filters {
        if let Some(ColumnCondition { condition: Condition::Between(low, high), .. }) =
            &conditions[i]
        {
            let range = (low.as_ref(), high.as_ref());
            shared.retain(|value| !value.is_null() && range.contains(value));
        }
    }
    Some(shared)
}

/// Returns the prefix with another value.
fn extended(prefix: &[Value], value: &Value) -> Vec<Value> {
    [prefix, std::slice::from_ref(value)].concat()
}

/// Returns the bound that excludes more: `beyond(new, old)` is true if `new` is.
fn tighter(
    old: Bound<Value>,
    new: Bound<Value>,
    beyond: impl Fn(&Value, &Value) -> bool,
) -> Bound<Value> {
    let value = |bound: &Bound<Value>| match bound {
        Bound::Included(value) | Bound::Excluded(value) => Some(value.clone()),
        Bound::Unbounded => None,
    };
    match (value(&old), value(&new)) {
        (None, _) => new,
        (_, None) => old,
        (Some(a), Some(b)) if beyond(&b, &a) => new,
        (Some(a), Some(b)) if a == b && matches!(new, Bound::Excluded(_)) => new,
        _ => old,
    }
}

fn is_empty_range(low: &Bound<Value>, high: &Bound<Value>) -> bool {
    match (low, high) {
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (
            Bound::Included(low) | Bound::Excluded(low),
            Bound::Included(high) | Bound::Excluded(high),
        ) => low >= high,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::{col, lit};
    use perigee_tables::{ColumnType, IndexDef};

    fn schema() -> Schema {
        Schema::new()
            .key("a", ColumnType::I32)
            .key_desc("b", ColumnType::I64)
            .nullable("c", ColumnType::Text)
    }

    fn path(filters: &[Expr]) -> AccessPath {
        let schema = schema();
        let conditions: Vec<_> = filters.iter().map(|f| condition_of(f, &schema)).collect();
        AccessPath::new(None, schema.key_columns(), &schema, &conditions)
    }

    #[test]
    fn equalities_and_a_range_become_one_range() {
        let path = path(&[col("a").eq(lit(7)), col("b").gt(lit(3i64)), col("c").eq(lit("x"))]);
        let seven = vec![Value::I32(7)];
        let three = vec![Value::I32(7), Value::I64(3)];
        // Descending: from the largest value down to those above 3.
        assert_eq!(path.ranges, [(Bound::Included(seven), Bound::Excluded(three))]);
        assert_eq!((path.answered.as_slice(), path.constants), (&[true, true, false][..], 1));
    }

    #[test]
    fn lists_become_points() {
        let path = path(&[
            col("a").in_list(vec![lit(1), lit(2), lit(2)], false),
            col("b").eq(lit(1i64)).or(col("b").eq(lit(9i64))),
        ]);
        assert_eq!((path.ranges.len(), path.constants), (4, 0));
        assert_eq!(path.answered, [true, true]);
    }

    #[test]
    fn contradictions_are_empty() {
        assert!(path(&[col("a").eq(lit(1)), col("a").eq(lit(2))]).empty);
        assert!(path(&[col("a").gt(lit(2)), col("a").lt(lit(2))]).empty);
        assert!(path(&[col("a").eq(lit(2)), col("a").lt(lit(2))]).empty);
        assert!(!path(&[col("a").gt_eq(lit(2)), col("a").lt_eq(lit(2))]).empty);
    }

    #[test]
    fn ranges_of_nullable_columns_exclude_null() {
        let schema = schema();
        let conditions = [condition_of(&col("c").lt(lit("m")), &schema)];
        for (def, low_first) in
            [(IndexDef::new("i").column("c"), true), (IndexDef::new("i").column_desc("c"), false)]
        {
            let path = AccessPath::new(Some("i"), def.columns(), &schema, &conditions);
            let null = Bound::Excluded(vec![Value::Null]);
            let m = Bound::Excluded(vec![Value::from("m")]);
            let expected = if low_first { (null, m) } else { (m, null) };
            assert_eq!(path.ranges, [expected]);
        }
        let conditions = [condition_of(&col("c").is_null(), &schema)];
        let def = IndexDef::new("i").column("c");
        let path = AccessPath::new(Some("i"), def.columns(), &schema, &conditions);
        let null = vec![Value::Null];
        assert_eq!(path.ranges, [(Bound::Included(null.clone()), Bound::Included(null))]);
    }

    #[test]
    fn other_filters_are_left_to_the_executor() {
        for filter in [
            col("a").not_eq(lit(1)),
            (col("a") + lit(1)).eq(lit(1)),
            col("a").eq(col("b")),
            col("a").in_list(vec![lit(1)], true),
            col("a").eq(lit(1)).or(col("b").eq(lit(1i64))),
        ] {
            let path = path(std::slice::from_ref(&filter));
            assert!(!path.is_selective() && !path.answered[0], "{filter}");
        }
        // Not the first column of the key.
        assert!(!path(&[col("b").eq(lit(1i64))]).is_selective());
    }
}
