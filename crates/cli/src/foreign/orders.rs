//! Key orders by the names that TidesDB gives them, and what the user says about others (`--order FAMILY=ORDER`). Pure.

use crate::failure::{Failure, Result};
use perigee::KeyOrder;
use std::collections::BTreeMap;

/// TidesDB's built-in comparators and the orders of ours that are the same. For its `uint64` and `int64` that holds among keys of 8
/// bytes; with others between them what TidesDB does is no order (it goes in circles), and ours puts them aside by length.
pub const BUILT_IN: [(&str, KeyOrder); 6] = [
    ("memcmp", KeyOrder::Bytes),
    ("lexicographic", KeyOrder::Lexicographic),
    ("uint64", KeyOrder::U64),
    ("int64", KeyOrder::I64),
    ("reverse", KeyOrder::Reverse),
    ("case_insensitive", KeyOrder::CaseInsensitive),
];

/// The order of a built-in comparator; a family that names none has `memcmp`.
pub fn by_name(name: &str) -> Option<KeyOrder> {
    let name = if name.is_empty() { "memcmp" } else { name };
    BUILT_IN.iter().find(|(n, _)| *n == name).map(|(_, order)| *order)
}

/// TidesDB's name of an order.
pub fn name_of(order: KeyOrder) -> &'static str {
    BUILT_IN.iter().find(|(_, o)| *o == order).map_or("memcmp", |(name, _)| name)
}

/// What the user says about families whose order cannot be known.
#[derive(Clone, Debug, Default)]
pub struct Said(BTreeMap<String, KeyOrder>);

impl Said {
    /// Reads `FAMILY=ORDER` arguments.
    pub fn read(args: &[String]) -> Result<Said> {
        let mut all = BTreeMap::new();
        for arg in args {
            let parsed = arg.rsplit_once('=').and_then(|(family, name)| {
                (!name.is_empty()).then(|| by_name(name)).flatten().map(|order| (family.to_owned(), order))
            });
            let Some((family, order)) = parsed else {
                let names: Vec<&str> = BUILT_IN.iter().map(|(n, _)| *n).collect();
                return Err(Failure::usage(format!("--order {arg:?} is not FAMILY=ORDER"))
                    .hint(format!("orders are {}", names.join(", "))));
            };
            all.insert(family, order);
        }
        Ok(Said(all))
    }
    /// What is said of a family.
    pub fn of(&self, family: &str) -> Option<KeyOrder> {
        self.0.get(family).copied()
    }
    /// Refuses to be told of families that are not there.
    pub fn check<'a>(&self, families: impl Iterator<Item = &'a str>) -> Result<()> {
        let there: Vec<&str> = families.collect();
        match self.0.keys().find(|name| !there.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => {
                Err(Failure::usage(format!("--order names the family {name:?}, which is not there"))
                    .hint(format!("its families are {}", there.join(", "))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read() {
        assert_eq!(by_name(""), Some(KeyOrder::Bytes));
        assert_eq!(by_name("mine"), None);
        for (name, order) in BUILT_IN {
            assert_eq!(name_of(by_name(name).unwrap()), name);
            assert_eq!(by_name(name), Some(order));
        }
        let said = Said::read(&["a=b=uint64".into(), "c=reverse".into()]).unwrap();
        assert_eq!(
            (said.of("a=b"), said.of("c"), said.of("d")),
            (Some(KeyOrder::U64), Some(KeyOrder::Reverse), None)
        );
        assert!(said.check(["a=b", "c", "d"].into_iter()).is_ok());
        assert!(said.check(["c"].into_iter()).is_err());
        for bad in ["", "a", "a=", "a=mine"] {
            assert!(Said::read(&[bad.into()]).is_err(), "{bad}");
        }
    }
}
