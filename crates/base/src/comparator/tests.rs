//! Tests every comparator against its documentation, over awkward keys.

use super::*;
use std::cmp::Ordering::{Equal, Greater, Less};

fn length_comparator() -> KeyComparator {
    KeyComparator::register("length", |a, b| a.len().cmp(&b.len())).unwrap()
}

fn digits_last_comparator() -> KeyComparator {
    let rank = |k: &[u8]| (k.first().is_some_and(u8::is_ascii_digit), k.to_vec());
    KeyComparator::register_canonical(
        "digits-last",
        move |a, b| rank(a).cmp(&rank(b)),
        |k| k.to_vec(),
    )
    .unwrap()
}

fn all_comparators() -> Vec<KeyComparator> {
    BUILT_IN_COMPARATORS
        .iter()
        .map(|(o, _)| *o)
        .chain([length_comparator(), digits_last_comparator()])
        .collect()
}

fn awkward_keys() -> Vec<Vec<u8>> {
    let letters = [0u8, 1, b'@', b'A', b'Z', b'[', b'`', b'a', b'z', b'{', 0x7f, 0x80, 0xfe, 0xff];
    let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
    for a in letters {
        keys.push(vec![a]);
        keys.extend(letters.map(|b| vec![a, b]));
        keys.push(vec![a; 8]);
        keys.push([&[a][..], &[0; 7]].concat());
        keys.push([&[0; 7][..], &[a]].concat());
        keys.push(vec![a; 9]);
    }
    keys
}

#[test]
fn comparators_are_total_and_match_canonical_form() {
    let keys = awkward_keys();
    for comparator in all_comparators() {
        for a in &keys {
            for b in &keys {
                let ab = comparator.cmp(a, b);
                assert_eq!(ab, comparator.cmp(b, a).reverse(), "{comparator:?} {a:?} {b:?}");
                assert_eq!(comparator.keys_equal(a, b), ab == Equal, "{comparator:?} {a:?} {b:?}");
                if comparator.supports_filters() {
                    assert_eq!(
                        comparator.canonical(a) == comparator.canonical(b),
                        ab == Equal,
                        "{comparator:?} {a:?} {b:?}"
                    );
                    assert!(ab != Equal || comparator.filter_hash(a) == comparator.filter_hash(b));
                }
                if comparator.has_bytewise_equality() {
                    assert_eq!(ab == Equal, a == b);
                }
            }
        }
        let mut sorted = keys.clone();
        sorted.sort_by(|a, b| comparator.cmp(a, b));
        assert!(
            sorted
                .iter()
                .enumerate()
                .all(|(i, a)| sorted[i..].iter().all(|b| comparator.cmp(a, b) != Greater))
        );
    }
}

#[test]
fn built_in_comparators_order_as_documented() {
    let n = |v: i64| v.to_le_bytes();
    assert_eq!(KeyComparator::U64.cmp(&n(256), &n(1)), Greater);
    assert_eq!(KeyComparator::U64.cmp(&n(-1), &n(1)), Greater);
    assert_eq!(KeyComparator::I64.cmp(&n(-1), &n(1)), Less);
    assert_eq!(KeyComparator::I64.cmp(&n(i64::MIN), &n(i64::MAX)), Less);
    assert_eq!(KeyComparator::I64.cmp(b"\xff\xff", &n(i64::MIN)), Less, "shorter keys come first");
    assert_eq!(KeyComparator::I64.cmp(&n(i64::MAX), &[0; 9]), Less, "longer keys come last");
    assert_eq!(KeyComparator::CaseInsensitive.cmp(b"ABC", b"abd"), Less);
    assert_eq!(KeyComparator::CaseInsensitive.cmp(b"_", b"A"), Less, "letters count as lower case");
    assert_eq!(
        KeyComparator::CaseInsensitive.cmp("Ä".as_bytes(), "ä".as_bytes()),
        Less,
        "ASCII only"
    );
    assert_eq!(KeyComparator::Lexicographic.cmp(b"ab\0x", b"ab"), Equal);
    assert_eq!(KeyComparator::Lexicographic.cmp(b"ab\0x", b"ab\x01"), Less);
}

#[test]
fn prefix_range_holds_exactly_the_keys_with_the_prefix() {
    let keys = awkward_keys();
    for comparator in all_comparators() {
        for prefix in keys.iter().filter(|k| k.len() < 3) {
            let Ok((low, high)) = comparator.prefix_range(prefix) else {
                assert!(matches!(
                    comparator,
                    KeyComparator::U64 | KeyComparator::I64 | KeyComparator::Registered(_)
                ));
                continue;
            };
            for key in &keys {
                let above = match &low {
                    Bound::Included(l) => comparator.cmp(key, l) != Less,
                    Bound::Excluded(l) => comparator.cmp(key, l) == Greater,
                    Bound::Unbounded => true,
                };
                let below = match &high {
                    Bound::Included(h) => comparator.cmp(key, h) != Greater,
                    Bound::Excluded(h) => comparator.cmp(key, h) == Less,
                    Bound::Unbounded => true,
                };
                let begins = comparator.canonical(key).starts_with(&comparator.canonical(prefix));
                assert_eq!(
                    above && below,
                    begins,
                    "{comparator:?} {prefix:?} {key:?}: {low:?} to {high:?}"
                );
            }
        }
    }
}

#[test]
fn registered_comparators_have_names_and_fingerprints() {
    for comparator in all_comparators() {
        assert_eq!(KeyComparator::by_name(comparator.name()).unwrap(), comparator);
        comparator.check_fingerprint(comparator.fingerprint()).unwrap();
    }
    assert_eq!(KeyComparator::by_name("tides").unwrap_err().kind(), ErrorKind::FormatTooNew);
    let e = KeyComparator::by_name("user:tides").unwrap_err();
    assert!(
        e.kind() == ErrorKind::InvalidArgument && e.to_string().contains("register_comparator"),
        "{e}"
    );
    assert_eq!(length_comparator(), length_comparator(), "registering again returns the same");
    assert!(length_comparator().check_fingerprint(Some(1)).is_err());
    assert!(length_comparator().check_registered(&[digits_last_comparator()]).is_err());
    length_comparator().check_registered(&[length_comparator()]).unwrap();
    KeyComparator::U64.check_registered(&[]).unwrap();
}

#[test]
fn invalid_comparators_are_refused() {
    let refuse = |made: Result<KeyComparator>, what: &str| {
        let e = made.unwrap_err();
        assert!(e.kind() == ErrorKind::InvalidArgument && e.to_string().contains(what), "{e}");
    };
    length_comparator();
    refuse(KeyComparator::register("length", |a, b| b.len().cmp(&a.len())), "another name");
    refuse(KeyComparator::register("less", |_, _| Less), "contradict");
    let circle = |a: &[u8], b: &[u8]| {
        let third = |k: &[u8]| k.iter().map(|b| i32::from(*b)).sum::<i32>() % 3;
        [Equal, Less, Greater][(third(b) - third(a)).rem_euclid(3) as usize]
    };
    refuse(KeyComparator::register("circle", circle), "transitive");
    let upper = |k: &[u8]| k.to_ascii_uppercase();
    refuse(KeyComparator::register_canonical("odd", |a, b| a.cmp(b), upper), "canonical");
    refuse(KeyComparator::register("", |a, b| a.cmp(b)), "1 to 96");
    refuse(KeyComparator::register("a\nb", |a, b| a.cmp(b)), "control");
}
