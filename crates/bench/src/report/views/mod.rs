//! What a suite shows: tables and pictures of the question that it answers, from its records alone.

mod record_set;
mod growth;
mod inside;
mod sqlite;
mod latency;
mod churn;
mod threads;
mod transactions;

use crate::record::Record;

/// A suite's answer.
#[derive(Debug)]
pub struct SuiteView {
    pub title: &'static str,
    /// How to read it.
    pub about: String,
    pub grids: Vec<Grid>,
    /// Pictures, as SVG with their titles.
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

/// The answers of all suites that the records are of.
pub fn views(records: &[Record]) -> Vec<SuiteView> {
    type ViewFn = fn(&record_set::RecordSet<'_>) -> SuiteView;
    let suites: [(&str, ViewFn); 7] = [
        ("growth", growth::view),
        ("inside", inside::view),
        ("sqlite", sqlite::view),
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
