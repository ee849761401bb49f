//! Implements `Serialize` and `Deserialize` for options (feature `serde`). Options of a database
//! and of a column family have the structure of an options file: a map from names to numbers, flags
//! and texts such as `64 MiB`. Options that are missing have their defaults.

use crate::options::{FamilyOptions, Options};
use crate::options::{file, toml_reader};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

impl Serialize for Options {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let parsed: Result<toml::Table, _> = self.to_toml().parse();
        parsed.map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Options {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Options, D::Error> {
        let table = toml::Table::deserialize(deserializer)?;
        toml_reader::parse_options(&table).map_err(|e| D::Error::custom(e.message()))
    }
}

impl Serialize for FamilyOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let parsed: Result<toml::Table, _> = file::family_to_toml(self).parse();
        parsed.map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FamilyOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FamilyOptions, D::Error> {
        let table = toml::Table::deserialize(deserializer)?;
        toml_reader::parse_family("column family", &table)
            .map_err(|e| D::Error::custom(e.message()))
    }
}
