//! What every door gives: families with what became of their settings, and their entries one after the other.

use crate::failure::Result;
use perigee::FamilyOptions;

/// An entry of a source.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// When it expires, in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
}

/// A setting of a source, and what became of it.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The source's name of it.
    pub name: &'static str,
    /// Its value there.
    pub value: String,
    /// Ours; `None`: it has no counterpart.
    pub became: Option<String>,
}

impl Setting {
    /// One that has a counterpart.
    pub fn kept(name: &'static str, value: impl ToString, became: impl ToString) -> Setting {
        Setting { name, value: value.to_string(), became: Some(became.to_string()) }
    }
    /// One that has none.
    pub fn none(name: &'static str, value: impl ToString) -> Setting {
        Setting { name, value: value.to_string(), became: None }
    }
}

/// A family of a source.
#[derive(Clone, Debug)]
pub struct Family {
    /// Its name, which stays.
    pub name: String,
    /// Its settings, as far as they have counterparts.
    pub options: FamilyOptions,
    /// All of them, for the report.
    pub settings: Vec<Setting>,
    /// Settings as our C library stores them, if the source has them: for programs that go on with that.
    pub for_c: Option<String>,
    /// About how many entries it has, if that is known.
    pub estimate: Option<u64>,
}

/// What looks at an entry.
pub type Visit<'v> = dyn FnMut(Entry<'_>) -> Result<()> + 'v;

/// Which look at a family it is. The second is to find what the first may have missed: a door takes another way if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// To load.
    First,
    /// To compare.
    Second,
}

/// A database of another engine, open.
pub trait Source {
    /// What it is, for the report.
    fn told(&self) -> String;
    /// Its families.
    fn families(&self) -> &[Family];
    /// Shows every entry of a family, by its number in [`Source::families`]; an error of the visitor ends it.
    fn walk(&mut self, family: usize, look: Look, visit: &mut Visit<'_>) -> Result<()>;
}
