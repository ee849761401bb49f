//! Databases and sessions for tests, and results as text.
#![allow(dead_code)]

use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::common::ScalarValue;
use perigee::Db;
use perigee_sql::{Session, SqlError, SqlState};
use std::future::Future;

/// Runs a test in a runtime of its own.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test)
}

/// Returns a database in memory and a session.
pub fn session() -> (Db, Session) {
    let db = perigee::example_db().unwrap();
    let session = Session::new(&db, Default::default()).unwrap();
    (db, session)
}

/// Returns a value as text: booleans as 1 and 0, floats with nine digits.
pub fn value_text(array: &dyn Array, row: usize) -> String {
    if array.is_null(row) {
        return "NULL".to_owned();
    }
    match ScalarValue::try_from_array(array, row).unwrap() {
        ScalarValue::Boolean(Some(v)) => u8::from(v).to_string(),
        ScalarValue::Float64(Some(v)) => format!("{v:.9}"),
        ScalarValue::Float32(Some(v)) => format!("{:.9}", f64::from(v)),
        ScalarValue::Utf8(Some(v)) | ScalarValue::Utf8View(Some(v)) => v,
        other => other.to_string(),
    }
}

/// Returns the rows of batches as text.
pub fn rows_text(batches: &[RecordBatch]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            rows.push(batch.columns().iter().map(|array| value_text(array, row)).collect());
        }
    }
    rows
}

/// Runs a statement and returns its rows as text.
pub async fn query(session: &mut Session, sql: &str) -> Result<Vec<Vec<String>>, SqlError> {
    let results = session.run(sql).await?;
    Ok(results.last().map(|result| rows_text(&result.batches)).unwrap_or_default())
}

/// Runs statements that must succeed; returns the rows of the last one, separated by `|`.
pub async fn lines(session: &mut Session, sql: &str) -> Vec<String> {
    let rows = query(session, sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    rows.into_iter().map(|row| row.join("|")).collect()
}

/// Returns the number of rows that the last statement wrote or returned.
pub async fn count(session: &mut Session, sql: &str) -> u64 {
    let results = session.run(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    results.last().unwrap().rows.unwrap()
}

/// Runs statements whose last must fail; returns the error.
pub async fn fails(session: &mut Session, sql: &str, state: SqlState) -> SqlError {
    match session.run(sql).await {
        Ok(_) => panic!("{sql}: succeeded"),
        Err(e) => {
            assert_eq!(e.state(), state, "{sql}: {e}");
            e
        }
    }
}

/// Returns the plan of a query.
pub async fn explain(session: &mut Session, sql: &str) -> String {
    lines(session, &format!("EXPLAIN {sql}")).await.join("\n")
}

/// Returns the number of rows that scans of a query have read.
pub async fn rows_read(session: &mut Session, sql: &str) -> u64 {
    let plan = lines(session, &format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
    let counts = plan.split("rows_read=").skip(1);
    // Large counts are printed as `10.00 K`.
    let number = |text: &str| {
        let digits: String = text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        let unit = if text[digits.len()..].starts_with(" K") { 1000.0 } else { 1.0 };
        (digits.parse::<f64>().unwrap() * unit) as u64
    };
    counts.map(number).sum()
}
