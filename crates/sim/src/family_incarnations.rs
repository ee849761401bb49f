//! Column families that are created, dropped, renamed, cleared and cloned: which of them may exist,
//! and where the contents of each come from. While a change is running, or after its result was
//! lost, more than one set of column families is possible. Uses nothing of the engine.

use std::collections::BTreeMap;

/// One possible set of column families: the incarnation of each name.
pub type FamilySet = BTreeMap<String, u32>;

/// Returns true if the column family of that name is created and dropped during a run.
pub fn is_changing_family(name: &str) -> bool {
    name.starts_with('x')
}

/// A DDL operation on these column families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FamilyDdl {
    /// Creates an empty column family.
    Create(String),
    /// Drops a column family.
    Drop(String),
    /// Empties a column family.
    Clear(String),
    /// Creates a column family (second name) with the contents of another (first name).
    Clone(String, String),
    /// Renames a column family.
    Rename(String, String),
}

/// Origin of an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncarnationOrigin {
    /// Incarnation whose contents it started with.
    pub parent: Option<u32>,
    /// Number of attempts that the first writer had begun by then.
    pub after: usize,
}

/// All incarnations and the possible sets of column families. Incarnation 0 stands for the
/// permanent ones.
#[derive(Clone, Debug)]
pub struct FamilyIncarnations {
    candidates: Vec<FamilySet>,
    origins: BTreeMap<u32, IncarnationOrigin>,
}

impl Default for FamilyIncarnations {
    fn default() -> Self {
        FamilyIncarnations { candidates: vec![FamilySet::new()], origins: BTreeMap::new() }
    }
}

impl FamilyIncarnations {
    /// Returns the set in the running database: the first candidate.
    pub fn current(&self) -> &FamilySet {
        &self.candidates[0]
    }
    /// Returns all possible sets.
    pub fn candidates(&self) -> &[FamilySet] {
        &self.candidates
    }
    /// Returns the origin of an incarnation.
    pub fn origin(&self, incarnation: u32) -> Option<IncarnationOrigin> {
        self.origins.get(&incarnation).copied()
    }

    /// Records the start of a DDL operation, whose result is possible from now on, and returns that
    /// result. The first writer has begun `after` attempts.
    pub fn begin_change(&mut self, change: &FamilyDdl, after: usize) -> FamilySet {
        let mut to = self.current().clone();
        let parent = match change {
            FamilyDdl::Create(_) | FamilyDdl::Clear(_) => None,
            FamilyDdl::Drop(name) => {
                to.remove(name);
                self.candidates.push(to.clone());
                return to;
            }
            FamilyDdl::Clone(from, _) => to.get(from).copied(),
            FamilyDdl::Rename(from, _) => to.remove(from),
        };
        let (FamilyDdl::Create(name)
        | FamilyDdl::Clear(name)
        | FamilyDdl::Clone(_, name)
        | FamilyDdl::Rename(_, name)) = change
        else {
            return to;
        };
        let incarnation = self.origins.len() as u32 + 1;
        self.origins.insert(incarnation, IncarnationOrigin { parent, after });
        to.insert(name.clone(), incarnation);
        self.candidates.push(to.clone());
        to
    }

    /// Records that only this set is possible now.
    pub fn resolve(&mut self, affairs: FamilySet) {
        self.candidates = vec![affairs];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_has_two_outcomes_until_resolved() {
        let mut all = FamilyIncarnations::default();
        let made = all.begin_change(&FamilyDdl::Create("x".into()), 3);
        assert_eq!((all.candidates().len(), all.current().len()), (2, 0));
        all.resolve(made);
        let cloned = all.begin_change(&FamilyDdl::Clone("x".into(), "x2".into()), 5);
        assert_eq!(all.origin(2), Some(IncarnationOrigin { parent: Some(1), after: 5 }));
        all.resolve(cloned);
        let gone = all.begin_change(&FamilyDdl::Drop("x".into()), 6);
        assert_eq!(gone, FamilySet::from([("x2".into(), 2)]));
        all.resolve(gone);
        let renamed = all.begin_change(&FamilyDdl::Rename("x2".into(), "x".into()), 7);
        assert_eq!(
            (renamed, all.origin(3).unwrap().parent),
            (FamilySet::from([("x".into(), 3)]), Some(2))
        );
    }
}
