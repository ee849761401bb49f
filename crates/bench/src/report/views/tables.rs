//! Tables of rows beside SQLite and redb: each operation with the goal for it.

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
        title: "Tables beside SQLite and redb",
        about: "Operations per second (CPU microseconds per operation). SQLite as its \
                documentation recommends: write-ahead log, prepared statements, the faster kind \
                of table, the same cache; `synchronous` FULL where commits survive a power loss, \
                NORMAL where they survive a crash of the process, OFF where they survive until \
                close. redb with typed keys and the same cache; durability Immediate where commits \
                survive a power loss, else None, which loses commits if the process crashes: its \
                figures at that level are of a weaker guarantee. Ratio: of our throughput to \
                SQLite's (to redb's in the columns after redb), the median over pairs of \
                repetitions that ran next to each other, with the smallest and the largest. Times \
                the CPU: the other's over ours. Goals are relative to SQLite. Gets are warm, and \
                every value is compared; ours are rows with a copy of the value, those of the \
                others are borrowed."
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

/// The engine that the goals are relative to.
const GOAL_PEER: &str = "sqlite";
/// Another engine, which is in the table if it was measured.
const OTHER_PEER: &str = "redb";

fn comparison(all: &RecordSet<'_>, title: String) -> Grid {
    let mut header = vec![
        "operation",
        "perigee",
        GOAL_PEER,
        "ratio",
        "min..max",
        "times the CPU",
        "goal",
        "reached",
    ];
    let has_other = !all.with_engine(OTHER_PEER).is_empty();
    if has_other {
        header.extend([OTHER_PEER, "ratio", "min..max", "times the CPU"]);
    }
    let mut grid = Grid::new(title, &header);
    for goal in &GOALS {
        let of = all.with_workload(goal.workload).with_threads(goal.threads);
        let of = of.filter(|r| durability_of(r) == Some(goal.durability));
        // The size is not measured if the transactions were stopped at their time limit.
        let of = of.filter(|r| !goal.is_size() || r.db_bytes > 0);
        if of.is_empty() {
            continue;
        }
        let ours = of.with_engine("perigee");
        let (cells, ratio) = peer_cells(goal, &ours, &of.with_engine(GOAL_PEER));
        let times = Some(goal.times).filter(|times| *times > 0.0);
        let is_reached = ratio.zip(times).map(|(ratio, times)| ratio >= times);
        let mut row = vec![goal.operation.to_owned(), goal.cell(&ours)];
        row.extend(cells);
        row.push(or_dash(times.map(|times| times.to_string())));
        row.push(or_dash(is_reached.map(|yes| if yes { "yes" } else { "NO" }.to_owned())));
        if has_other {
            row.extend(peer_cells(goal, &ours, &of.with_engine(OTHER_PEER)).0);
        }
        grid.rows.push(row);
    }
    grid
}

/// Returns the text of a cell; a dash if there is none.
fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

impl Goal {
    fn is_size(&self) -> bool {
        self.operation == ROW_SIZE
    }
    /// Formats the measure of an engine.
    fn cell(&self, set: &RecordSet<'_>) -> String {
        if self.is_size() {
            let bytes = set.median(|r| r.db_bytes as f64 / r.ops.max(1) as f64);
            or_dash(bytes.map(|b| format!("{b:.1}")))
        } else if self.workload == "rows_open" {
            or_dash(set.median(|r| r.open_ms).map(|ms| format!("{ms:.2} ms")))
        } else {
            set.rate()
        }
    }
}

/// Returns the cells of another engine (measure, ratio, its smallest and largest, ratio of the CPU
/// times), and the ratio.
fn peer_cells(
    goal: &Goal,
    ours: &RecordSet<'_>,
    theirs: &RecordSet<'_>,
) -> ([String; 4], Option<f64>) {
    let measure = |r: &Record| match goal.is_size() {
        // Rows per byte, so that more is better, as for the throughput.
        true => r.ops as f64 / r.db_bytes.max(1) as f64,
        false => r.ops_per_sec,
    };
    let ratios = paired_ratios(ours, theirs, measure);
    let ratio = (!ratios.is_empty()).then(|| spread(ratios));
    let cpu = |set: &RecordSet<'_>| set.median(|r| r.cpu_us_per_op);
    let cells = [
        goal.cell(theirs),
        or_dash(ratio.as_ref().map(|r| format!("{:.2}", r.median))),
        or_dash(ratio.as_ref().map(|r| format!("{:.2}..{:.2}", r.min, r.max))),
        if goal.is_size() { "-".to_owned() } else { ratio_text(cpu(theirs), cpu(ours)) },
    ];
    (cells, ratio.map(|r| r.median))
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

    fn record(engine: &str, rep: u32, rate: f64) -> Record {
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
    }

    fn view_of(records: &[Record]) -> SuiteView {
        view(&RecordSet::for_suite(records, "tables"))
    }

    #[test]
    fn ratios_are_paired_by_repetition() {
        let records = [
            record("perigee", 0, 400.0),
            record("sqlite", 0, 100.0),
            record("perigee", 1, 300.0),
            record("sqlite", 1, 50.0),
        ];
        let view = view_of(&records);
        assert_eq!(view.grids.len(), 1);
        let row = &view.grids[0].rows[0];
        assert_eq!(row[3..], ["5.00", "4.00..6.00", "1.00", "4", "yes"]);
        let records =
            [&records[..], &[record("redb", 0, 800.0), record("redb", 1, 300.0)]].concat();
        let view = view_of(&records);
        let row = &view.grids[0].rows[0];
        assert_eq!(row[3..8], ["5.00", "4.00..6.00", "1.00", "4", "yes"]);
        assert_eq!(row[9..], ["0.75", "0.50..1.00", "1.00"]);
        assert_eq!(view.grids[0].header.len(), row.len());
    }

    #[test]
    fn size_that_was_not_measured_is_not_compared() {
        let filling = |engine: &str, db_bytes| Record {
            workload: "rows_txn_1000".to_owned(),
            db_bytes,
            ..record(engine, 0, 100.0)
        };
        let rows = |bytes| {
            let view = view_of(&[filling("perigee", bytes), filling("sqlite", bytes * 2)]);
            view.grids[0].rows.iter().filter(|row| row[0] == ROW_SIZE).count()
        };
        assert_eq!((rows(0), rows(1000)), (0, 1));
    }

    #[test]
    fn goal_without_sqlite_is_neither_reached_nor_missed() {
        let redb = record("redb", 0, 100.0);
        let view = view_of(&[record("perigee", 0, 400.0), redb]);
        let row = &view.grids[0].rows[0];
        assert_eq!(row[2..8], ["-", "-", "-", "-", "4", "-"]);
        assert_eq!(row[9], "4.00");
    }
}
