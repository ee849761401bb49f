//! Which families have which compaction filter: what the user registered, compared with what the
//! manifest says.

use perigee_base::{Error, Result, limits};
use perigee_tree::rewrite::CompactionFilter;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A filter, shared.
pub type SharedCompactionFilter = Arc<dyn CompactionFilter>;

/// Filters by the name of the family; `None`: whatever filter the family had is given up.
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
    /// Registers a filter for a family, or that it gives its filter up.
    pub fn register(&mut self, family: &str, filter: Option<SharedCompactionFilter>) {
        self.0.insert(family.to_owned(), filter);
    }
    /// The filter of a family.
    pub fn filter_of_family(&self, family: &str) -> Option<&SharedCompactionFilter> {
        self.0.get(family)?.as_ref()
    }
    /// The name to store for a family whose stored name is `stored` (empty: none).
    ///
    /// # Errors
    /// `InvalidArgument` if the family has a filter that is not registered, or another one is.
    pub fn check_filter_name(&self, family: &str, stored: &str) -> Result<String> {
        match self.0.get(family) {
            None if stored.is_empty() => Ok(String::new()),
            None => Err(Error::invalid(format!(
                "the family {family:?} has the compaction filter {stored:?}: register it with \
                 Options::compaction_filter, or give it up with Options::without_filter"
            ))),
            Some(None) => Ok(String::new()),
            Some(Some(filter)) => {
                let name = filter.name();
                if name.is_empty() || name.len() > limits::FAMILY_NAME_BYTES_MAX {
                    return Err(Error::invalid("a compaction filter's name has 1 to 255 bytes")
                        .expected("1 to 255 bytes", name.len()));
                }
                if !stored.is_empty() && stored != name {
                    return Err(Error::invalid(format!(
                        "the family {family:?} has another compaction filter: open it once with \
                         Options::without_filter to change filters"
                    ))
                    .expected(stored, name));
                }
                Ok(name.to_owned())
            }
        }
    }
}
