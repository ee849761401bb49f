//! Tables, value logs, and the sorted runs that tables form.

use super::edit::{TableMeta, VlogMeta};
use super::table_bounds::TableBounds;
use perigee_base::{KeyBoundaryRef, KeyComparator, RunId};
use perigee_file::{KlogReader, TombstoneSpan, VlogReader};
use std::sync::Arc;

/// An open table: its record in the manifest, and its reader.
#[derive(Debug)]
pub struct Table {
    /// Record in the manifest.
    pub meta: TableMeta,
    /// Reader of the klog.
    pub reader: Arc<KlogReader>,
}

/// An open value log.
#[derive(Debug)]
pub struct Vlog {
    /// Record in the manifest.
    pub meta: VlogMeta,
    /// Reader of the file.
    pub reader: Arc<VlogReader>,
}

/// Tables in key order that do not overlap.
#[derive(Clone, Debug)]
pub struct Run {
    /// Larger is newer (level 0 only; one run per deeper level).
    pub id: RunId,
    /// Tables in key order. Changed only by [`Run::push`] and [`Run::sort`].
    pub tables: Vec<Arc<Table>>,
    bounds: TableBounds,
}

impl Run {
    /// Creates a run of tables in key order.
    pub fn new(id: RunId, tables: Vec<Arc<Table>>, comparator: KeyComparator) -> Run {
        let bounds = TableBounds::with_capacity(tables.len());
        let mut run = Run { id, tables: Vec::with_capacity(tables.len()), bounds };
        tables.into_iter().for_each(|table| run.push(comparator, table));
        run
    }
    /// Appends a table after the others.
    pub fn push(&mut self, comparator: KeyComparator, table: Arc<Table>) {
        self.bounds.push(
            comparator,
            table.meta.summary.begin(comparator),
            table.meta.summary.end(comparator),
        );
        self.tables.push(table);
    }
    /// Sorts the tables in key order.
    pub fn sort(&mut self, comparator: KeyComparator) {
        let mut tables = std::mem::take(&mut self.tables);
        tables.sort_by(|a, b| {
            a.meta.summary.begin(comparator).cmp(comparator, b.meta.summary.begin(comparator))
        });
        *self = Run::new(self.id, tables, comparator);
    }

    /// Returns true if table `i` begins where the table before it ends, or after that.
    pub fn tables_ascend(&self, comparator: KeyComparator, i: usize) -> bool {
        let [before, after] = [i - 1, i].map(|i| &self.tables[i].meta.summary);
        before.end(comparator).cmp(comparator, after.begin(comparator)).is_le()
    }

    /// Returns the index of the first table that does not end before `key`, range tombstones
    /// included.
    pub fn first_table_reaching(&self, comparator: KeyComparator, key: &[u8]) -> usize {
        let before =
            |i: usize| self.tables[i].meta.summary.end(comparator).is_before(comparator, key);
        let first = self.bounds.first_reaching(comparator, key, before);
        check_slow!(
            (first == 0 || before(first - 1)) && (first == self.tables.len() || !before(first)),
            "the bounds lead to the same table as the boundaries",
            key,
            first
        );
        first
    }
    /// Returns the table that could hold `key`, or a range tombstone over it.
    pub fn table_covering(&self, comparator: KeyComparator, key: &[u8]) -> Option<&Arc<Table>> {
        let i = self.first_table_reaching(comparator, key);
        let t = self.tables.get(i)?;
        let before = || t.meta.summary.begin(comparator).is_before(comparator, key);
        self.bounds.begins_before(i, comparator, key, before).then_some(t)
    }
    /// Returns the span around `key` in which the run has a single range tombstone fragment, or
    /// none.
    pub fn range_tombstone_span(&self, comparator: KeyComparator, key: &[u8]) -> TombstoneSpan<'_> {
        let i = self.first_table_reaching(comparator, key);
        let end_of = |i: usize| self.tables[i].meta.summary.end(comparator);
        let before = i.checked_sub(1).map_or(KeyBoundaryRef::First, end_of);
        let Some(t) = self.tables.get(i) else {
            return TombstoneSpan { begin: before, end: KeyBoundaryRef::Last, seqs: &[] };
        };
        let (begin, end) = (t.meta.summary.begin(comparator), t.meta.summary.end(comparator));
        if !begin.is_before(comparator, key) {
            return TombstoneSpan { begin: before, end: begin, seqs: &[] };
        }
        let span = t.reader.range_tombstones().span_at(comparator, key);
        TombstoneSpan {
            begin: span.begin.larger(comparator, begin),
            end: span.end.smaller(comparator, end),
            seqs: span.seqs,
        }
    }
}
