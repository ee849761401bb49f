//! Checks the invariants of a version, at every installation.

use super::Version;
use perigee_base::{Error, Result};
use std::cmp::Ordering::{Greater, Less};
use std::collections::HashSet;

/// Returns `Corruption` with the name of the table if an invariant does not hold.
pub(super) fn check_invariants(v: &Version) -> Result<()> {
    let mut seen = HashSet::new();
    for (level, run, t) in v.tables() {
        let s = &t.meta.summary;
        let name = format!("table {} (level {level}, run {})", t.meta.id, run.id);
        if !seen.insert(t.meta.id) {
            return Err(Error::corruption(format!("{name} is in the tree twice")));
        }
        let empty = s.entries == 0 && s.ranges.is_none();
        if empty || s.begin(v.comparator).cmp(v.comparator, s.end(v.comparator)) != Less {
            return Err(Error::corruption(format!("{name} has no valid key range")));
        }
        if let Some((missing, _)) = s.vlogs.iter().find(|(id, _)| !v.vlogs.contains_key(id)) {
            return Err(Error::corruption(format!(
                "{name} references value log {missing}, which does not exist"
            )));
        }
    }
    for (level, runs) in v.levels.iter().enumerate() {
        if level > 0 && runs.len() > 1 {
            return Err(Error::corruption(format!(
                "level {level} holds {} runs instead of one",
                runs.len()
            )));
        }
        for run in runs {
            for pair in run.tables.windows(2) {
                let (a, b) = (&pair[0].meta.summary, &pair[1].meta.summary);
                if a.end(v.comparator).cmp(v.comparator, b.begin(v.comparator)) == Greater {
                    return Err(Error::corruption(format!(
                        "tables {} and {} of level {level} overlap",
                        pair[0].meta.id, pair[1].meta.id
                    )));
                }
            }
        }
    }
    Ok(())
}
