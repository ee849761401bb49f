//! Families that are created, dropped, renamed, cleared and cloned: which of them there may be, and
//! where the contents of each come from. While a change is under way, or when its answer was lost,
//! more than one state of affairs is possible. Knows nothing of the engine.

use std::collections::BTreeMap;

/// One possible state of affairs: the families by name, each with its incarnation.
pub type FamilySet = BTreeMap<String, u32>;

/// Whether a family of that name comes and goes.
pub fn is_changing_family(name: &str) -> bool {
    name.starts_with('x')
}

/// A change of the families that come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FamilyDdl {
    /// A new, empty family.
    Create(String),
    /// It goes.
    Drop(String),
    /// It stays, empty.
    Clear(String),
    /// Another begins with the contents of the first.
    Clone(String, String),
    /// It has another name.
    Rename(String, String),
}

/// Where an incarnation began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncarnationOrigin {
    /// The incarnation whose contents it began with.
    pub parent: Option<u32>,
    /// The first writer had begun so many attempts.
    pub after: usize,
}

/// Everything known about them. Incarnation 0 is that of the families that stay.
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
    /// What the running database holds: the first possibility.
    pub fn current(&self) -> &FamilySet {
        &self.candidates[0]
    }
    /// All possibilities.
    pub fn candidates(&self) -> &[FamilySet] {
        &self.candidates
    }
    /// Where an incarnation began.
    pub fn origin(&self, incarnation: u32) -> Option<IncarnationOrigin> {
        self.origins.get(&incarnation).copied()
    }

    /// A change begins: from now on its outcome is possible, too. The first writer has begun
    /// `after` attempts.
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

    /// Now it is certain.
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
