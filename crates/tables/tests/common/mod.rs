//! Random numbers, and checks of a table against a model, for the integration tests.
#![allow(dead_code, clippy::unwrap_used)]

use perigee_tables::{DynTable, IndexDef, Order, Schema, Value};
use std::cmp::Ordering;

/// A generator whose state must not be 0.
pub struct Rng(pub u64);

impl Rng {
    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Returns the positions of columns, and their direction.
pub fn positions(schema: &Schema, columns: &[perigee_tables::KeyColumn]) -> Vec<(usize, Order)> {
    columns.iter().map(|c| (schema.position(&c.column).unwrap(), c.order)).collect()
}

/// Compares two rows by these columns.
pub fn compare(a: &[Value], b: &[Value], columns: &[(usize, Order)]) -> Ordering {
    let orders = columns.iter().map(|&(i, order)| match order {
        Order::Ascending => a[i].cmp(&b[i]),
        Order::Descending => b[i].cmp(&a[i]),
    });
    orders.fold(Ordering::Equal, Ordering::then)
}

/// Checks that a table has exactly these rows, and that every index returns exactly these rows in
/// its order, in both directions.
pub fn check_table(table: &DynTable, rows: &[Vec<Value>]) {
    let schema = table.schema();
    let key = positions(&schema, schema.key_columns());
    let mut expected = rows.to_vec();
    expected.sort_by(|a, b| compare(a, b, &key));
    let found: Vec<_> = table.scan().unwrap().map(Result::unwrap).collect();
    assert_eq!(found, expected, "rows");
    let mut found: Vec<_> = table.scan().unwrap().rev().map(Result::unwrap).collect();
    found.reverse();
    assert_eq!(found, expected, "rows in reverse");
    for index in table.indexes().unwrap() {
        check_index(table, &index, &expected, &key);
    }
}

fn check_index(table: &DynTable, def: &IndexDef, rows: &[Vec<Value>], key: &[(usize, Order)]) {
    let mut columns = positions(&table.schema(), def.columns());
    columns.extend(
        key.iter().filter(|k| !columns.iter().any(|c| c.0 == k.0)).copied().collect::<Vec<_>>(),
    );
    let mut expected = rows.to_vec();
    expected.sort_by(|a, b| compare(a, b, &columns));
    let index = table.index(def.name()).unwrap();
    let found: Vec<_> = index.scan().unwrap().map(Result::unwrap).collect();
    assert_eq!(found, expected, "index {}", def.name());
    let mut found: Vec<_> = index.scan().unwrap().rev().map(Result::unwrap).collect();
    found.reverse();
    assert_eq!(found, expected, "index {} in reverse", def.name());
}

/// Checks that every index returns exactly the rows of the table.
pub fn check_indexes(table: &DynTable) {
    let rows: Vec<_> = table.scan().unwrap().map(Result::unwrap).collect();
    check_table(table, &rows);
}
