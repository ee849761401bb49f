//! Comparators by their TidesDB names, and the user's mapping of custom comparators
//! (`--comparator FAMILY=NAME`). Performs no I/O.

use crate::failure::{Failure, Result};
use perigee::KeyComparator;
use std::collections::BTreeMap;

/// TidesDB's built-in comparators and their equivalents in Perigee. `uint64` and `int64` are
/// equivalent only among keys of 8 bytes: with keys of other lengths TidesDB's comparison is not
/// transitive, whereas Perigee orders those keys separately, by length.
pub const BUILT_IN_COMPARATORS: [(&str, KeyComparator); 6] = [
    ("memcmp", KeyComparator::Bytes),
    ("lexicographic", KeyComparator::Lexicographic),
    ("uint64", KeyComparator::U64),
    ("int64", KeyComparator::I64),
    ("reverse", KeyComparator::Reverse),
    ("case_insensitive", KeyComparator::CaseInsensitive),
];

/// Returns a built-in comparator by name; the empty name means `memcmp`.
pub fn comparator_by_name(name: &str) -> Option<KeyComparator> {
    let name = if name.is_empty() { "memcmp" } else { name };
    BUILT_IN_COMPARATORS.iter().find(|(n, _)| *n == name).map(|(_, comparator)| *comparator)
}

/// Returns TidesDB's name of a comparator.
pub fn comparator_name(comparator: KeyComparator) -> &'static str {
    BUILT_IN_COMPARATORS.iter().find(|(_, c)| *c == comparator).map_or("memcmp", |(name, _)| name)
}

/// Comparators that the user specified for column families with a custom comparator.
#[derive(Clone, Debug, Default)]
pub struct ComparatorOverrides(BTreeMap<String, KeyComparator>);

impl ComparatorOverrides {
    /// Parses `FAMILY=NAME` arguments.
    pub fn parse(args: &[String]) -> Result<ComparatorOverrides> {
        let mut all = BTreeMap::new();
        for arg in args {
            let parsed = arg.rsplit_once('=').and_then(|(family, name)| {
                (!name.is_empty())
                    .then(|| comparator_by_name(name))
                    .flatten()
                    .map(|comparator| (family.to_owned(), comparator))
            });
            let Some((family, comparator)) = parsed else {
                let names: Vec<&str> = BUILT_IN_COMPARATORS.iter().map(|(n, _)| *n).collect();
                return Err(Failure::usage(format!("--comparator {arg:?} is not FAMILY=NAME"))
                    .hint(format!("NAME is one of {}", names.join(", "))));
            };
            all.insert(family, comparator);
        }
        Ok(ComparatorOverrides(all))
    }
    /// Returns the comparator specified for a column family.
    pub fn get(&self, family: &str) -> Option<KeyComparator> {
        self.0.get(family).copied()
    }
    /// Returns an error if a comparator is specified for a column family that does not exist.
    pub fn check_families<'a>(&self, families: impl Iterator<Item = &'a str>) -> Result<()> {
        let existing: Vec<&str> = families.collect();
        match self.0.keys().find(|name| !existing.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(Failure::usage(format!(
                "--comparator names the column family {name:?}, which does not exist"
            ))
            .hint(format!("the column families are {}", existing.join(", ")))),
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
        for (name, comparator) in BUILT_IN_COMPARATORS {
            assert_eq!(comparator_name(comparator_by_name(name).unwrap()), name);
            assert_eq!(comparator_by_name(name), Some(comparator));
        }
        let args = ["a=b=uint64".into(), "c=reverse".into()];
        let overrides = ComparatorOverrides::parse(&args).unwrap();
        assert_eq!(
            (overrides.get("a=b"), overrides.get("c"), overrides.get("d")),
            (Some(KeyComparator::U64), Some(KeyComparator::Reverse), None)
        );
        assert!(overrides.check_families(["a=b", "c", "d"].into_iter()).is_ok());
        assert!(overrides.check_families(["c"].into_iter()).is_err());
        for bad in ["", "a", "a=", "a=mine"] {
            assert!(ComparatorOverrides::parse(&[bad.into()]).is_err(), "{bad}");
        }
    }
}
