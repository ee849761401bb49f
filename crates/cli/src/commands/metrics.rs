//! `perigee metrics`: prints statistics as OpenMetrics text.

use crate::database_args::DatabaseArg;
use crate::failure::Result;
use crate::output::Output;
use clap::Args;
use serde_json::json;

use super::unknown_stats;

const EXAMPLES: &str = "\
Examples:
  perigee metrics ./db
  perigee metrics ./db > /var/lib/node_exporter/perigee.prom
  perigee metrics ./db --json          the text in a JSON string

The metrics describe the files, even while a program has the database open. Counters, latencies \
and other metrics known only to that program are omitted and listed in the help of the metric \
perigee_read_only_open. That program itself can export all of them: db.metrics().";

/// Show statistics as OpenMetrics text
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct MetricsArgs {
    #[command(flatten)]
    database: DatabaseArg,
}

/// Prints the metrics.
pub fn run(args: &MetricsArgs, out: &mut Output) -> Result<u8> {
    let db = args.database.open_read_only()?;
    let text = unknown_stats::remove_unknown_metrics(&db.admin().metrics());
    db.close()?;
    if out.json {
        out.json_line(&json!({"content_type": "application/openmetrics-text; version=1.0.0", "metrics": text}))?;
    } else {
        out.bytes(text.as_bytes())?;
    }
    Ok(0)
}
