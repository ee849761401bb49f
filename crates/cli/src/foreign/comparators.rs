//! Key orders by the names that TidesDB gives them, and what the user says about others (`--order
//! FAMILY=ORDER`). Pure.

use crate::failure::{Failure, Result};
use perigee::KeyComparator;
use std::collections::BTreeMap;

/// TidesDB's built-in comparators and the orders of ours that are the same. For its `uint64` and
/// `int64` that holds among keys of 8 bytes; with others between them what TidesDB does is no order
/// (it goes in circles), and ours puts them aside by length.
pub const BUILT_IN_COMPARATORS: [(&str, KeyComparator); 6] = [
    ("memcmp", KeyComparator::Bytes),
    ("lexicographic", KeyComparator::Lexicographic),
    ("uint64", KeyComparator::U64),
    ("int64", KeyComparator::I64),
    ("reverse", KeyComparator::Reverse),
    ("case_insensitive", KeyComparator::CaseInsensitive),
];

/// The order of a built-in comparator; a family that names none has `memcmp`.
pub fn comparator_by_name(name: &str) -> Option<KeyComparator> {
    let name = if name.is_empty() { "memcmp" } else { name };
    BUILT_IN_COMPARATORS.iter().find(|(n, _)| *n == name).map(|(_, order)| *order)
}

/// TidesDB's name of an order.
pub fn comparator_name(order: KeyComparator) -> &'static str {
    BUILT_IN_COMPARATORS.iter().find(|(_, o)| *o == order).map_or("memcmp", |(name, _)| name)
}

/// What the user says about families whose order cannot be known.
#[derive(Clone, Debug, Default)]
pub struct ComparatorOverrides(BTreeMap<String, KeyComparator>);

impl ComparatorOverrides {
    /// Reads `FAMILY=ORDER` arguments.
    pub fn parse(args: &[String]) -> Result<ComparatorOverrides> {
        let mut all = BTreeMap::new();
        for arg in args {
            let parsed = arg.rsplit_once('=').and_then(|(family, name)| {
                (!name.is_empty())
                    .then(|| comparator_by_name(name))
                    .flatten()
                    .map(|order| (family.to_owned(), order))
            });
            let Some((family, order)) = parsed else {
                let names: Vec<&str> = BUILT_IN_COMPARATORS.iter().map(|(n, _)| *n).collect();
                return Err(Failure::usage(format!("--order {arg:?} is not FAMILY=ORDER"))
                    .hint(format!("orders are {}", names.join(", "))));
            };
            all.insert(family, order);
        }
        Ok(ComparatorOverrides(all))
    }
    /// What is said of a family.
    pub fn get(&self, family: &str) -> Option<KeyComparator> {
        self.0.get(family).copied()
    }
    /// Refuses to be told of families that are not there.
    pub fn check_families<'a>(&self, families: impl Iterator<Item = &'a str>) -> Result<()> {
        let there: Vec<&str> = families.collect();
        match self.0.keys().find(|name| !there.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(Failure::usage(format!(
                "--order names the family {name:?}, which is not there"
            ))
            .hint(format!("its families are {}", there.join(", ")))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparator_arguments_are_parsed() {
        assert_eq!(comparator_by_name(""), Some(KeyComparator::Bytes));
        assert_eq!(comparator_by_name("mine"), None);
        for (name, order) in BUILT_IN_COMPARATORS {
            assert_eq!(comparator_name(comparator_by_name(name).unwrap()), name);
            assert_eq!(comparator_by_name(name), Some(order));
        }
        let said = ComparatorOverrides::parse(&["a=b=uint64".into(), "c=reverse".into()]).unwrap();
        assert_eq!(
            (said.get("a=b"), said.get("c"), said.get("d")),
            (Some(KeyComparator::U64), Some(KeyComparator::Reverse), None)
        );
        assert!(said.check_families(["a=b", "c", "d"].into_iter()).is_ok());
        assert!(said.check_families(["c"].into_iter()).is_err());
        for bad in ["", "a", "a=", "a=mine"] {
            assert!(ComparatorOverrides::parse(&[bad.into()]).is_err(), "{bad}");
        }
    }
}
