//! Record batches of Arrow: scans with columns, ranges, indexes and transactions compared with the
//! rows, and rows from batches.
#![cfg(feature = "arrow")]
#![allow(clippy::unwrap_used)]

use arrow_array::{Array, ArrayRef, Date32Array, DictionaryArray, Int64Array, RecordBatch};
use arrow_array::{StringArray, TimestampMillisecondArray, types::Int8Type};
use perigee_tables::*;
use std::sync::Arc;

/// One value of each type, and the largest and smallest ones.
fn values_of(column_type: ColumnType) -> Vec<Value> {
    match column_type {
        ColumnType::Bool => vec![false.into(), true.into()],
        ColumnType::I8 => vec![i8::MIN.into(), 1i8.into(), i8::MAX.into()],
        ColumnType::I16 => vec![i16::MIN.into(), 1i16.into(), i16::MAX.into()],
        ColumnType::I32 => vec![i32::MIN.into(), 1i32.into(), i32::MAX.into()],
        ColumnType::I64 => vec![i64::MIN.into(), 1i64.into(), i64::MAX.into()],
        ColumnType::I128 => vec![i128::MIN.into(), 1i128.into(), i128::MAX.into()],
        ColumnType::U8 => vec![0u8.into(), 1u8.into(), u8::MAX.into()],
        ColumnType::U16 => vec![0u16.into(), 1u16.into(), u16::MAX.into()],
        ColumnType::U32 => vec![0u32.into(), 1u32.into(), u32::MAX.into()],
        ColumnType::U64 => vec![0u64.into(), 1u64.into(), u64::MAX.into()],
        ColumnType::U128 => vec![0u128.into(), 1u128.into(), u128::MAX.into()],
        ColumnType::F32 => vec![f32::NEG_INFINITY.into(), (-0.0f32).into(), 1.5f32.into()],
        ColumnType::F64 => vec![f64::NEG_INFINITY.into(), (-0.0f64).into(), f64::NAN.into()],
        ColumnType::Timestamp => vec![Timestamp::MIN.into(), Timestamp::from_secs(7).into()],
        ColumnType::Uuid => vec![Uuid([0; 16]).into(), Uuid([0xab; 16]).into()],
        ColumnType::Text => vec!["".into(), "a\0b\u{1}".into(), "ü".into()],
        ColumnType::Bytes => vec![vec![].into(), vec![0u8, 1, 255].into()],
        _ => panic!("an unknown type"),
    }
}

fn read_all(batches: BatchIter<'_>, schema: &Schema) -> Vec<Vec<Value>> {
    batches.flat_map(|batch| rows_from_batch(&batch.unwrap(), schema).unwrap()).collect()
}

#[test]
fn every_type_is_read_back_as_key_and_as_column() {
    for uuids in [UuidFormat::Binary, UuidFormat::Text] {
        for order in [Order::Ascending, Order::Descending] {
            for &column_type in ColumnType::ALL {
                let db = perigee::example_db().unwrap();
                let schema = match order {
                    Order::Ascending => Schema::new().key("k", column_type),
                    Order::Descending => Schema::new().key_desc("k", column_type),
                };
                let schema = schema.nullable("n", column_type).column("c", column_type);
                let table = db.create_dyn_table("t", schema.clone()).unwrap();
                let values = values_of(column_type);
                for value in &values {
                    table.put(&vec![value.clone(), Value::Null, value.clone()]).unwrap();
                }
                let last = values.last().unwrap();
                table.put(&vec![last.clone(), last.clone(), last.clone()]).unwrap();
                let scan = BatchScan::new().uuids(uuids);
                let rows: Vec<_> = table.scan().unwrap().map(Result::unwrap).collect();
                assert_eq!(read_all(table.batches(&scan).unwrap(), &schema), rows);
                let arrow = table.batches(&scan).unwrap().schema();
                assert_eq!(*arrow, schema.to_arrow(uuids), "{column_type}");
            }
        }
    }
}

/// A table of 3,000 rows with the key (a ascending, b descending) and two indexes.
fn sample(db: &perigee::Db) -> DynTable {
    let schema = Schema::new()
        .key("a", ColumnType::I32)
        .key_desc("b", ColumnType::Text)
        .nullable("c", ColumnType::U16)
        .column("d", ColumnType::F64);
    let table = db.create_dyn_table("sample", schema).unwrap();
    table.create_index(IndexDef::new("by_c").column("c")).unwrap();
    table.create_index(IndexDef::new("by_d").column_desc("d").column("a").unique()).unwrap();
    let row = |i: i32| {
        let c = if i % 7 == 0 { Value::Null } else { Value::U16((i * 37 % 100) as u16) };
        vec![Value::I32(i / 10), format!("b{}", i % 10).into(), c, Value::F64(f64::from(i % 10))]
    };
    table.load((0..3000).map(row)).unwrap();
    table
}

#[test]
fn scans_return_the_rows_of_ranges_and_indexes() {
    let db = perigee::example_db().unwrap();
    let table = sample(&db);
    let schema = table.schema();
    let low = vec![Value::I32(20), Value::from("b5")];
    let high = vec![Value::I32(40)];
    for reversed in [false, true] {
        for batch_rows in [1, 7, 100_000] {
            let scan = BatchScan::new().batch_rows(batch_rows).reversed(reversed);
            let directed = |mut rows: Vec<Vec<Value>>| {
                if reversed {
                    rows.reverse();
                }
                rows
            };
            let expected = table.range(low.clone()..high.clone()).unwrap();
            let expected = directed(expected.map(Result::unwrap).collect());
            let range = scan.clone().range(low.clone()..high.clone());
            assert_eq!(read_all(table.batches(&range).unwrap(), &schema), expected);

            for (index, from, to) in
                [("by_c", 10.into(), 20.into()), ("by_d", 7.5.into(), 3.5.into())]
            {
                let (from, to): (Value, Value) = (from, to);
                let expected = table.index(index).unwrap().range(from.clone()..to.clone()).unwrap();
                let expected = directed(expected.map(Result::unwrap).collect());
                assert!(!expected.is_empty());
                let scan = scan.clone().index(index).range(vec![from]..vec![to]);
                assert_eq!(read_all(table.batches(&scan).unwrap(), &schema), expected);
            }
        }
    }
}

#[test]
fn an_index_with_all_columns_answers_without_rows() {
    let db = perigee::example_db().unwrap();
    let table = sample(&db);
    for (index, columns) in [("by_c", ["b", "c"]), ("by_d", ["d", "b"]), ("by_d", ["a", "b"])] {
        let scan = BatchScan::new().index(index).columns(columns);
        let reader = table.batches(&scan).unwrap().detach();
        assert!(reader.is_covered());
        let positions = columns.map(|name| table.schema().position(name).unwrap());
        let expected: Vec<Vec<Value>> = table
            .index(index)
            .unwrap()
            .scan()
            .unwrap()
            .map(|row| row.unwrap())
            .map(|row| positions.iter().map(|i| row[*i].clone()).collect())
            .collect();
        let mut schema = Schema::new();
        for i in positions {
            schema = schema.add(table.schema().columns()[i].clone());
        }
        assert_eq!(read_all(table.batches(&scan).unwrap(), &schema), expected);
    }
    let scan = BatchScan::new().index("by_c").columns(["d"]);
    assert!(!table.batches(&scan).unwrap().detach().is_covered());
}

#[test]
fn ranges_are_read_in_key_order_up_to_the_limit() {
    let db = perigee::example_db().unwrap();
    let table = sample(&db);
    let point = |a: i32| {
        let key = vec![Value::I32(a)];
        (std::ops::Bound::Included(key.clone()), std::ops::Bound::Included(key))
    };
    let scan = BatchScan::new().columns(["a"]).range(point(30)).range(point(4)).range(point(9999));
    let rows = |scan: &BatchScan| -> usize {
        table.batches(scan).unwrap().map(|batch| batch.unwrap().num_rows()).sum()
    };
    assert_eq!(rows(&scan), 20);
    assert_eq!(rows(&scan.clone().limit(13)), 13);
    assert_eq!(rows(&scan.clone().limit(0)), 0);
    // The error is at most half a block at each end of a range.
    assert!(table.estimate_rows(&scan).unwrap() < 1500);
    let first = table.batches(&scan).unwrap().next().unwrap().unwrap();
    let first =
        first.column(0).as_any().downcast_ref::<arrow_array::Int32Array>().unwrap().value(0);
    assert_eq!(first, 4);
    let count = table.batches(&BatchScan::new().columns(Vec::<String>::new())).unwrap();
    assert_eq!(count.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 3000);
}

#[test]
fn transactions_and_snapshots_are_scanned() {
    let db = perigee::example_db().unwrap();
    let table = sample(&db);
    let snapshot = db.snapshot().unwrap();
    let tx = db.begin_tables(Default::default()).unwrap();
    let rows = tx.on(&table);
    rows.delete([Value::I32(0), "b0".into()]).unwrap();
    rows.put(&vec![Value::I32(-1), "x".into(), Value::U16(5), Value::F64(11.0)]).unwrap();
    rows.put(&vec![Value::I32(-1), "y".into(), Value::U16(5), Value::F64(12.0)]).unwrap();
    for scan in [BatchScan::new(), BatchScan::new().index("by_c")] {
        let mut reader = rows.batches(&scan).unwrap().detach();
        let mut read = 0;
        while let Some(batch) = reader.read_in(&tx).unwrap() {
            read += batch.num_rows();
        }
        assert_eq!(read, 3001);
        let mut reader = table.at(&snapshot).batches(&scan).unwrap().detach();
        let mut read = 0;
        while let Some(batch) = reader.read_at(&snapshot).unwrap() {
            read += batch.num_rows();
        }
        assert_eq!(read, 3000);
    }
}

#[test]
fn scans_survive_added_columns() {
    let db = perigee::example_db().unwrap();
    let table = sample(&db);
    let old_handle = db.dyn_table("sample").unwrap();
    let added = Column::new("e", ColumnType::Text).default_value("new");
    db.alter_table("sample", &[SchemaChange::AddColumn(added)]).unwrap();
    let mut row = table.get([Value::I32(1), "b1".into()]).unwrap().unwrap();
    let table = db.dyn_table("sample").unwrap();
    row.push("other".into());
    table.put(&row).unwrap();
    let scan = BatchScan::new().columns(["d", "a"]);
    let rows: usize = old_handle.batches(&scan).unwrap().map(|b| b.unwrap().num_rows()).sum();
    assert_eq!(rows, 3000);
}

#[test]
fn batches_are_converted_to_the_types_of_the_table() {
    let schema = Schema::new()
        .key("id", ColumnType::U8)
        .column("day", ColumnType::Timestamp)
        .nullable("at", ColumnType::Timestamp)
        .column("word", ColumnType::Text)
        .add(Column::new("extra", ColumnType::I32).default_value(9i32));
    let words: DictionaryArray<Int8Type> = vec!["x", "y"].into_iter().collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("at", Arc::new(TimestampMillisecondArray::from(vec![Some(5), None]))),
        ("day", Arc::new(Date32Array::from(vec![1, -1]))),
        ("id", Arc::new(Int64Array::from(vec![1, 2]))),
        ("word", Arc::new(words)),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let rows = rows_from_batch(&batch, &schema).unwrap();
    let day = Timestamp::from_secs(86_400);
    let at = Timestamp::from_micros(5000);
    assert_eq!(rows[0], [1u8.into(), day.into(), at.into(), "x".into(), 9i32.into()]);
    assert_eq!(rows[1][2], Value::Null);
}

#[test]
fn unsuitable_batches_and_scans_are_refused() {
    let batch = |name: &str, array: ArrayRef| RecordBatch::try_from_iter([(name, array)]).unwrap();
    let schema = Schema::new().key("id", ColumnType::U8);
    let bad = [
        batch("id", Arc::new(Int64Array::from(vec![256]))),
        batch("id", Arc::new(Int64Array::from(vec![Some(1), None]))),
        batch("id", Arc::new(StringArray::from(vec!["1"]))),
        batch("other", Arc::new(Int64Array::from(vec![1]))),
    ];
    for batch in bad {
        let error = rows_from_batch(&batch, &schema).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.column().is_some(), "{error}");
    }
    let db = perigee::example_db().unwrap();
    let table = sample(&db);
    let scans = [
        BatchScan::new().columns(["none"]),
        BatchScan::new().columns(["a", "a"]),
        BatchScan::new().index("none"),
        BatchScan::new().range(vec![Value::from("text")]..),
        BatchScan::new().range(vec![Value::I32(1), "b".into(), Value::I32(3)]..),
    ];
    for scan in scans {
        let error = table.batches(&scan).unwrap_err();
        assert_eq!(error.table(), Some("sample"), "{error}");
    }
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_files_are_read_back() {
    let db = perigee::example_db().unwrap();
    for (i, &column_type) in ColumnType::ALL.iter().enumerate() {
        let schema = Schema::new().key("k", column_type).nullable("n", column_type);
        let table = db.create_dyn_table(&format!("t{i}"), schema.clone()).unwrap();
        for value in values_of(column_type) {
            table.put(&vec![value.clone(), Value::Null]).unwrap();
        }
        let mut file = Vec::new();
        let batches = table.batches(&BatchScan::new()).unwrap();
        let report = export_parquet(batches, &mut file).unwrap();
        assert_eq!(report.bytes, file.len() as u64);
        let rows = ParquetRows::open(bytes::Bytes::from(file)).unwrap();
        assert_eq!(rows.row_count(), report.rows);
        let imported = Schema::from_arrow(&rows.arrow_schema(), &["k"]).unwrap();
        if column_type != ColumnType::U128 {
            assert_eq!(imported, schema);
        }
        let rows: Vec<_> = rows.read(&schema).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows, table.scan().unwrap().map(Result::unwrap).collect::<Vec<_>>());
    }
    ParquetRows::open(bytes::Bytes::from_static(b"PAR1 is no file PAR1")).unwrap_err();
}
