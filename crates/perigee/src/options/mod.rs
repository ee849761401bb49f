//! Options of databases and column families. Plain data. Options with a text form are defined in
//! the tables of the engine, `database_options.rs` and `family_options.rs`; here are the options
//! that are not plain values, and the conversions to the settings of the engine.

pub mod limits;
pub mod write_options;
pub mod callbacks;
pub mod syntax;
pub mod table;
pub mod file;
#[cfg(feature = "toml")]
pub mod toml_reader;
#[cfg(feature = "serde")]
pub mod serialization;

use perigee_engine::callbacks::{
    CompactionFilters, KeyComparator, LogListener, MergeOperators, MergeRule,
};
use perigee_engine::{
    Compression, Durability, FamilySettings, HistoryPolicy, Isolation, Settings,
    bits_per_key_for_rate, env::Env, false_positive_rate,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Defines a struct with the options of a table and the given fields, which are not in the table;
/// its defaults and builder methods; and the conversion of the options of the table to the settings
/// of the engine.
macro_rules! define_options {
    (
        $(#[$meta:meta])*
        pub struct $options:ident as $settings:ident {
            $($(#[$field_doc:meta])* $vis:vis $field:ident: $field_type:ty = $value:expr,)*
        }
        $(
            $(#[$doc:meta])*
            $name:ident: $type:ty = $default:expr,
            syntax $syntax:ident, $(limits $check:ident($($limit:expr)?),)?
            tradeoff $tradeoff:literal $(, $(#[$set_doc:meta])* set($parameter:ident))?;
        )*
    ) => {
        $(#[$meta])*
        pub struct $options {
            $($(#[$doc])* pub $name: $type,)*
            $($(#[$field_doc])* $vis $field: $field_type,)*
        }

        impl $options {
            /// Returns the default options.
            pub fn new() -> Self {
                $options { $($name: $default,)* $($field: $value,)* }
            }
            $($(
                #[doc = concat!("Sets [`", stringify!($options), "::", stringify!($name), "`].")]
                ///
                $(#[$set_doc])*
                #[must_use]
                pub fn $name(mut self, $parameter: $type) -> Self {
                    self.$name = $parameter;
                    self
                }
            )?)*
            fn copy_to(&self, settings: &mut $settings) {
                $(settings.$name = Clone::clone(&self.$name);)*
            }
            fn copy_from(&mut self, settings: &$settings) {
                $(self.$name = Clone::clone(&settings.$name);)*
            }
        }

        impl Default for $options {
            fn default() -> Self {
                Self::new()
            }
        }
    };
}

perigee_engine::database_options! { define_options

/// Options of a database, given at each open. Except for [`Options::default_family`] and
/// [`Options::families`] they are not stored. The defaults suit most databases; `docs/OPTIONS.md`
/// lists all options with their trade-offs.
///
/// ```
/// use perigee::{Durability, FamilyOptions, Options};
/// use std::time::Duration;
///
/// let options = Options::new()
///     .durability(Durability::Interval(Duration::from_millis(100)))
///     .block_cache_bytes(256 << 20)
///     .default_family(FamilyOptions::new().memtable_bytes(16 << 20));
/// assert!(options.create_if_missing);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options as Settings {
    /// Options of the column family `default`. `None`: a new database gets the default options, an
    /// existing one keeps the stored options; `Some` replaces them.
    pub default_family: Option<FamilyOptions> = None,
    /// Options of other column families, by name. At open a column family that does not exist is
    /// created; one that exists gets these options if they differ, as reported in
    /// `stats().recovery.changed_options`. The open fails if the comparator differs, or if a merge
    /// operator is replaced or removed. Column families that are not listed keep their stored
    /// options.
    pub families: BTreeMap<String, FamilyOptions> = BTreeMap::new(),
    /// The user-defined comparators that column families may use. An open fails if a column family
    /// uses one that is not listed.
    pub comparators: Vec<KeyComparator> = Vec::new(),
    /// Set by [`Options::register_merge_operator`].
    pub(crate) merge_operators: MergeOperators = MergeOperators::default(),
    /// Set by [`Options::compaction_filter`].
    pub(crate) compaction_filters: CompactionFilters = CompactionFilters::default(),
    pub(crate) listener: Option<LogListener> = None,
    /// The environment to run in (default: the operating system).
    pub env: Env = Env::real(),
}
}

impl Options {
    /// Returns the default options with the environment `env` (see [`crate::env`]).
    pub fn in_env(env: Env) -> Self {
        Options { env, ..Self::new() }
    }
    /// Sets [`Options::default_family`].
    #[must_use]
    pub fn default_family(mut self, options: FamilyOptions) -> Self {
        self.default_family = Some(options);
        self
    }
    /// Adds a comparator to [`Options::comparators`] (see [`KeyComparator::register`]).
    ///
    /// ```
    /// # use perigee::{Db, FamilyOptions, KeyComparator, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
    /// let short_first = |a: &[u8], b: &[u8]| a.len().cmp(&b.len()).then_with(|| a.cmp(b));
    /// // Only identical keys are equal, so a key is its own canonical form.
    /// let same = |key: &[u8]| key.to_vec();
    /// let comparator = KeyComparator::register_canonical("short-first", short_first, same)?;
    /// let db = Db::open("/doc", Options::in_env(env.clone()).register_comparator(comparator))?;
    /// let words = db.create_family("words", FamilyOptions::new().comparator(comparator))?;
    /// for word in ["neap", "ebb", "slack"] {
    ///     words.put(word, "")?;
    /// }
    /// let first = words.iter()?.next().expect("there are words")?;
    /// assert_eq!(&first.0[..], b"ebb");
    /// db.close()?;
    /// assert!(Db::open("/doc", Options::in_env(env)).is_err(), "not registered");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn register_comparator(mut self, comparator: KeyComparator) -> Self {
        self.comparators.push(comparator);
        self
    }
    /// Adds options of a column family to [`Options::families`].
    #[must_use]
    pub fn family(mut self, name: impl Into<String>, options: FamilyOptions) -> Self {
        self.families.insert(name.into(), options);
        self
    }
    /// Returns the engine's settings for these options.
    pub(crate) fn to_settings(&self) -> Settings {
        let default = self.default_family.as_ref().or(self.families.get("default"));
        let named = self.families.iter().filter(|(name, _)| *name != "default");
        let mut settings = Settings {
            default_family: default.map(FamilyOptions::to_settings),
            families: named.map(|(name, o)| (name.clone(), o.to_settings())).collect(),
            comparators: self.comparators.clone(),
            merge_operators: self.merge_operators.clone(),
            compaction_filters: self.compaction_filters.clone(),
            listener: self.listener.clone(),
            ..Settings::default()
        };
        self.copy_to(&mut settings);
        settings
    }
    /// Returns the options of the engine's settings, with these options of column families.
    pub(crate) fn from_settings(
        settings: &Settings,
        env: Env,
        mut families: BTreeMap<String, FamilyOptions>,
    ) -> Options {
        let mut options = Options {
            default_family: families.remove("default"),
            families,
            comparators: settings.comparators.clone(),
            merge_operators: settings.merge_operators.clone(),
            compaction_filters: settings.compaction_filters.clone(),
            listener: settings.listener.clone(),
            ..Options::in_env(env)
        };
        options.copy_from(settings);
        options
    }
}

perigee_engine::family_options! { define_options

/// Options of one column family, stored with it. All but the comparator and an existing merge
/// operator can be changed while the database is open
/// ([`Family::set_options`](crate::Family::set_options)). See also `docs/OPTIONS.md`.
///
/// ```
/// # use perigee::{Compression, Db, FamilyOptions, Options};
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// let options = FamilyOptions::new().compression(Compression::Zstd(3)).filter_rate(0.001);
/// let archive = db.create_family("archive", options)?;
/// assert_eq!(archive.options().filter_bits, 17);
/// // At any time: the new options apply to new files, and old files stay readable.
/// archive.set_options(archive.options().compression(Compression::Lz4).block_bytes(4096))?;
/// assert_eq!(archive.options().block_bytes, 4096);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FamilyOptions as FamilySettings {}
}

impl FamilyOptions {
    /// Sets [`FamilyOptions::filter_bits`] to the smallest number with at most this rate of false
    /// positives: 0.01 takes 11 bits per key, 0.001 takes 17; 1.0 disables the filter.
    #[must_use]
    pub fn filter_rate(mut self, rate: f64) -> Self {
        self.filter_bits = bits_per_key_for_rate(rate, crate::limits::FILTER_BITS_MAX);
        self
    }
    /// Returns the rate of false positives of the filter: the share of gets of missing keys that
    /// read a block unnecessarily.
    pub fn false_positive_rate(&self) -> f64 {
        false_positive_rate(self.filter_bits)
    }
    /// Sets [`FamilyOptions::merge_operator`].
    #[must_use]
    pub fn merge_operator(mut self, rule: MergeRule) -> Self {
        self.merge_operator = Some(rule);
        self
    }
    /// Returns the engine's settings for these options.
    pub(crate) fn to_settings(&self) -> FamilySettings {
        let mut settings = FamilySettings::default();
        self.copy_to(&mut settings);
        settings
    }
    /// Returns the options of the engine's settings.
    pub(crate) fn from_settings(settings: &FamilySettings) -> FamilyOptions {
        let mut options = FamilyOptions::new();
        options.copy_from(settings);
        options
    }
}
