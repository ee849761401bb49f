//! Tables of rows beside SQLite: each operation with the goal for it.

use super::record_set::{RecordSet, ratio_text};
use super::{Grid, SuiteView};
use crate::record::Record;
use crate::report::summary::spread;
use crate::settings::{RowDurability, Settings, human_bytes};

/// An operation, with the goal as a multiple of SQLite's throughput (0: none).
struct Goal {
    operation: &'static str,
    workload: &'static str,
    threads: usize,
    durability: RowDurability,
    times: f64,
}

const fn goal(
    operation: &'static str,
    workload: &'static str,
    (threads, durability): (usize, RowDurability),
    times: f64,
) -> Goal {
    Goal { operation, workload, threads, durability, times }
}

const POWER: (usize, RowDurability) = (1, RowDurability::Power);
const CRASH: (usize, RowDurability) = (1, RowDurability::Crash);
const CLOSE: (usize, RowDurability) = (1, RowDurability::Close);

const GOALS: [Goal; 24] = [
    goal("load, sorted", "rows_load_sorted", POWER, 2.0),
    goal("load, unsorted", "rows_load_random", POWER, 3.0),
    goal("transactions of 1,000 random rows, power loss", "rows_txn_1000", POWER, 10.0),
    goal("- process crash", "rows_txn_1000", CRASH, 10.0),
    goal("- until close", "rows_txn_1000", CLOSE, 10.0),
    goal("get in a transaction", "rows_get_txn", CRASH, 2.0),
    goal("get, autocommit", "rows_get", CRASH, 4.0),
    goal("Zipf get in a transaction", "rows_zipf_txn", CRASH, 5.0),
    goal("Zipf get, autocommit", "rows_zipf", CRASH, 5.0),
    goal("missing key in a transaction", "rows_missing_txn", CRASH, 10.0),
    goal("missing key, autocommit", "rows_missing", CRASH, 10.0),
    goal("range of 10 rows", "rows_range_10", CRASH, 0.0),
    goal("range of 100 rows", "rows_range_100", CRASH, 2.5),
    goal("range of 10,000 rows", "rows_range_10000", CRASH, 0.0),
    goal("95 % gets, 5 % puts", "rows_mix_95", CRASH, 0.0),
    goal("50 % gets, 50 % puts", "rows_mix_50", CRASH, 0.0),
    goal("open, and get a row", "rows_open", CRASH, 0.0),
    goal("single-row commits, 1 thread, power loss", "rows_commit", POWER, 0.0),
    goal("- 8 threads, power loss", "rows_commit", (8, RowDurability::Power), 5.0),
    goal("- 1 thread, process crash", "rows_commit", CRASH, 0.0),
    goal("- 8 threads, process crash", "rows_commit", (8, RowDurability::Crash), 0.0),
    goal("- 1 thread, until close", "rows_commit", CLOSE, 0.0),
    goal("- 8 threads, until close", "rows_commit", (8, RowDurability::Close), 0.0),
    // Not a throughput: bytes per row after the transactions.
    goal(ROW_SIZE, "rows_txn_1000", CRASH, 1.7),
];
const ROW_SIZE: &str = "bytes per row on disk";

pub fn view(all: &RecordSet<'_>) -> SuiteView {
    let mut grids = Vec::new();
    let settings_of = |r: &Record| {
        let key = |s: &Settings| (s.num, r.value_bytes, keys_of(s), s.rows.row_cache);
        r.settings.as_ref().map(key)
    };
    for of in all.distinct(settings_of) {
        let set = all.filter(|r| settings_of(r) == of);
        let Some((num, bytes, keys, row_cache)) = of else { continue };
        let mut title = format!("{num} rows, values of {bytes} bytes, {keys} keys");
        if row_cache > 0 {
            title += &format!(", row cache of {}", human_bytes(row_cache));
        }
        grids.push(comparison(&set, title));
        grids.extend(breakdown(&set));
    }
    SuiteView {
        title: "Tables beside SQLite",
        about: "Operations per second (CPU microseconds per operation). SQLite as its \
                documentation recommends: write-ahead log, prepared statements, the faster kind \
                of table, the same cache; `synchronous` FULL where commits survive a power loss, \
                NORMAL where they survive a crash of the process, OFF where they survive until \
                close. Ratio: of the throughput, the median over pairs of repetitions that ran \
                next to each other, with the smallest and the largest. Times the CPU: SQLite's \
                over ours. Gets are warm, and every value is compared; ours are rows with a copy \
                of the value, SQLite's are borrowed."
            .into(),
        grids,
        charts: Vec::new(),
    }
}

fn keys_of(s: &Settings) -> String {
    format!("{:?}", s.rows.row_keys).to_lowercase()
}

fn durability_of(r: &Record) -> Option<RowDurability> {
    r.settings.as_ref().map(|s| s.rows.durability)
}

fn comparison(all: &RecordSet<'_>, title: String) -> Grid {
    let header =
        ["operation", "perigee", "sqlite", "ratio", "min..max", "times the CPU", "goal", "reached"];
    let mut grid = Grid::new(title, &header);
    for goal in &GOALS {
        let of = all.with_workload(goal.workload).with_threads(goal.threads);
        let of = of.filter(|r| durability_of(r) == Some(goal.durability));
        if of.is_empty() {
            continue;
        }
        let (ours, theirs) = (of.with_engine("perigee"), of.with_engine("sqlite"));
        let is_size = goal.operation == ROW_SIZE;
        let measure = |r: &Record| match is_size {
            // Rows per byte, so that more is better, as for the throughput.
            true => r.ops as f64 / r.db_bytes.max(1) as f64,
            false => r.ops_per_sec,
        };
        let ratios = paired_ratios(&ours, &theirs, measure);
        let ratio = spread(ratios.clone());
        let known = !ratios.is_empty();
        let bytes = |set: &RecordSet<'_>| {
            let bytes = set.median(|r| r.db_bytes as f64 / r.ops.max(1) as f64);
            bytes.map_or("-".into(), |b| format!("{b:.1}"))
        };
        let cell = |set: &RecordSet<'_>| match (is_size, goal.workload) {
            (true, _) => bytes(set),
            (_, "rows_open") => {
                set.median(|r| r.open_ms).map_or("-".into(), |ms| format!("{ms:.2} ms"))
            }
            _ => set.rate(),
        };
        let (our_cpu, their_cpu) =
            (ours.median(|r| r.cpu_us_per_op), theirs.median(|r| r.cpu_us_per_op));
        let reached = if ratio.median >= goal.times { "yes" } else { "NO" };
        let or_dash = |known: bool, text: String| if known { text } else { "-".to_owned() };
        grid.rows.push(vec![
            goal.operation.to_owned(),
            cell(&ours),
            cell(&theirs),
            or_dash(known, format!("{:.2}", ratio.median)),
            or_dash(known, format!("{:.2}..{:.2}", ratio.min, ratio.max)),
            if is_size { "-".into() } else { ratio_text(their_cpu, our_cpu) },
            or_dash(goal.times > 0.0, format!("{}", goal.times)),
            or_dash(known && goal.times > 0.0, reached.to_owned()),
        ]);
    }
    grid
}

/// Returns the ratios of a measure of repetitions that ran next to each other.
fn paired_ratios(
    ours: &RecordSet<'_>,
    theirs: &RecordSet<'_>,
    measure: impl Fn(&Record) -> f64,
) -> Vec<f64> {
    let valid = |set: &RecordSet<'_>, rep: u32| set.filter(|r| r.rep == rep).median(&measure);
    let pair = |r: &&Record| Some(valid(ours, r.rep)? / valid(theirs, r.rep).filter(|x| *x > 0.0)?);
    ours.records().iter().filter_map(pair).collect()
}

/// Returns the parts of a get through the table, if they were measured.
fn breakdown(all: &RecordSet<'_>) -> Option<Grid> {
    let measured = all.filter(|r| !r.parts.is_empty());
    let first = measured.records().first()?;
    let mut grid = Grid::new("parts of a warm get of perigee-tables", &["part", "ns"]);
    for (at, (name, _)) in first.parts.iter().enumerate() {
        let us = measured.median(|r| r.parts.get(at).map_or(0.0, |(_, us)| *us));
        grid.rows.push(vec![name.clone(), format!("{:.0}", us.unwrap_or(0.0) * 1e3)]);
    }
    Some(grid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::parse_settings;

    #[test]
    fn ratios_are_paired_by_repetition() {
        let record = |engine: &str, rep: u32, rate: f64| {
            let mut settings = parse_settings(&[]);
            settings.rows.durability = RowDurability::Crash;
            Record {
                suite: "tables".into(),
                engine: engine.into(),
                workload: "rows_get".into(),
                threads: 1,
                rep,
                value_bytes: 16,
                ops_per_sec: rate,
                cpu_us_per_op: 1.0,
                settings: Some(settings),
                ..Record::default()
            }
        };
        let records = [
            record("perigee", 0, 400.0),
            record("sqlite", 0, 100.0),
            record("perigee", 1, 300.0),
            record("sqlite", 1, 50.0),
        ];
        let view = view(&RecordSet::for_suite(&records, "tables"));
        assert_eq!(view.grids.len(), 1);
        let row = &view.grids[0].rows[0];
        assert_eq!(row[3..], ["5.00", "4.00..6.00", "1.00", "4", "yes"]);
    }
}
