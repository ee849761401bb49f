//! The rows of the option tables as values: name, trade-off, and the functions that format and
//! parse the value. The options file, the command `perigee options` and `docs/OPTIONS.md` are
//! derived from them. The tables are `database_options.rs` and `family_options.rs` of the engine.

use crate::options::syntax::{
    Count, FilterBits, Flag, IsolationOrDatabase, Length, MergeRuleOrNone, OptionSyntax, Scalar,
    Size, SizeOrAuto, SizeOrNone, Text, Time,
};
use crate::options::{FamilyOptions, Options};

/// An option with its current value and its default.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionValue {
    /// Name in the options file; also the name of the field of [`Options`] or [`FamilyOptions`].
    pub name: &'static str,
    /// Current value as written in the options file; text is in quotes.
    pub value: String,
    /// Default value in the same form.
    pub default: String,
    /// One sentence on what the option does, and what a higher or lower value costs.
    pub tradeoff: &'static str,
}

pub(crate) struct Row<T: 'static> {
    pub name: &'static str,
    pub tradeoff: &'static str,
    pub get: fn(&T) -> String,
    #[cfg_attr(not(feature = "toml"), allow(dead_code))]
    pub set: fn(&mut T, &Scalar) -> Result<(), String>,
}

/// Lists the options of a table as rows.
macro_rules! rows {
    ($(
        $(#[$doc:meta])*
        $name:ident: $type:ty = $default:expr,
        syntax $syntax:ident, $(limits $check:ident($($limit:expr)?),)?
        tradeoff $tradeoff:literal $(, $(#[$set_doc:meta])* set($parameter:ident))?;
    )*) => {
        &[$(Row {
            name: stringify!($name),
            tradeoff: $tradeoff,
            get: |o| $syntax::format(&o.$name),
            set: |o, value| {
                o.$name = $syntax::parse(value)?;
                Ok(())
            },
        }),*]
    };
}

/// Options of a database, in the order of the table.
pub(crate) const DATABASE: &[Row<Options>] = perigee_engine::database_options!(rows);

/// Options of a column family, in the order of the table.
pub(crate) const FAMILY: &[Row<FamilyOptions>] = perigee_engine::family_options!(rows);

pub(crate) fn option_values<T>(rows: &'static [Row<T>], of: &T, default: &T) -> Vec<OptionValue> {
    let value = |row: &Row<T>| OptionValue {
        name: row.name,
        value: (row.get)(of),
        default: (row.get)(default),
        tradeoff: row.tradeoff,
    };
    rows.iter().map(value).collect()
}

impl Options {
    /// Returns the options of the database with their values as written in an options file. Options
    /// of column families are not included; see [`FamilyOptions::values`].
    ///
    /// ```
    /// let all = perigee::Options::new().values();
    /// let cache = all.iter().find(|o| o.name == "block_cache_bytes").expect("a known option");
    /// assert_eq!(cache.value, "\"1 TiB\"");
    /// ```
    pub fn values(&self) -> Vec<OptionValue> {
        option_values(DATABASE, self, &Options::new())
    }
}

impl FamilyOptions {
    /// Returns the options of a column family with their values as written in an options file.
    pub fn values(&self) -> Vec<OptionValue> {
        option_values(FAMILY, self, &FamilyOptions::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Returns the lines of a source file before its tests, without comments.
    fn code_lines(file: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
        let lines = code.lines().map(str::trim).filter(|l| !l.starts_with("//"));
        lines.map(str::to_owned).collect()
    }

    /// Returns the files that define the option `name` as a field or mention it as text, once for
    /// each line.
    fn files_with_option(name: &str) -> Vec<&'static str> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let (field, text) = (format!("{name}:"), format!("\"{name}\""));
        let mut found = Vec::new();
        for file in [
            "engine/src/settings/mod.rs",
            "engine/src/settings/value_limits.rs",
            "engine/src/settings/database_options.rs",
            "engine/src/settings/family_options.rs",
            "perigee/src/options/mod.rs",
            "perigee/src/options/syntax.rs",
            "perigee/src/options/table.rs",
            "perigee/src/options/file.rs",
        ] {
            let lines = code_lines(&root.join(file));
            let defines = |line: &str| {
                line.strip_prefix("pub ").unwrap_or(line).starts_with(&field)
                    || line.contains(&text)
            };
            found.extend(lines.iter().filter(|l| defines(l)).map(|_| file));
        }
        found
    }

    #[test]
    fn each_option_is_defined_in_one_place() {
        fn names_of<T>(rows: &[Row<T>]) -> Vec<&'static str> {
            rows.iter().map(|row| row.name).collect()
        }
        let tables = ["database_options", "family_options"]
            .map(|table| format!("engine/src/settings/{table}.rs"));
        for (own, other, names) in [
            (&tables[0], &tables[1], names_of(DATABASE)),
            (&tables[1], &tables[0], names_of(FAMILY)),
        ] {
            for name in names {
                let mut files = files_with_option(name);
                // An option of the same name may be in the other table.
                files.retain(|file| file != other);
                assert_eq!(files, [own], "{name}");
            }
        }
        assert_eq!((DATABASE.len(), FAMILY.len()), (20, 11));
    }

    #[test]
    fn every_option_reaches_the_engine_and_returns() {
        let text = "\
            create_if_missing = false\nerror_if_exists = true\nread_only = true\n\
            salvage_readonly = true\ndurability = \"interval 3 ms\"\n\
            isolation = \"serializable\"\nmemory_budget = \"1 MiB\"\n\
            block_cache_bytes = \"2 MiB\"\nrow_cache_bytes = \"1 MiB\"\nmax_open_files = 7\nmin_free_space = \"3 MiB\"\n\
            verify_outputs = false\nbackground_rate = \"4 MiB\"\nspace_amplification = 200\n\
            scrub_interval = \"1 h\"\nlog_retention = \"5 MiB\"\nhistory = \"2 min\"\n\
            latency_stats = false\nlog_file_bytes = \"6 MiB\"\nlog_files_kept = 9\n";
        let family = "\
            comparator = \"reverse\"\nmemtable_bytes = \"1 MiB\"\nvalue_threshold = \"1 KiB\"\n\
            block_bytes = \"2 KiB\"\ncompression = \"snappy\"\nfilter_bits = 12\n\
            target_file_bytes = \"3 MiB\"\nlevel1_bytes = \"4 MiB\"\nlevel_ratio = 5\n\
            isolation = \"snapshot\"\nmerge_operator = \"counter\"\n";
        let text = format!("[database]\n{text}[family.f]\n{family}");
        let options = Options::from_toml(&text).unwrap();
        let returned = options.to_settings();
        let families = returned.families.iter();
        let families =
            families.map(|(name, s)| (name.clone(), FamilyOptions::from_settings(s))).collect();
        let returned = Options::from_settings(&returned, options.env.clone(), families);
        assert_eq!(returned.values(), options.values());
        assert_eq!(returned.families, options.families);
        let all = returned.values().into_iter().chain(returned.families["f"].values());
        for option in all {
            assert_ne!(option.value, option.default, "{} did not return", option.name);
        }
    }

    #[test]
    fn option_values_parse_back() {
        let scalar = |text: &str| match text.strip_prefix('"') {
            Some(quoted) => Scalar::Text(quoted.trim_end_matches('"').into()),
            None => text.parse().map_or_else(|_| Scalar::Flag(text == "true"), Scalar::Integer),
        };
        let mut all = FamilyOptions::new();
        for compression in ["none", "lz4", "lz4-fast 8", "snappy", "zstd -3"] {
            all.compression = compression.parse().unwrap();
            for row in FAMILY {
                let mut copy = all.clone();
                (row.set)(&mut copy, &scalar(&(row.get)(&all))).unwrap();
                assert_eq!(copy, all, "{}", row.name);
            }
        }
    }

    #[test]
    fn enums_of_another_type_are_refused() {
        let set = |name, value| {
            let row = DATABASE.iter().find(|row| row.name == name).unwrap();
            (row.set)(&mut Options::new(), &value)
        };
        assert_eq!(
            set("durability", Scalar::Integer(5)).unwrap_err(),
            "5 is not one of \"full\", \"interval 100 ms\", \"none\""
        );
        assert!(set("history", Scalar::Integer(0)).is_err());
        assert!(set("isolation", Scalar::Flag(true)).unwrap_err().starts_with("true is not"));
        let message = set("isolation", Scalar::Text("weak".into())).unwrap_err();
        assert!(message.starts_with("\"weak\" is not one of \"read un"), "{message}");
    }
}
