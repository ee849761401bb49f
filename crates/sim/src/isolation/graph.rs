//! Dependencies between transactions as sets of bits, and what can be reached over them.

/// For each transaction the transactions that depend on it.
#[derive(Clone, Debug)]
pub struct DependencyGraph {
    n: usize,
    rows: Vec<u64>,
}

impl DependencyGraph {
    /// Without a dependency.
    pub fn new(n: usize) -> DependencyGraph {
        DependencyGraph { n, rows: vec![0; n * n.div_ceil(64)] }
    }
    fn width(&self) -> usize {
        self.n.div_ceil(64)
    }
    /// Adds one; none of a transaction on itself.
    pub fn add_edge(&mut self, from: usize, to: usize) {
        if from != to {
            let at = from * self.width() + to / 64;
            self.rows[at] |= 1 << (to % 64);
        }
    }
    /// Whether there is one.
    pub fn has_edge(&self, from: usize, to: usize) -> bool {
        self.rows[from * self.width() + to / 64] >> (to % 64) & 1 == 1
    }
    /// Both together.
    #[must_use]
    pub fn union(&self, other: &DependencyGraph) -> DependencyGraph {
        DependencyGraph {
            n: self.n,
            rows: self.rows.iter().zip(&other.rows).map(|(a, b)| a | b).collect(),
        }
    }
    /// Only those of some transactions.
    #[must_use]
    pub fn edges_from(&self, of: impl Fn(usize) -> bool) -> DependencyGraph {
        let mut some = self.clone();
        let w = self.width();
        (0..self.n).filter(|i| !of(*i)).for_each(|i| some.rows[i * w..(i + 1) * w].fill(0));
        some
    }
    /// One step here, then one there.
    #[must_use]
    pub fn compose(&self, other: &DependencyGraph) -> DependencyGraph {
        let mut both = DependencyGraph::new(self.n);
        let w = self.width();
        for (from, via) in self.edges() {
            let row = &other.rows[via * w..(via + 1) * w];
            both.rows[from * w..(from + 1) * w].iter_mut().zip(row).for_each(|(a, b)| *a |= b);
        }
        both
    }
    /// What can be reached in any number of steps.
    #[must_use]
    pub fn transitive_closure(mut self) -> DependencyGraph {
        let w = self.width();
        for via in 0..self.n {
            let row = self.rows[via * w..(via + 1) * w].to_vec();
            for from in 0..self.n {
                if self.has_edge(from, via) {
                    self.rows[from * w..(from + 1) * w]
                        .iter_mut()
                        .zip(&row)
                        .for_each(|(a, b)| *a |= b);
                }
            }
        }
        self
    }
    /// One that reaches itself.
    pub fn find_cycle(&self) -> Option<usize> {
        (0..self.n).find(|i| self.has_edge(*i, *i))
    }
    /// All dependencies.
    pub fn edges(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.n).flat_map(move |a| {
            (0..self.n).filter(move |b| self.has_edge(a, *b)).map(move |b| (a, b))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_cycles_and_only_cycles() {
        let mut g = DependencyGraph::new(130);
        (0..129).for_each(|i| g.add_edge(i, i + 1));
        assert!(
            g.clone().transitive_closure().has_edge(0, 129)
                && g.clone().transitive_closure().find_cycle().is_none()
        );
        g.add_edge(129, 100);
        assert_eq!(g.transitive_closure().find_cycle(), Some(100));
    }
}
