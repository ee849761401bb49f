//! Dependencies between transactions as bit sets, with reachability.

/// For each transaction, the set of transactions that depend on it.
#[derive(Clone, Debug)]
pub struct DependencyGraph {
    n: usize,
    rows: Vec<u64>,
}

impl DependencyGraph {
    /// Creates a graph of `n` transactions without dependencies.
    pub fn new(n: usize) -> DependencyGraph {
        DependencyGraph { n, rows: vec![0; n * n.div_ceil(64)] }
    }
    fn width(&self) -> usize {
        self.n.div_ceil(64)
    }
    /// Adds a dependency. A dependency of a transaction on itself is ignored.
    pub fn add_edge(&mut self, from: usize, to: usize) {
        if from != to {
            let at = from * self.width() + to / 64;
            self.rows[at] |= 1 << (to % 64);
        }
    }
    /// Returns true if there is a dependency between the two.
    pub fn has_edge(&self, from: usize, to: usize) -> bool {
        self.rows[from * self.width() + to / 64] >> (to % 64) & 1 == 1
    }
    /// Returns the union of both graphs.
    #[must_use]
    pub fn union(&self, other: &DependencyGraph) -> DependencyGraph {
        DependencyGraph {
            n: self.n,
            rows: self.rows.iter().zip(&other.rows).map(|(a, b)| a | b).collect(),
        }
    }
    /// Returns only the dependencies that start at the selected transactions.
    #[must_use]
    pub fn edges_from(&self, of: impl Fn(usize) -> bool) -> DependencyGraph {
        let mut some = self.clone();
        let w = self.width();
        (0..self.n).filter(|i| !of(*i)).for_each(|i| some.rows[i * w..(i + 1) * w].fill(0));
        some
    }
    /// Returns the composition: one step in this graph, then one in the other.
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
    /// Returns what is reachable in any number of steps.
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
    /// Returns a transaction that reaches itself in this (transitively closed) graph.
    pub fn find_cycle(&self) -> Option<usize> {
        (0..self.n).find(|i| self.has_edge(*i, *i))
    }
    /// Iterates over all dependencies.
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
