//! Random operations on a table with indexes, compared with a model: rows in a `BTreeMap`. With
//! reopens, schema changes, index builds, loads and, in a second test, crashes at any I/O: then the
//! table has the rows from before or after the operation that was running, and all indexes agree.
#![allow(clippy::unwrap_used)]

use crate::common::{Rng, check_indexes, check_table, positions};
use perigee::env::Env;
use perigee::env::fs::memory::{Crash, SimDisk};
use perigee::{Db, FamilyOptions, Options};
use perigee_tables::{
    Column, ColumnType, DynTable, Error, ErrorKind, IndexDef, Result, Schema, SchemaChange,
    TableDb, Value,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The rows by their key, and what the table should be.
#[derive(Clone)]
struct Model {
    schema: Schema,
    indexes: Vec<IndexDef>,
    rows: BTreeMap<Vec<Value>, Vec<Value>>,
    columns_added: u32,
}

/// One operation, with its arguments.
#[derive(Clone, Debug)]
enum Action {
    Insert(Vec<Value>),
    Put(Vec<Value>),
    Update(Vec<Value>, usize, Value),
    Delete(Vec<Value>),
    /// Several puts and deletes in one transaction; true: it fails at the end.
    Batch(Vec<(Vec<Value>, bool)>, bool),
    Load(Vec<Vec<Value>>),
    CreateIndex(IndexDef),
    DropIndex(String),
    AddColumn(Column),
    DropColumn(String),
}

fn open(disk: &Arc<SimDisk>) -> perigee::Result<Db> {
    let env = Env { fs: disk.clone(), ..Env::real() };
    let small = FamilyOptions::new().memtable_bytes(8 << 10).block_bytes(256);
    Db::open("/db", Options::in_env(env).family("@table/t", small))
}

impl Model {
    fn new() -> Model {
        let schema = Schema::new()
            .key("a", ColumnType::Text)
            .nullable("c", ColumnType::I16)
            .key_desc("b", ColumnType::I8)
            .column("d", ColumnType::Bytes);
        Model { schema, indexes: Vec::new(), rows: BTreeMap::new(), columns_added: 0 }
    }
    fn value(rng: &mut Rng, column: &Column) -> Value {
        if column.nullable && rng.below(4) == 0 {
            return Value::Null;
        }
        let n = rng.below(12);
        match column.column_type {
            ColumnType::Text => ["", "a", "a\0", "a\u{1}", "b"][n as usize % 5].into(),
            ColumnType::I8 => Value::I8(n as i8 - 6),
            ColumnType::I16 => Value::I16((n as i16 - 6) * 300),
            ColumnType::F64 => Value::F64(n as f64 - 6.0),
            _ => Value::Bytes(vec![n as u8 % 3; n as usize]),
        }
    }
    fn row(&self, rng: &mut Rng) -> Vec<Value> {
        self.schema.columns().iter().map(|c| Model::value(rng, c)).collect()
    }
    fn key(&self, row: &[Value]) -> Vec<Value> {
        let key = positions(&self.schema, self.schema.key_columns());
        key.iter().map(|(i, _)| row[*i].clone()).collect()
    }
    /// Returns true if two rows have the same values in a unique index.
    fn has_duplicates(&self, def: &IndexDef) -> bool {
        let columns = positions(&self.schema, def.columns());
        let mut values: Vec<Vec<&Value>> =
            self.rows.values().map(|row| columns.iter().map(|c| &row[c.0]).collect()).collect();
        values.retain(|v| !v.iter().any(|v| v.is_null()));
        values.sort();
        def.is_unique() && values.windows(2).any(|pair| pair[0] == pair[1])
    }
    fn violates(&self) -> bool {
        self.indexes.iter().any(|def| self.has_duplicates(def))
    }

    fn random_action(&self, rng: &mut Rng) -> Action {
        let existing = |rng: &mut Rng| {
            let n = rng.below(self.rows.len().max(1) as u64) as usize;
            self.rows.keys().nth(n).cloned()
        };
        let key = |rng: &mut Rng| match existing(rng) {
            Some(key) if rng.below(4) > 0 => key,
            _ => self.key(&self.row(rng)),
        };
        match rng.below(40) {
            0..=9 => Action::Insert(self.row(rng)),
            10..=17 => Action::Put(self.row(rng)),
            18..=23 => {
                let key = key(rng);
                let others = self.schema.columns().iter().enumerate();
                let others: Vec<_> = others.filter(|(_, c)| !self.is_key(&c.name)).collect();
                let (i, column) = others[rng.below(others.len() as u64) as usize];
                Action::Update(key, i, Model::value(rng, column))
            }
            24..=29 => Action::Delete(key(rng)),
            30 | 31 => {
                let n = rng.below(30);
                let writes = (0..n).map(|_| (self.row(rng), rng.below(4) == 0)).collect();
                Action::Batch(writes, rng.below(4) == 0)
            }
            32 | 33 => Action::Load((0..rng.below(4)).map(|_| self.row(rng)).collect()),
            34 | 35 => self.random_index(rng),
            36 if !self.indexes.is_empty() => {
                let n = rng.below(self.indexes.len() as u64) as usize;
                Action::DropIndex(self.indexes[n].name().to_owned())
            }
            37 => {
                let column_type = [ColumnType::F64, ColumnType::I16][rng.below(2) as usize];
                let column = Column::new(format!("n{}", self.columns_added), column_type);
                let default = Model::value(rng, &column);
                let nullable = rng.below(2) == 0;
                Action::AddColumn(if nullable {
                    column.nullable()
                } else {
                    column.default_value(default)
                })
            }
            38 if self.schema.columns().len() > 5 => {
                let n = rng.below(self.schema.columns().len() as u64) as usize;
                Action::DropColumn(self.schema.columns()[n].name.clone())
            }
            _ => Action::Put(self.row(rng)),
        }
    }
    fn is_key(&self, name: &str) -> bool {
        self.schema.key_columns().iter().any(|k| k.column == name)
    }
    fn random_index(&self, rng: &mut Rng) -> Action {
        let mut def = IndexDef::new(format!("i{}", rng.below(4)));
        for column in self.schema.columns() {
            match rng.below(6) {
                0 => def = def.column(&column.name),
                1 => def = def.column_desc(&column.name),
                _ => {}
            }
        }
        Action::CreateIndex(if rng.below(3) == 0 { def.unique() } else { def })
    }

    /// Applies an action. Returns the kind of error that the table has to return, without a change.
    fn apply(&mut self, action: &Action) -> Option<ErrorKind> {
        let mut after = self.clone();
        let refused = after.change(action);
        if refused.is_none() {
            *self = after;
        }
        refused
    }
    fn change(&mut self, action: &Action) -> Option<ErrorKind> {
        let unique = ErrorKind::UniqueViolation;
        match action {
            Action::Insert(row) => {
                if self.rows.insert(self.key(row), row.clone()).is_some() {
                    return Some(ErrorKind::KeyExists);
                }
            }
            Action::Put(row) => drop(self.rows.insert(self.key(row), row.clone())),
            Action::Update(key, i, value) => {
                if let Some(row) = self.rows.get_mut(key) {
                    row[*i] = value.clone();
                }
            }
            Action::Delete(key) => drop(self.rows.remove(key)),
            Action::Batch(writes, fails) => {
                for (row, delete) in writes {
                    if *delete {
                        self.rows.remove(&self.key(row));
                    } else {
                        self.rows.insert(self.key(row), row.clone());
                        // Checked at each write, not at the end.
                        if self.violates() {
                            return Some(unique);
                        }
                    }
                }
                return fails.then_some(ErrorKind::InvalidArgument);
            }
            Action::Load(rows) => {
                for row in rows {
                    if self.rows.insert(self.key(row), row.clone()).is_some() {
                        return Some(ErrorKind::KeyExists);
                    }
                }
            }
            Action::CreateIndex(def) => {
                if def.columns().is_empty() {
                    return Some(ErrorKind::InvalidArgument);
                }
                if let Some(existing) = self.indexes.iter().find(|i| i.name() == def.name()) {
                    return (existing != def).then_some(ErrorKind::AlreadyExists);
                }
                self.indexes.push(def.clone());
            }
            Action::DropIndex(name) => self.indexes.retain(|i| i.name() != name),
            Action::AddColumn(column) => {
                self.schema = self.schema.clone().add(column.clone());
                self.columns_added += 1;
                let value = column.default.clone().unwrap_or(Value::Null);
                self.rows.values_mut().for_each(|row| row.push(value.clone()));
            }
            Action::DropColumn(name) => {
                let used =
                    self.indexes.iter().any(|i| i.columns().iter().any(|c| c.column == *name));
                if self.is_key(name) || used {
                    return Some(ErrorKind::InvalidArgument);
                }
                let at = self.schema.position(name).unwrap();
                self.rows.values_mut().for_each(|row| drop(row.remove(at)));
                let mut schema = Schema::new();
                for column in self.schema.columns().iter().filter(|c| c.name != *name) {
                    schema =
                        match self.schema.key_columns().iter().find(|k| k.column == column.name) {
                            Some(k) if k.order == perigee_tables::Order::Descending => {
                                schema.key_desc(&column.name, column.column_type)
                            }
                            Some(_) => schema.key(&column.name, column.column_type),
                            None => schema.add(column.clone()),
                        };
                }
                self.schema = schema;
            }
        }
        self.violates().then_some(unique)
    }
}

/// Runs an action on the table.
fn run(
    db: &Db,
    table: &DynTable,
    action: &Action,
    key_of: impl Fn(&[Value]) -> Vec<Value>,
) -> Result<()> {
    match action {
        Action::Insert(row) => table.insert(row),
        Action::Put(row) => table.put(row),
        Action::Update(key, i, value) => table.update(key, |row| row[*i] = value.clone()).map(drop),
        Action::Delete(key) => table.delete(key).map(drop),
        Action::Batch(writes, fails) => db.write_tables(|tx| {
            for (row, delete) in writes {
                if *delete {
                    tx.on(table).delete(key_of(row))?;
                } else {
                    tx.on(table).put(row)?;
                }
            }
            if *fails { tx.on(table).put(&vec![]) } else { Ok(()) }
        }),
        Action::Load(rows) => table.load(rows.clone()).map(drop),
        Action::CreateIndex(def) => table.create_index_in_batches(def.clone(), 3),
        Action::DropIndex(name) => table.drop_index(name),
        Action::AddColumn(column) => {
            db.alter_table("t", &[SchemaChange::AddColumn(column.clone())])
        }
        Action::DropColumn(name) => {
            db.alter_table("t", &[SchemaChange::DropColumn { name: name.clone() }])
        }
    }
}

fn is_schema_change(action: &Action) -> bool {
    matches!(action, Action::AddColumn(_) | Action::DropColumn(_))
}

/// A load reports duplicates of either kind as `KeyExists`, or those of existing rows first.
fn same_kind(action: &Action, expected: ErrorKind, error: &Error) -> bool {
    let duplicate = [ErrorKind::KeyExists, ErrorKind::UniqueViolation];
    let is_load = matches!(action, Action::Load(_));
    error.kind() == expected
        || is_load && [expected, error.kind()].iter().all(|k| duplicate.contains(k))
}

/// Runs random actions; `after_each` is called now and then.
fn run_history(seed: u64, steps: usize) {
    let disk = SimDisk::new(seed);
    let mut db = open(&disk).unwrap();
    let (mut rng, mut model) = (Rng(seed + 1), Model::new());
    let mut table = db.create_dyn_table("t", model.schema.clone()).unwrap();
    for step in 0..steps {
        let action = model.random_action(&mut rng);
        let refused = model.apply(&action);
        let key_of = |row: &[Value]| model.key(row);
        match (run(&db, &table, &action, key_of), refused) {
            (Ok(()), None) => {}
            (Err(e), Some(kind)) if same_kind(&action, kind, &e) => {}
            (result, refused) => {
                panic!("seed {seed}, step {step}: {result:?}, expected {refused:?}: {action:?}")
            }
        }
        if is_schema_change(&action) {
            table = db.dyn_table("t").unwrap();
            assert_eq!(table.schema(), model.schema);
        }
        if rng.below(20) == 0 {
            let rows: Vec<_> = model.rows.values().cloned().collect();
            check_table(&table, &rows);
            for (key, row) in &model.rows {
                assert_eq!(table.get(key).unwrap().as_ref(), Some(row));
            }
            check_range(&table, &model, &mut rng);
        }
        match rng.below(60) {
            0 => {
                db.close().unwrap();
                db = open(&disk).unwrap();
                table = db.dyn_table("t").unwrap();
            }
            1 => db.family("@table/t").unwrap().flush().unwrap(),
            2 => db.family("@table/t").unwrap().compact().unwrap(),
            _ => {}
        }
    }
}

/// Compares a range of the first key column and a range of an index with the model.
fn check_range(table: &DynTable, model: &Model, rng: &mut Rng) {
    let [mut from, mut to] = [0, 1].map(|_| Model::value(rng, &model.schema.columns()[0]));
    if to < from {
        std::mem::swap(&mut from, &mut to);
    }
    let found = table.range([from.clone()]..=[to.clone()]).unwrap().count();
    let expected = model.rows.keys().filter(|key| (&from..=&to).contains(&&key[0])).count();
    assert_eq!(found, expected, "{from} to {to}");
    let found = table.range_rev([from.clone()]..[to.clone()]).unwrap().count();
    let expected = model.rows.keys().filter(|key| (&from..&to).contains(&&key[0])).count();
    assert_eq!(found, expected, "{from} to {to}");
    for def in &model.indexes {
        let column = model.schema.position(&def.columns()[0].column).unwrap();
        let value = Model::value(rng, &model.schema.columns()[column]);
        let index = table.index(def.name()).unwrap();
        let found = index.prefix(value.clone()).unwrap().count();
        let expected = model.rows.values().filter(|row| row[column] == value).count();
        assert_eq!(found, expected, "{def:?} {value}");
    }
}

#[test]
fn table_equals_model() {
    for seed in 1..13 {
        run_history(seed * 7919, 400);
    }
}

/// Runs random actions until a crash, and returns the states that are possible after it.
fn run_until_crash(disk: &Arc<SimDisk>, rng: &mut Rng, model: Model) -> Vec<Model> {
    let Ok(db) = open(disk) else { return vec![model] };
    let Ok(mut table) = db.dyn_table("t") else { return vec![model] };
    let mut model = model;
    loop {
        let before = model.clone();
        let action = model.random_action(rng);
        let refused = model.apply(&action);
        let key_of = |row: &[Value]| before.key(row);
        match run(&db, &table, &action, key_of) {
            Err(_) if disk.crashed() => return vec![before, model],
            Ok(()) => assert!(refused.is_none(), "{action:?}"),
            Err(e) => {
                let expected = refused.unwrap_or_else(|| panic!("{e}: {action:?}"));
                assert!(same_kind(&action, expected, &e), "{e}: {action:?}");
            }
        }
        if is_schema_change(&action) {
            match db.dyn_table("t") {
                Ok(changed) => table = changed,
                Err(_) => return vec![model],
            }
        }
        if rng.below(30) == 0 && db.family("@table/t").and_then(|f| f.flush()).is_err() {
            return vec![model];
        }
    }
}

/// Checks the state after a crash, and returns it.
fn check_after_crash(disk: &Arc<SimDisk>, possible: Vec<Model>, seed: u64) -> Model {
    let db = open(disk).unwrap();
    let table = db.dyn_table("t").unwrap();
    let found: BTreeMap<_, _> = {
        let rows = table.scan().unwrap().map(Result::unwrap);
        let model = possible.iter().find(|m| m.schema == table.schema());
        let model = model.unwrap_or_else(|| panic!("seed {seed}: unknown schema"));
        rows.map(|row| (model.key(&row), row)).collect()
    };
    let state = possible.into_iter().find(|m| m.schema == table.schema() && m.rows == found);
    let mut state = state.unwrap_or_else(|| panic!("seed {seed}: unknown state"));
    // A build that was interrupted is completed by the next call.
    for def in table.indexes().unwrap() {
        match table.create_index(def.clone()) {
            Err(e) if e.kind() == ErrorKind::UniqueViolation => {}
            other => other.unwrap(),
        }
    }
    check_indexes(&table);
    state.indexes = table.indexes().unwrap();
    db.close().unwrap();
    state
}

#[test]
fn table_survives_crashes() {
    let mut crashes = 0;
    for seed in 1..60u64 {
        let mut disk = SimDisk::new(seed);
        let mut rng = Rng(seed * 104_729);
        let mut model = Model::new();
        let db = open(&disk).unwrap();
        db.create_dyn_table("t", model.schema.clone()).unwrap();
        db.close().unwrap();
        drop(db);
        for _ in 0..3 {
            disk.crash_at(1 + rng.below(150));
            let possible = run_until_crash(&disk, &mut rng, model);
            crashes += u32::from(disk.crashed());
            let kind = [Crash::Power, Crash::Process][rng.below(2) as usize];
            disk = disk.crash_clone(rng.below(1000), kind);
            model = check_after_crash(&disk, possible, seed);
        }
    }
    assert!(crashes > 100, "{crashes}");
}
