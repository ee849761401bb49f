//! Tables of structs: keys of every form, ranges, order, and what the derive macro accepts.
#![allow(clippy::unwrap_used)]

use perigee_tables::{ErrorKind, Row, TableDb, Timestamp, Uuid, Value};

fn at(second: i64) -> Timestamp {
    Timestamp::from_secs(second)
}

#[derive(Row, Clone, Debug, PartialEq)]
struct Reading {
    #[key]
    sensor: u32,
    #[key]
    at: Timestamp,
    value: f64,
    note: Option<String>,
}

fn reading(sensor: u32, second: i64) -> Reading {
    Reading { sensor, at: at(second), value: second as f64, note: None }
}

#[derive(Row, Clone, Debug, PartialEq)]
struct Everything {
    #[key]
    id: Uuid,
    #[key(desc)]
    name: String,
    a: bool,
    b: i8,
    c: i16,
    d: i32,
    e: i64,
    f: i128,
    g: u8,
    h: u16,
    i: u32,
    j: u64,
    k: u128,
    l: f32,
    m: f64,
    n: Timestamp,
    o: Option<Uuid>,
    p: String,
    q: Vec<u8>,
    r: Option<String>,
    s: Option<bool>,
    #[row(rename = "type")]
    kind: Option<Vec<u8>>,
}

fn everything() -> Everything {
    Everything {
        id: Uuid([7; 16]),
        name: "a\0b".into(),
        a: true,
        b: -1,
        c: -2,
        d: -3,
        e: -4,
        f: -5,
        g: 6,
        h: 7,
        i: 8,
        j: 9,
        k: 10,
        l: 0.5,
        m: -0.0,
        n: at(-1),
        o: Some(Uuid([1; 16])),
        p: "text".into(),
        q: vec![0, 1, 2],
        r: Some(String::new()),
        s: None,
        kind: Some(vec![]),
    }
}

#[test]
fn every_column_type_is_stored() {
    let db = perigee::example_db().unwrap();
    let table = db.table::<Everything>("everything").unwrap();
    let row = everything();
    table.insert(&row).unwrap();
    assert_eq!(table.get((Uuid([7; 16]), "a\0b")).unwrap(), Some(row.clone()));
    let mut other = row.clone();
    other.name = "z".into();
    table.put(&other).unwrap();
    let all: Vec<Everything> = table.scan().unwrap().map(Result::unwrap).collect();
    assert_eq!(all, [other, row]); // the second column of the key is descending
    let dynamic = db.dyn_table("everything").unwrap();
    assert_eq!(dynamic.schema().columns().last().unwrap().name, "type");
    assert_eq!(dynamic.scan().unwrap().count(), 2);
}

/// Rows read one after the other into the same row are those of the iterator, whatever the row
/// held before, in both directions.
#[test]
fn rows_are_read_into_an_existing_row() {
    let db = perigee::example_db().unwrap();
    let table = db.table::<Everything>("everything").unwrap();
    let mut row = everything();
    for n in 0..50 {
        row.name = "n".repeat(n * 7 % 20);
        row.d = n as i32;
        row.p = "p".repeat(n * 13 % 30);
        row.q = vec![n as u8; n * 11 % 40];
        row.r = (n % 3 > 0).then(|| "r".repeat(n));
        row.s = (n % 2 > 0).then_some(n % 5 == 0);
        row.kind = (n % 4 > 0).then(|| vec![n as u8; n]);
        row.o = (n % 5 > 0).then_some(Uuid([n as u8; 16]));
        table.put(&row).unwrap();
    }
    for reversed in [false, true] {
        let scan = || {
            let scan = table.scan().unwrap();
            if reversed { scan.rev() } else { scan }
        };
        let (mut rows, mut read) = (scan(), Vec::new());
        while rows.read_into(&mut row).unwrap() {
            read.push(row.clone());
        }
        assert!(!rows.read_into(&mut row).unwrap() && rows.next().is_none());
        let all: Vec<Everything> = scan().map(Result::unwrap).collect();
        assert_eq!(read.len(), 20, "names of different lengths");
        assert_eq!(read, all);
    }
    let (mut rows, mut values) = (db.dyn_table("everything").unwrap().scan().unwrap(), vec![]);
    assert!(rows.read_into(&mut values).unwrap());
    assert_eq!(values.len(), 22);
    // The methods can be mixed, and no row is lost.
    let mut rows = table.scan().unwrap();
    assert!(rows.read_into(&mut row).unwrap());
    assert_eq!(1 + rows.count(), 20);
}

#[test]
fn a_row_that_cannot_be_read_into_another_ends_the_scan() {
    let db = perigee::example_db().unwrap();
    let table = db.table::<Reading>("readings").unwrap();
    (1..=3).for_each(|n| table.insert(&reading(n, 1)).unwrap());
    let family = db.family("@table/readings").unwrap();
    let (key, _) = family.last().unwrap().unwrap();
    family.put(&key, [0, 0]).unwrap();
    let (mut rows, mut row) = (table.scan().unwrap(), reading(0, 0));
    assert!(rows.read_into(&mut row).unwrap());
    assert!(rows.read_into(&mut row).unwrap());
    let error = rows.read_into(&mut row).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(!rows.read_into(&mut row).unwrap());
}

#[test]
fn ranges_of_key_prefixes() {
    let db = perigee::example_db().unwrap();
    let table = db.table::<Reading>("readings").unwrap();
    for sensor in [1, 2, 7] {
        for second in -5..5 {
            table.insert(&reading(sensor, second)).unwrap();
        }
    }
    fn seconds(rows: impl Iterator<Item = perigee_tables::Result<Reading>>) -> Vec<(u32, i64)> {
        rows.map(|r| r.unwrap()).map(|r| (r.sensor, r.at.as_micros() / 1_000_000)).collect()
    }
    assert_eq!(seconds(table.range((2, at(-1))..(2, at(1))).unwrap()), [(2, -1), (2, 0)]);
    assert_eq!(seconds(table.range((2, at(3))..=(2, at(4))).unwrap()), [(2, 3), (2, 4)]);
    assert_eq!(seconds(table.range_rev((2, at(3))..).unwrap().take(1)), [(7, 4)]);
    assert_eq!(table.prefix(2).unwrap().count(), 10);
    assert_eq!(table.prefix((2,)).unwrap().count(), 10);
    assert_eq!(table.prefix((2, at(0))).unwrap().count(), 1);
    assert_eq!(table.range(2..7).unwrap().count(), 10);
    assert_eq!(table.range(2..=7).unwrap().count(), 20);
    assert_eq!(table.range(3..).unwrap().count(), 10);
    assert_eq!(table.range(..=1).unwrap().count(), 10);
    #[allow(clippy::reversed_empty_ranges)]
    let empty = table.range(7..2).unwrap();
    assert_eq!(empty.count(), 0);
    use std::ops::Bound;
    let after_one = (Bound::Excluded(1), Bound::Unbounded);
    assert_eq!(table.range(after_one).unwrap().count(), 20);
    assert_eq!(seconds(table.scan().unwrap().rev())[0], (7, 4));
}

#[test]
fn insert_put_update_delete() {
    let db = perigee::example_db().unwrap();
    let table = db.table::<Reading>("readings").unwrap();
    table.insert(&reading(1, 1)).unwrap();
    let error = table.insert(&reading(1, 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KeyExists);
    assert_eq!(error.key(), Some("(1, 1000000 us)"));
    assert!(error.to_string().contains("use put"), "{error}");
    table.put(&Reading { note: Some("x".into()), ..reading(1, 1) }).unwrap();
    assert_eq!(table.get((1, at(1))).unwrap().unwrap().note.as_deref(), Some("x"));
    let new = table.update((1, at(1)), |r| r.value = 9.0).unwrap().unwrap();
    assert_eq!((new.value, new.note.as_deref()), (9.0, Some("x")));
    assert_eq!(table.get((1, at(1))).unwrap(), Some(new));
    assert!(table.update((1, at(2)), |_| panic!("there is no row")).unwrap().is_none());
    let error = table.update((1, at(1)), |r| r.sensor = 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let many = table.get_many([(1, at(1)), (1, at(2))]).unwrap();
    assert!(many[0].is_some() && many[1].is_none());
    assert!(table.delete((1, at(1))).unwrap());
    assert!(!table.delete((1, at(1))).unwrap());
    assert!(!table.contains((1, at(1))).unwrap());
}

#[derive(Row, Debug, PartialEq)]
struct OnlyKey {
    #[key]
    word: String,
}

#[test]
fn table_of_keys_only() {
    let db = perigee::example_db().unwrap();
    let table = db.table::<OnlyKey>("words").unwrap();
    for word in ["b", "", "a", "\0", "aa", "a\0"] {
        table.insert(&OnlyKey { word: word.into() }).unwrap();
    }
    let words: Vec<String> = table.scan().unwrap().map(|r| r.unwrap().word).collect();
    assert_eq!(words, ["", "\0", "a", "a\0", "aa", "b"]);
    assert!(table.contains("aa").unwrap() && table.contains(("aa",)).unwrap());
    assert_eq!(table.range("a".."b").unwrap().count(), 3);
    assert_eq!(table.range(String::from("a")..).unwrap().count(), 4);
}

#[test]
fn damaged_rows_are_reported() {
    let db = perigee::example_db().unwrap();
    let table = db.table::<Reading>("readings").unwrap();
    table.insert(&reading(1, 1)).unwrap();
    let family = db.family("@table/readings").unwrap();
    let (key, _) = family.last().unwrap().unwrap();
    for damage in [&b""[..], &[0, 0], &[3, 0], &[0xff, 0xff], &[4, 0, 1, 2, 3, 4, 5, 6, 7, 8]] {
        family.put(&key, damage).unwrap();
        let error = table.get((1, at(1))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{damage:?}");
        assert_eq!(error.key(), Some("(1, 1000000 us)"));
        assert_eq!(error.table(), Some("readings"));
        assert!(table.scan().unwrap().next().unwrap().is_err());
    }
}

#[test]
fn dynamic_rows_are_checked() {
    let db = perigee::example_db().unwrap();
    db.table::<Reading>("readings").unwrap();
    let table = db.dyn_table("readings").unwrap();
    let error = table.put(&vec![Value::U32(1)]).unwrap_err();
    assert!(error.message().contains("1 values for a table of 4 columns"), "{error}");
    let wrong = vec![Value::U32(1), at(1).into(), Value::from(1i64), Value::Null];
    let error = table.put(&wrong).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::InvalidArgument, Some("value")));
    let error = table.get([Value::U32(1)]).unwrap_err();
    assert!(error.message().contains("1 values for a primary key of 2 columns"), "{error}");
    // Integer literals in keys are converted.
    table.put(&vec![Value::U32(1), at(1).into(), 0.5.into(), Value::Null]).unwrap();
    assert!(table.contains([Value::from(1), at(1).into()]).unwrap());
    assert_eq!(table.prefix([Value::from(1)]).unwrap().count(), 1);
    assert!(table.prefix([Value::from(-1)]).is_err());
}
