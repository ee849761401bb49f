//! The interface to a database of another engine: its column families with their mapped settings,
//! and their entries.

use crate::failure::Result;
use perigee::FamilyOptions;

/// An entry of a source.
#[derive(Clone, Copy, Debug)]
pub struct SourceEntry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Expiry time in milliseconds since the Unix epoch; `None` if the entry does not expire.
    pub expires_at_ms: Option<u64>,
}

/// A setting of a source and its counterpart in Perigee.
#[derive(Clone, Debug)]
pub struct MappedSetting {
    /// Name of the setting in the source engine.
    pub name: &'static str,
    /// Value in the source.
    pub value: String,
    /// The counterpart with its value; `None` if there is none.
    pub mapped_to: Option<String>,
}

impl MappedSetting {
    /// Creates a setting that has a counterpart.
    pub fn mapped(
        name: &'static str,
        value: impl ToString,
        mapped_to: impl ToString,
    ) -> MappedSetting {
        MappedSetting { name, value: value.to_string(), mapped_to: Some(mapped_to.to_string()) }
    }
    /// Creates a setting that has no counterpart.
    pub fn unmapped(name: &'static str, value: impl ToString) -> MappedSetting {
        MappedSetting { name, value: value.to_string(), mapped_to: None }
    }
}

/// A column family of a source.
#[derive(Clone, Debug)]
pub struct SourceFamily {
    /// Its name, also in the target.
    pub name: String,
    /// Options of the target's column family: the settings that have counterparts.
    pub options: FamilyOptions,
    /// All settings of the source, for the report.
    pub settings: Vec<MappedSetting>,
    /// The settings as Perigee's C library stores them, if it has them, for programs that use the C
    /// library after the import.
    pub c_library_settings: Option<String>,
    /// Approximate number of entries, if known.
    pub estimated_entries: Option<u64>,
}

/// Callback that receives each entry.
pub type EntryVisitor<'v> = dyn FnMut(SourceEntry<'_>) -> Result<()> + 'v;

/// Number of the pass over a column family. The second pass detects entries that the first one
/// missed, so an engine reads in a different way if it can, for example backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPass {
    /// Loads the entries.
    First,
    /// Compares the entries.
    Second,
}

/// An open database of another engine.
pub trait ForeignSource {
    /// Returns a description of the database for the report.
    fn description(&self) -> String;
    /// Returns the column families.
    fn families(&self) -> &[SourceFamily];
    /// Passes every entry of a column family, given by its index in [`ForeignSource::families`], to
    /// `visit`. Stops at an error of `visit` and returns it.
    fn for_each_entry(
        &mut self,
        family: usize,
        pass: ReadPass,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<()>;
}
