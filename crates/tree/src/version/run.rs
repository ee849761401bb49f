//! Tables, value logs, and the sorted runs that tables form.

use super::edit::{TableMeta, VlogMeta};
use super::table_bounds::TableBounds;
use perigee_base::key_boundary::KeyBoundaryRef;
use perigee_base::{KeyComparator, RunId};
use perigee_file::range_tombstones::TombstoneSpan;
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
    bounds: TableBounds,
}

impl Run {
    /// Of tables in key order.
    pub fn new(id: RunId, tables: Vec<Arc<Table>>, order: KeyComparator) -> Run {
        let mut run =
            Run { id, tables: Vec::with_capacity(tables.len()), bounds: TableBounds::default() };
        tables.into_iter().for_each(|table| run.push(order, table));
        run
    }
    /// Adds a table behind the others.
    pub fn push(&mut self, order: KeyComparator, table: Arc<Table>) {
        self.bounds.push(order, table.meta.summary.begin(order), table.meta.summary.end(order));
        self.tables.push(table);
    }
    /// Puts the tables in key order.
    pub fn sort(&mut self, order: KeyComparator) {
        let mut tables = std::mem::take(&mut self.tables);
        tables.sort_by(|a, b| a.meta.summary.begin(order).cmp(order, b.meta.summary.begin(order)));
        *self = Run::new(self.id, tables, order);
    }

    /// The first table that reaches as far as `key`, range tombstones included.
    pub fn first_table_reaching(&self, order: KeyComparator, key: &[u8]) -> usize {
        let before = |i: usize| self.tables[i].meta.summary.end(order).is_before(order, key);
        self.bounds.first_reaching(order, key, before)
    }
    /// The table that could hold `key`, or a range tombstone over it.
    pub fn table_covering(&self, order: KeyComparator, key: &[u8]) -> Option<&Arc<Table>> {
        let i = self.first_table_reaching(order, key);
        let t = self.tables.get(i)?;
        let before = || t.meta.summary.begin(order).is_before(order, key);
        self.bounds.begins_before(i, order, key, before).then_some(t)
    }
    /// The stretch around `key` in which the run has one fragment of range tombstones, or none.
    pub fn range_tombstone_span(&self, order: KeyComparator, key: &[u8]) -> TombstoneSpan<'_> {
        let i = self.first_table_reaching(order, key);
        let end_of = |i: usize| self.tables[i].meta.summary.end(order);
        let before = i.checked_sub(1).map_or(KeyBoundaryRef::First, end_of);
        let Some(t) = self.tables.get(i) else {
            return TombstoneSpan { begin: before, end: KeyBoundaryRef::Last, seqs: &[] };
        };
        let (begin, end) = (t.meta.summary.begin(order), t.meta.summary.end(order));
        if !begin.is_before(order, key) {
            return TombstoneSpan { begin: before, end: begin, seqs: &[] };
        }
        let w = t.reader.range_tombstones().span_at(order, key);
        TombstoneSpan {
            begin: w.begin.larger(order, begin),
            end: w.end.smaller(order, end),
            seqs: w.seqs,
        }
    }
}
