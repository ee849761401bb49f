//! The compaction filters that the user registered for column families, checked against the names
//! stored in the manifest.

use perigee_base::{Error, Result, limits};
use perigee_tree::rewrite::CompactionFilter;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A shared compaction filter.
pub type SharedCompactionFilter = Arc<dyn CompactionFilter>;

/// Filters by column family name; `None`: the column family is to be opened without the filter it
/// had.
#[derive(Clone, Default)]
pub struct CompactionFilters(BTreeMap<String, Option<SharedCompactionFilter>>);

impl std::fmt::Debug for CompactionFilters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = |(family, filter): (&String, &Option<SharedCompactionFilter>)| {
            (family.clone(), filter.as_ref().map(|f| f.name().to_owned()))
        };
        f.debug_map().entries(self.0.iter().map(named)).finish()
    }
}

impl CompactionFilters {
    /// Registers a filter for a column family, or (`None`) that its filter is dropped.
    pub fn register(&mut self, family: &str, filter: Option<SharedCompactionFilter>) {
        self.0.insert(family.to_owned(), filter);
    }
    /// Returns the filter registered for a column family.
    pub fn filter_of_family(&self, family: &str) -> Option<&SharedCompactionFilter> {
        self.0.get(family)?.as_ref()
    }
    /// Returns the filter name to store for a column family whose stored name is `stored` (empty:
    /// none).
    ///
    /// # Errors
    /// `InvalidArgument` if the column family has a filter but none, or a different one, is
    /// registered.
    pub fn check_filter_name(&self, family: &str, stored: &str) -> Result<String> {
        match self.0.get(family) {
            None if stored.is_empty() => Ok(String::new()),
            None => Err(Error::invalid(format!(
                "the column family {family:?} has the compaction filter {stored:?}: register it \
                 with Options::compaction_filter, or drop it with Options::without_filter"
            ))),
            Some(None) => Ok(String::new()),
            Some(Some(filter)) => {
                let name = filter.name();
                if name.is_empty() || name.len() > limits::FAMILY_NAME_BYTES_MAX {
                    return Err(Error::invalid(
                        "the name of a compaction filter must have 1 to 255 bytes",
                    )
                    .expected("1 to 255 bytes", name.len()));
                }
                if !stored.is_empty() && stored != name {
                    return Err(Error::invalid(format!(
                        "the column family {family:?} has another compaction filter: open it \
                         once with Options::without_filter to change filters"
                    ))
                    .expected(stored, name));
                }
                Ok(name.to_owned())
            }
        }
    }
}
