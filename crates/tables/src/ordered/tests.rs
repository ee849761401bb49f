//! Encoded keys compare like their values, are decoded to the same values, and no input panics.

use super::*;
use crate::testing::Rng;
use std::cmp::Ordering;

fn random_format(rng: &mut Rng, columns: u64) -> Vec<Component> {
    (0..columns)
        .map(|_| Component {
            column_type: ColumnType::ALL[rng.below(ColumnType::ALL.len() as u64) as usize],
            nullable: rng.below(3) == 0,
            order: if rng.below(2) == 0 { Order::Ascending } else { Order::Descending },
        })
        .collect()
}

fn random_tuple(rng: &mut Rng, format: &KeyFormat) -> Vec<Value> {
    format.iter().map(|c| rng.nullable_value(c.column_type, c.nullable)).collect()
}

fn encode(tuple: &[Value], format: &KeyFormat) -> Vec<u8> {
    let mut out = Vec::new();
    for (value, component) in tuple.iter().zip(format) {
        write_value(value, *component, &mut out);
    }
    out
}

/// Compares two tuples in the order of `format`.
fn compare(a: &[Value], b: &[Value], format: &KeyFormat) -> Ordering {
    let columns = a.iter().zip(b).zip(format);
    let orders = columns.map(|((a, b), component)| match component.order {
        Order::Ascending => a.cmp(b),
        Order::Descending => b.cmp(a),
    });
    orders.fold(Ordering::Equal, Ordering::then)
}

#[test]
fn encoded_order_equals_value_order() {
    let mut rng = Rng(11);
    for _ in 0..800 {
        let columns = 1 + rng.below(4);
        let format = random_format(&mut rng, columns);
        let a = random_tuple(&mut rng, &format);
        for _ in 0..10 {
            // Tuples that differ in few columns are the interesting ones.
            let mut b = random_tuple(&mut rng, &format);
            for (i, value) in a.iter().enumerate() {
                if rng.below(2) == 0 {
                    b[i] = value.clone();
                }
            }
            let (x, y) = (encode(&a, &format), encode(&b, &format));
            assert_eq!(x.cmp(&y), compare(&a, &b, &format), "{a:?} {b:?} {format:?}");
        }
    }
}

#[test]
fn keys_are_decoded_to_the_same_values() {
    let mut rng = Rng(12);
    for _ in 0..800 {
        let columns = 1 + rng.below(5);
        let format = random_format(&mut rng, columns);
        let tuple = random_tuple(&mut rng, &format);
        let key = encode(&tuple, &format);
        let mut reader = KeyReader::new(&key);
        let mut skipper = KeyReader::new(&key);
        let mut joined = Vec::new();
        for (value, component) in tuple.iter().zip(&format) {
            assert_eq!(reader.read_value(*component).unwrap(), *value);
            let (bytes, is_null) = skipper.skip(*component).unwrap();
            assert_eq!(is_null, value.is_null());
            joined.extend_from_slice(bytes);
        }
        reader.finish().unwrap();
        skipper.finish().unwrap();
        assert_eq!(joined, key);
    }
}

#[test]
fn prefix_of_a_tuple_is_a_range_of_its_keys() {
    let mut rng = Rng(13);
    for _ in 0..800 {
        let format = random_format(&mut rng, 3);
        let (a, mut b) = (random_tuple(&mut rng, &format), random_tuple(&mut rng, &format));
        if rng.below(2) == 0 {
            b[0] = a[0].clone();
        }
        let prefix = encode(&a[..1], &format);
        let key = encode(&b, &format);
        assert_eq!(key.starts_with(&prefix), a[0] == b[0], "{a:?} {b:?}");
        let after = prefix_successor(prefix.clone());
        let inside = key >= prefix && after.is_none_or(|after| key < after);
        assert_eq!(inside, a[0] == b[0]);
    }
}

#[test]
fn decoders_accept_any_bytes_without_panic() {
    let mut rng = Rng(14);
    for _ in 0..8000 {
        let columns = 1 + rng.below(3);
        let format = random_format(&mut rng, columns);
        let bytes = rng.bytes(24);
        let (mut reader, mut skipper) = (KeyReader::new(&bytes), KeyReader::new(&bytes));
        for component in &format {
            let skipped = skipper.skip(*component);
            match reader.read_value(*component) {
                // What is decoded is encoded to the same bytes.
                Ok(value) => {
                    let mut again = Vec::new();
                    write_value(&value, *component, &mut again);
                    assert_eq!(skipped.unwrap().0, again);
                }
                Err(_) => break,
            }
        }
    }
}

#[test]
fn components_have_the_documented_bytes() {
    let ascending = |value: Value| {
        let column_type = value.column_type().unwrap();
        let component = Component { column_type, nullable: false, order: Order::Ascending };
        encode(&[value], &[component])
    };
    assert_eq!(ascending(Value::from(7u32)), [0, 0, 0, 7]);
    assert_eq!(ascending(Value::from(-2i16)), [0x7f, 0xfe]);
    assert_eq!(ascending(Value::from(1.0f32)), [0xbf, 0x80, 0, 0]);
    assert_eq!(ascending(Value::from(-1.0f32)), [0x40, 0x7f, 0xff, 0xff]);
    assert_eq!(ascending(Value::from("a\0\u{1}")), [b'a', 1, 1, 1, 2, 0]);
    let nullable =
        Component { column_type: ColumnType::U8, nullable: true, order: Order::Descending };
    assert_eq!(encode(&[Value::Null], &[nullable]), [0xff]);
    assert_eq!(encode(&[Value::from(1u8)], &[nullable]), [0xfe, 0xfe]);
}
