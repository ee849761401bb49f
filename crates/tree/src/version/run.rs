//! Tables, value logs, and the sorted runs that tables form.

use super::edit::{TableMeta, VlogMeta};
use perigee_base::{KeyOrder, RunId};
use perigee_file::{KlogReader, VlogReader};
use std::cmp::Ordering::{Greater, Less};
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
    /// In key order.
    pub tables: Vec<Arc<Table>>,
}

impl Run {
    /// The first table whose last key is not before `key`.
    pub fn first_reaching(&self, order: KeyOrder, key: &[u8]) -> usize {
        self.tables.partition_point(|t| order.cmp(&t.meta.summary.last_key, key) == Less)
    }
    /// The table that could hold `key`.
    pub fn covering(&self, order: KeyOrder, key: &[u8]) -> Option<&Arc<Table>> {
        let t = self.tables.get(self.first_reaching(order, key))?;
        (order.cmp(&t.meta.summary.first_key, key) != Greater).then_some(t)
    }
    /// The tables that share keys with the closed range `first..=last`.
    pub fn overlapping(&self, order: KeyOrder, first: &[u8], last: &[u8]) -> &[Arc<Table>] {
        let from = self.first_reaching(order, first);
        let len =
            self.tables[from..].partition_point(|t| order.cmp(&t.meta.summary.first_key, last) != Greater);
        &self.tables[from..from + len]
    }
}
