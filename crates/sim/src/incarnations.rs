//! Families that are created, dropped, renamed, cleared and cloned: which of them there may be, and where the contents of
//! each come from. While a change is under way, or when its answer was lost, more than one state of affairs is possible.
//! Knows nothing of the engine.

use std::collections::BTreeMap;

/// One possible state of affairs: the families by name, each with its incarnation.
pub type Affairs = BTreeMap<String, u32>;

/// Whether a family of that name comes and goes.
pub fn changes(name: &str) -> bool {
    name.starts_with('x')
}

/// A change of the families that come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
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
pub struct Origin {
    /// The incarnation whose contents it began with.
    pub parent: Option<u32>,
    /// The first writer had begun so many attempts.
    pub after: usize,
}

/// Everything known about them. Incarnation 0 is that of the families that stay.
#[derive(Clone, Debug)]
pub struct Incarnations {
    possible: Vec<Affairs>,
    origins: BTreeMap<u32, Origin>,
}

impl Default for Incarnations {
    fn default() -> Self {
        Incarnations { possible: vec![Affairs::new()], origins: BTreeMap::new() }
    }
}

impl Incarnations {
    /// What the running database holds: the first possibility.
    pub fn running(&self) -> &Affairs {
        &self.possible[0]
    }
    /// All possibilities.
    pub fn possible(&self) -> &[Affairs] {
        &self.possible
    }
    /// Where an incarnation began.
    pub fn origin(&self, incarnation: u32) -> Option<Origin> {
        self.origins.get(&incarnation).copied()
    }

    /// A change begins: from now on its outcome is possible, too. The first writer has begun `after` attempts.
    pub fn begin(&mut self, change: &Change, after: usize) -> Affairs {
        let mut to = self.running().clone();
        let parent = match change {
            Change::Create(_) | Change::Clear(_) => None,
            Change::Drop(name) => {
                to.remove(name);
                self.possible.push(to.clone());
                return to;
            }
            Change::Clone(from, _) => to.get(from).copied(),
            Change::Rename(from, _) => to.remove(from),
        };
        let (Change::Create(name) | Change::Clear(name) | Change::Clone(_, name) | Change::Rename(_, name)) =
            change
        else {
            return to;
        };
        let incarnation = self.origins.len() as u32 + 1;
        self.origins.insert(incarnation, Origin { parent, after });
        to.insert(name.clone(), incarnation);
        self.possible.push(to.clone());
        to
    }

    /// Now it is certain.
    pub fn settle(&mut self, affairs: Affairs) {
        self.possible = vec![affairs];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_possible_until_it_is_certain() {
        let mut all = Incarnations::default();
        let made = all.begin(&Change::Create("x".into()), 3);
        assert_eq!((all.possible().len(), all.running().len()), (2, 0));
        all.settle(made);
        let cloned = all.begin(&Change::Clone("x".into(), "x2".into()), 5);
        assert_eq!(all.origin(2), Some(Origin { parent: Some(1), after: 5 }));
        all.settle(cloned);
        let gone = all.begin(&Change::Drop("x".into()), 6);
        assert_eq!(gone, Affairs::from([("x2".into(), 2)]));
        all.settle(gone);
        let renamed = all.begin(&Change::Rename("x2".into(), "x".into()), 7);
        assert_eq!((renamed, all.origin(3).unwrap().parent), (Affairs::from([("x".into(), 3)]), Some(2)));
    }
}
