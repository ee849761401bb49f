//! Records of one suite, filtered step by step, and the table cells derived from them.

use crate::record::Record;
use crate::report::summary::{short_number, spread};
use crate::report::svg::ChartLine;

/// Some records, with the engines in the order of the whole report (which determines their
/// colours).
#[derive(Clone, Debug)]
pub struct RecordSet<'r> {
    records: Vec<&'r Record>,
    colours: Vec<&'r str>,
}

impl<'r> RecordSet<'r> {
    pub fn for_suite(records: &'r [Record], suite: &str) -> RecordSet<'r> {
        let mut colours: Vec<&str> = Vec::new();
        for r in records {
            if !colours.contains(&r.engine.as_str()) {
                colours.push(&r.engine);
            }
        }
        RecordSet { records: records.iter().filter(|r| r.suite == suite).collect(), colours }
    }
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
    pub fn records(&self) -> &[&'r Record] {
        &self.records
    }
    pub fn filter(&self, keep: impl Fn(&Record) -> bool) -> RecordSet<'r> {
        let records = self.records.iter().copied().filter(|r| keep(r)).collect();
        RecordSet { records, colours: self.colours.clone() }
    }
    pub fn with_workload(&self, name: &str) -> RecordSet<'r> {
        self.filter(|r| r.workload == name)
    }
    pub fn with_engine(&self, name: &str) -> RecordSet<'r> {
        self.filter(|r| r.engine == name)
    }
    pub fn with_threads(&self, threads: usize) -> RecordSet<'r> {
        self.filter(|r| r.threads == threads)
    }
    /// Returns the engines that have records in the set.
    pub fn engines(&self) -> Vec<&'r str> {
        self.colours
            .iter()
            .copied()
            .filter(|e| self.records.iter().any(|r| r.engine == *e))
            .collect()
    }
    /// Returns the distinct values of a property, in order of appearance.
    pub fn distinct<T: PartialEq>(&self, what: impl Fn(&'r Record) -> T) -> Vec<T> {
        let mut all = Vec::new();
        for r in &self.records {
            let value = what(r);
            if !all.contains(&value) {
                all.push(value);
            }
        }
        all
    }
    pub fn colour_of(&self, engine: &str) -> usize {
        self.colours.iter().position(|e| *e == engine).unwrap_or(0) % 8
    }
    /// Returns the median over valid records, including those that reached their time limit; `None`
    /// if there is none.
    pub fn median(&self, of: impl Fn(&Record) -> f64) -> Option<f64> {
        let good = self.records.iter().filter(|r| invalid_reason(r).is_none());
        let values: Vec<f64> = good.map(|r| of(r)).collect();
        (!values.is_empty()).then(|| spread(values).median)
    }
    /// Formats a measure, or the reason why there is none.
    pub fn cell(&self, of: impl Fn(&Record) -> f64) -> String {
        self.median(of).map_or_else(|| self.missing_reason(), short_number)
    }
    /// Formats operations per second and CPU per operation, with the percentage done if the time
    /// limit was reached, or the reason why there is none.
    pub fn rate(&self) -> String {
        let Some(rate) = self.median(|r| r.ops_per_sec) else { return self.missing_reason() };
        let cpu = self.median(|r| r.cpu_us_per_op).unwrap_or(0.0);
        let done = self.records.iter().filter_map(|r| r.cut_short).fold(1.0, f64::min);
        let cut = if done < 1.0 { format!(", {:.0} % done", done * 100.0) } else { String::new() };
        format!("{} ({cpu:.2}{cut})", short_number(rate))
    }
    fn missing_reason(&self) -> String {
        self.records.first().and_then(|r| invalid_reason(r)).unwrap_or("-").to_owned()
    }
    /// Returns a line for each engine through the points that `point` computes from its records.
    pub fn chart_lines(&self, point: impl Fn(&Record) -> (f64, f64)) -> Vec<ChartLine> {
        let line = |engine: &&str| {
            let of = self.with_engine(engine);
            let good = of.records.iter().filter(|r| invalid_reason(r).is_none());
            ChartLine { colour: self.colour_of(engine), points: good.map(|r| point(r)).collect() }
        };
        self.engines().iter().map(line).filter(|l| !l.points.is_empty()).collect()
    }
}

/// Returns the reason why a record's figures are invalid, if they are.
pub fn invalid_reason(r: &Record) -> Option<&'static str> {
    match () {
        () if r.killed.is_some() => Some("killed"),
        () if r.skipped.is_some() => Some("not run"),
        () if r.errors > 0 => Some("refused"),
        () if r.wrong > 0 => Some("WRONG"),
        () => None,
    }
}

/// Formats `a` over `b` with two digits, or `-` if either is missing.
pub fn ratio_text(a: Option<f64>, b: Option<f64>) -> String {
    match (a, b) {
        (Some(a), Some(b)) if a > 0.0 && b > 0.0 => {
            let r = a / b;
            if r >= 10.0 { format!("{r:.0}") } else { format!("{r:.2}") }
        }
        _ => "-".into(),
    }
}
