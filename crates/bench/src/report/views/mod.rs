//! Views of the suites: tables and charts that answer a suite's question, from its records alone.

mod record_set;
mod growth;
mod inside;
mod sqlite;
mod tables;
mod latency;
mod churn;
mod threads;
mod transactions;

use crate::record::Record;

/// Report of one suite.
#[derive(Debug)]
pub struct SuiteView {
    pub title: &'static str,
    /// Explanation for the reader.
    pub about: String,
    pub grids: Vec<Grid>,
    /// Charts, as SVG with their titles.
    pub charts: Vec<String>,
}

/// A table.
#[derive(Debug, Default)]
pub struct Grid {
    pub title: String,
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    fn new(title: impl Into<String>, header: &[&str]) -> Grid {
        let header = header.iter().map(|h| (*h).to_owned()).collect();
        Grid { title: title.into(), header, rows: Vec::new() }
    }
}

/// Returns the views of all suites in the records.
pub fn views(records: &[Record]) -> Vec<SuiteView> {
    type ViewFn = fn(&record_set::RecordSet<'_>) -> SuiteView;
    let suites: [(&str, ViewFn); 8] = [
        ("growth", growth::view),
        ("inside", inside::view),
        ("sqlite", sqlite::view),
        ("tables", tables::view),
        ("latency", latency::view),
        ("churn", churn::view),
        ("threads", threads::view),
        ("transactions", transactions::view),
    ];
    let made = suites.iter().filter_map(|(suite, make)| {
        let set = record_set::RecordSet::for_suite(records, suite);
        (!set.is_empty()).then(|| make(&set))
    });
    made.collect()
}
