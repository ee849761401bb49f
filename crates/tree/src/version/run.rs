//! Tables, value logs, and the sorted runs that tables form.

use super::bounds::Bounds;
use super::edit::{TableMeta, VlogMeta};
use perigee_base::cut::CutRef;
use perigee_base::{KeyOrder, RunId};
use perigee_file::ranges::Window;
use perigee_file::{KlogReader, VlogReader};
use std::sync::Arc;

/// A table in use: what the manifest says of it, and its open reader.
#[derive(Debug)]
pub struct Table {
    /// From the manifest.
    pub meta: TableMeta,
    /// The open klog.
    pub reader: Arc<KlogReader>,
}

/// A value log in use.
#[derive(Debug)]
pub struct Vlog {
    /// From the manifest.
    pub meta: VlogMeta,
    /// The open file.
    pub reader: Arc<VlogReader>,
}

/// Tables in key order without common keys.
#[derive(Clone, Debug)]
pub struct Run {
    /// Larger is newer (level 0 only; one run per deeper level).
    pub id: RunId,
    /// In key order. Only [`Run::push`] and [`Run::sort`] change it.
    pub tables: Vec<Arc<Table>>,
    bounds: Bounds,
}

impl Run {
    /// Of tables in key order.
    pub fn new(id: RunId, tables: Vec<Arc<Table>>, order: KeyOrder) -> Run {
        let mut run = Run { id, tables: Vec::with_capacity(tables.len()), bounds: Bounds::default() };
        tables.into_iter().for_each(|table| run.push(order, table));
        run
    }
    /// Adds a table behind the others.
    pub fn push(&mut self, order: KeyOrder, table: Arc<Table>) {
        self.bounds.push(order, table.meta.summary.begin(order), table.meta.summary.end(order));
        self.tables.push(table);
    }
    /// Puts the tables in key order.
    pub fn sort(&mut self, order: KeyOrder) {
        let mut tables = std::mem::take(&mut self.tables);
        tables.sort_by(|a, b| a.meta.summary.begin(order).cmp(order, b.meta.summary.begin(order)));
        *self = Run::new(self.id, tables, order);
    }

    /// The first table that reaches as far as `key`, range tombstones included.
    pub fn first_reaching(&self, order: KeyOrder, key: &[u8]) -> usize {
        let before = |i: usize| self.tables[i].meta.summary.end(order).is_before(order, key);
        self.bounds.first_reaching(order, key, before)
    }
    /// The table that could hold `key`, or a range tombstone over it.
    pub fn covering(&self, order: KeyOrder, key: &[u8]) -> Option<&Arc<Table>> {
        let i = self.first_reaching(order, key);
        let t = self.tables.get(i)?;
        let before = || t.meta.summary.begin(order).is_before(order, key);
        self.bounds.begins_before(i, order, key, before).then_some(t)
    }
    /// The stretch around `key` in which the run has one fragment of range tombstones, or none.
    pub fn window(&self, order: KeyOrder, key: &[u8]) -> Window<'_> {
        let i = self.first_reaching(order, key);
        let end_of = |i: usize| self.tables[i].meta.summary.end(order);
        let before = i.checked_sub(1).map_or(CutRef::First, end_of);
        let Some(t) = self.tables.get(i) else {
            return Window { begin: before, end: CutRef::Last, seqs: &[] };
        };
        let (begin, end) = (t.meta.summary.begin(order), t.meta.summary.end(order));
        if !begin.is_before(order, key) {
            return Window { begin: before, end: begin, seqs: &[] };
        }
        let w = t.reader.ranges().window(order, key);
        Window { begin: w.begin.max(order, begin), end: w.end.min(order, end), seqs: w.seqs }
    }
}
