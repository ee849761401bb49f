//! Settings of the engine, as plain data. They have the names, types and defaults of the public
//! options, because both are generated from the same tables.

pub mod log_listener;
pub mod compaction_filters;
pub mod value_syntax;
pub mod value_limits;
pub mod durability;
pub mod history;
pub mod isolation;
#[macro_use]
pub mod database_options;
#[macro_use]
pub mod family_options;

use crate::settings::compaction_filters::CompactionFilters;
use crate::settings::durability::Durability;
use crate::settings::history::HistoryPolicy;
use crate::settings::isolation::Isolation;
use crate::settings::log_listener::LogListener;
use crate::settings::value_limits::{
    is_supported, is_valid_rule, within, zero_or_at_least, zero_or_percent,
};
use perigee_base::{Error, KeyComparator, MergeOperators, MergeRule, Result, limits};
use perigee_file::Compression;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

/// Operations on all options of a table.
trait OptionValues {
    /// Returns an error for a value out of range, naming the option and its range.
    fn check_ranges(&self) -> Result<()>;
    /// Returns the names of the options and their values as text.
    fn values_as_text(&self) -> Vec<(&'static str, String)>;
}

/// Defines a struct with the options of a table, each documented by its trade-off, and the given
/// fields, which are not in the table; and its defaults and range checks.
macro_rules! define_settings {
    (
        $(#[$meta:meta])*
        pub struct $settings:ident {
            $($(#[$field_doc:meta])* pub $field:ident: $field_type:ty,)*
        }
        $(
            $(#[$doc:meta])*
            $name:ident: $type:ty = $default:expr,
            syntax $syntax:ident, $(limits $check:ident($($limit:expr)?),)?
            tradeoff $tradeoff:literal $(, $(#[$set_doc:meta])* set($parameter:ident))?;
        )*
    ) => {
        $(#[$meta])*
        pub struct $settings {
            $(#[doc = $tradeoff] pub $name: $type,)*
            $($(#[$field_doc])* pub $field: $field_type,)*
        }

        impl Default for $settings {
            fn default() -> Self {
                $settings { $($name: $default,)* $($field: Default::default(),)* }
            }
        }

        impl OptionValues for $settings {
            fn check_ranges(&self) -> Result<()> {
                $($($check(stringify!($name), &self.$name $(, $limit)?)?;)?)*
                Ok(())
            }
            fn values_as_text(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($name), value_as_text(&self.$name))),*]
            }
        }
    };
}

fn value_as_text<T: Debug + Any>(value: &T) -> String {
    match (value as &dyn Any).downcast_ref::<Option<MergeRule>>() {
        Some(rule) => format!("{:?}", rule.as_ref().map(MergeRule::stored_name)),
        None => format!("{value:?}"),
    }
}

database_options! { define_settings

/// Settings of a database.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The user's compaction filters.
    pub compaction_filters: CompactionFilters,
    /// The user-defined comparators available to column families.
    pub comparators: Vec<KeyComparator>,
    /// The user's merge operators available to column families.
    pub merge_operators: MergeOperators,
    /// The listener that receives the lines of the info log.
    pub listener: Option<LogListener>,
    /// Settings for the default column family, if they are to be changed.
    pub default_family: Option<FamilySettings>,
    /// Settings for other column families that may exist, by name.
    pub families: BTreeMap<String, FamilySettings>,
}
}

family_options! { define_settings

/// Settings of a column family, stored in the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilySettings {}
}

impl Settings {
    /// Returns an error for invalid values.
    pub fn check(&self) -> Result<()> {
        for wanted in self.families.values().chain(&self.default_family) {
            self.merge_operators.check_registered(wanted.merge_operator.as_ref())?;
        }
        self.check_ranges()
    }
}

impl FamilySettings {
    /// Returns an error for an invalid value.
    pub fn check(&self) -> Result<()> {
        self.check_ranges()
    }
    /// Returns an error if the column family `name` cannot change to the settings `wanted` because
    /// stored data would become invalid.
    pub fn check_change(&self, wanted: &FamilySettings, name: &str) -> Result<()> {
        if self.comparator == wanted.comparator {
            return self.check_merge_operator_change(wanted, name);
        }
        let what = format!(
            "the comparator of the column family {name:?} cannot be changed, its tables are \
            sorted by it: open it with the same comparator, or copy its entries into a new \
             column family"
        );
        Err(Error::invalid(what).expected(self.comparator.name(), wanted.comparator.name()))
    }

    /// A merge operator can be added, but not changed or removed: stored operands are meaningless
    /// without it.
    fn check_merge_operator_change(&self, wanted: &FamilySettings, name: &str) -> Result<()> {
        let operator_name = |s: &FamilySettings| {
            s.merge_operator.as_ref().map_or("none".into(), MergeRule::stored_name)
        };
        if self.merge_operator.is_none() || self.merge_operator == wanted.merge_operator {
            return Ok(());
        }
        let what = format!(
            "the merge operator of the column family {name:?} cannot be changed or removed: open \
             it with the same operator, or copy its entries into a new column family"
        );
        Err(Error::invalid(what).expected(operator_name(self), operator_name(wanted)))
    }

    /// Returns the differences to the settings `wanted`, as `name: old -> new`.
    pub fn describe_changes(&self, wanted: &FamilySettings) -> Vec<String> {
        let pairs = self.values_as_text().into_iter().zip(wanted.values_as_text());
        pairs
            .filter(|((_, old), (_, new))| old != new)
            .map(|((name, old), (_, new))| format!("{name}: {old} -> {new}"))
            .collect()
    }
}

#[cfg(feature = "serde")]
perigee_base::serialize_as_text!(Durability, HistoryPolicy, Isolation);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Display;
    use std::str::FromStr;

    #[test]
    fn formatted_enums_parse_back() {
        fn check<T: FromStr<Err = Error> + Display + PartialEq + Debug>(values: &[T]) {
            for value in values {
                assert_eq!(&value.to_string().parse::<T>().unwrap(), value);
            }
        }
        let time = Duration::from_millis(1500);
        check(&[Durability::Full, Durability::Interval(time), Durability::None]);
        check(&[HistoryPolicy::None, HistoryPolicy::Operations(7), HistoryPolicy::Time(time)]);
        check(&Isolation::ALL);
        check(&[Compression::None, Compression::Lz4, Compression::Lz4Fast(8)]);
        check(&[Compression::Snappy, Compression::Zstd(-3)]);
    }
}
