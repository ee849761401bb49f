//! What every door gives: families with what became of their settings, and their entries one after
//! the other.

use crate::failure::Result;
use perigee::FamilyOptions;

/// An entry of a source.
#[derive(Clone, Copy, Debug)]
pub struct SourceEntry<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// When it expires, in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
}

/// A setting of a source, and what became of it.
#[derive(Clone, Debug)]
pub struct MappedSetting {
    /// The source's name of it.
    pub name: &'static str,
    /// Its value there.
    pub value: String,
    /// Ours; `None`: it has no counterpart.
    pub mapped_to: Option<String>,
}

impl MappedSetting {
    /// One that has a counterpart.
    pub fn mapped(
        name: &'static str,
        value: impl ToString,
        became: impl ToString,
    ) -> MappedSetting {
        MappedSetting { name, value: value.to_string(), mapped_to: Some(became.to_string()) }
    }
    /// One that has none.
    pub fn unmapped(name: &'static str, value: impl ToString) -> MappedSetting {
        MappedSetting { name, value: value.to_string(), mapped_to: None }
    }
}

/// A family of a source.
#[derive(Clone, Debug)]
pub struct SourceFamily {
    /// Its name, which stays.
    pub name: String,
    /// Its settings, as far as they have counterparts.
    pub options: FamilyOptions,
    /// All of them, for the report.
    pub settings: Vec<MappedSetting>,
    /// Settings as our C library stores them, if the source has them: for programs that go on with
    /// that.
    pub c_library_settings: Option<String>,
    /// About how many entries it has, if that is known.
    pub estimated_entries: Option<u64>,
}

/// What looks at an entry.
pub type EntryVisitor<'v> = dyn FnMut(SourceEntry<'_>) -> Result<()> + 'v;

/// Which look at a family it is. The second is to find what the first may have missed: a door takes
/// another way if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPass {
    /// To load.
    First,
    /// To compare.
    Second,
}

/// A database of another engine, open.
pub trait ForeignSource {
    /// What it is, for the report.
    fn description(&self) -> String;
    /// Its families.
    fn families(&self) -> &[SourceFamily];
    /// Shows every entry of a family, by its number in [`Source::families`]; an error of the
    /// visitor ends it.
    fn for_each_entry(
        &mut self,
        family: usize,
        look: ReadPass,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<()>;
}
