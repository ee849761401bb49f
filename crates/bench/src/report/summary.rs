//! Medians over repetitions, with spread; ratios to the first engine, paired by repetition.

use crate::record::Record;
use crate::settings::human_bytes;

/// Repetitions of one workload on one engine with one number of threads.
#[derive(Clone, Debug)]
pub struct RunGroup<'r> {
    pub engine: &'r str,
    pub workload: &'r str,
    pub threads: usize,
    /// Settings that differ among the given records; empty if all have the same.
    pub label: String,
    pub records: Vec<&'r Record>,
}

/// Returns the settings that distinguish measurements of one workload.
fn distinguishing_settings(r: &Record) -> Vec<(&'static str, String)> {
    let Some(s) = &r.settings else { return Vec::new() };
    let size = |n: Option<u64>| n.map_or("-".into(), human_bytes);
    vec![
        ("keys", format!("{:?}", s.keys)),
        ("values", format!("{:?}", s.values)),
        ("num", short_number(s.num as f64)),
        ("ops", s.ops.map_or("-".into(), |n| short_number(n as f64))),
        ("batch", format!("{:?}", s.batch)),
        ("pattern", s.pattern.map_or("-".into(), |p| format!("{p:?}"))),
        ("range", format!("{:?}", s.range)),
        ("value bytes", size(s.value_bytes.map(|b| b as u64))),
        ("compression", format!("{:?}", s.compression)),
        ("memtable", human_bytes(s.memtable)),
        ("cache", human_bytes(s.cache)),
        ("memory", size(s.memory)),
        ("rate", s.rate.map_or("-".into(), |n| short_number(n as f64))),
        ("seconds", s.seconds.map_or("-".into(), |n| n.to_string())),
        ("warm", s.warm.to_string()),
        ("cold", s.cold.to_string()),
        ("row keys", format!("{:?}", s.rows.row_keys)),
        ("durability", format!("{:?}", s.rows.durability)),
    ]
}

/// Formats a setting: names in lower case; numbers keep their unit.
fn setting_label(value: &str) -> String {
    if value.starts_with(|c: char| c.is_ascii_digit()) {
        value.to_owned()
    } else {
        value.to_lowercase()
    }
}

/// Groups records by workload, engine and settings, in the order of their first records.
pub fn groups(records: &[Record]) -> Vec<RunGroup<'_>> {
    let all: Vec<_> = records.iter().map(distinguishing_settings).collect();
    // A label lists only settings that differ among the records of the same workload.
    let differs = |r: &Record, at: usize, value: &str| {
        let mut same = records.iter().zip(&all).filter(|(o, _)| o.workload == r.workload);
        same.any(|(_, f)| f.get(at).is_some_and(|(_, v)| v != value))
    };
    let mut groups: Vec<RunGroup<'_>> = Vec::new();
    for (r, facets) in records.iter().zip(&all) {
        let words = facets.iter().enumerate().filter(|(at, (_, v))| differs(r, *at, v));
        let label = words
            .map(|(_, (name, v))| format!("{name} {}", setting_label(v)))
            .collect::<Vec<_>>()
            .join(", ");
        let same = |g: &&mut RunGroup<'_>| {
            g.engine == r.engine
                && g.workload == r.workload
                && g.threads == r.threads
                && g.label == label
        };
        match groups.iter_mut().find(same) {
            Some(g) => g.records.push(r),
            None => groups.push(RunGroup {
                engine: &r.engine,
                workload: &r.workload,
                threads: r.threads,
                label,
                records: vec![r],
            }),
        }
    }
    groups
}

/// Median, minimum and maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

pub fn spread(mut values: Vec<f64>) -> Spread {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    let (Some(min), Some(max)) = (values.first(), values.last()) else { return Spread::default() };
    Spread { median: (values[(n - 1) / 2] + values[n / 2]) / 2.0, min: *min, max: *max }
}

impl RunGroup<'_> {
    /// Returns true if the other group measured the same workload with the same settings, on any
    /// engine.
    pub fn same_workload(&self, other: &RunGroup<'_>) -> bool {
        self.workload == other.workload
            && self.threads == other.threads
            && self.label == other.label
    }
    /// Returns the workload's name with the label.
    pub fn title(&self) -> String {
        if self.label.is_empty() {
            self.workload.to_owned()
        } else {
            format!("{} ({})", self.workload, self.label)
        }
    }
    pub fn spread_of(&self, measure: impl Fn(&Record) -> f64) -> Spread {
        spread(self.records.iter().map(|r| measure(r)).collect())
    }
    /// Returns the reason why there are no figures: not run, or killed.
    pub fn missing_reason(&self) -> Option<String> {
        self.records.iter().find_map(|r| match (&r.skipped, &r.killed) {
            (Some(why), _) => Some(format!("not run: {why}")),
            (_, Some(why)) => Some(format!("killed: {why}")),
            _ => None,
        })
    }
    /// Returns the fraction of the operations done in the time limit, if not all.
    pub fn cut_short(&self) -> Option<f64> {
        self.records.iter().filter_map(|r| r.cut_short).min_by(f64::total_cmp)
    }
    /// Returns true if an operation was refused or wrong: then the figures are invalid.
    pub fn failed(&self) -> bool {
        self.failures() != (0, 0)
    }
    pub fn failures(&self) -> (u64, u64) {
        self.records.iter().fold((0, 0), |(e, w), r| (e + r.errors, w + r.wrong))
    }
    /// Returns the throughput ratio to another group: the median over pairs that ran next to each
    /// other.
    pub fn throughput_ratio(&self, other: &RunGroup<'_>) -> f64 {
        let pairs = self.records.iter().filter_map(|r| {
            let o = other.records.iter().find(|o| o.rep == r.rep)?;
            (o.ops_per_sec > 0.0).then(|| r.ops_per_sec / o.ops_per_sec)
        });
        spread(pairs.collect()).median
    }
}

/// Returns true if any record failed.
pub fn failed(records: &[Record]) -> bool {
    records.is_empty() || records.iter().any(|r| r.errors > 0 || r.wrong > 0)
}

/// Formats a number as `12.3M`, `4.56k` or `789`.
pub fn short_number(x: f64) -> String {
    let (x, unit) = match x.abs() {
        a if a >= 1e9 => (x / 1e9, "G"),
        a if a >= 1e6 => (x / 1e6, "M"),
        a if a >= 1e3 => (x / 1e3, "k"),
        _ => (x, ""),
    };
    let digits = match x.abs() {
        a if a >= 100.0 || a == 0.0 => 0,
        a if a >= 10.0 => 1,
        _ => 2,
    };
    format!("{x:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_with_different_settings_are_separate_groups() {
        let record = |values: &str, rep: u32| -> Record {
            let settings = crate::settings::tests::parse_settings(&["--values", values]);
            Record {
                workload: "w".into(),
                engine: "e".into(),
                rep,
                settings: Some(settings),
                ..Record::default()
            }
        };
        let records = [record("ramp", 0), record("ramp", 1), record("half", 0)];
        let titles: Vec<_> =
            groups(&records).iter().map(|g| (g.title(), g.records.len())).collect();
        assert_eq!(titles, [("w (values ramp)".into(), 2), ("w (values half)".into(), 1)]);
        assert_eq!(groups(&records[..2])[0].title(), "w");
    }

    #[test]
    fn medians_and_short_numbers() {
        assert_eq!(spread(vec![3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(spread(vec![1.0, 2.0]).median, 1.5);
        assert_eq!(spread(vec![]).median, 0.0);
        assert_eq!(
            (short_number(1234.0), short_number(0.5), short_number(12.34e6)),
            ("1.23k".into(), "0.50".into(), "12.3M".into())
        );
    }
}
