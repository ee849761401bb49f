//! `perigee metrics`: statistics as OpenMetrics text.

use crate::failure::Result;
use crate::output::Out;
use crate::place::Place;
use clap::Args;
use serde_json::json;

use super::unknown;

const EXAMPLES: &str = "\
Examples:
  perigee metrics ./db
  perigee metrics ./db > /var/lib/node_exporter/perigee.prom
  perigee metrics ./db --json          the text in a JSON string

The figures are those of the files, also while a program has the database open. Counters, latencies and what else \
only that program knows are left out and named in the help of the metric perigee_read_only_open; the program itself \
serves all of them: db.metrics().";

/// Show statistics as OpenMetrics text
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct MetricsArgs {
    #[command(flatten)]
    place: Place,
}

/// Shows the metrics.
pub fn run(args: &MetricsArgs, out: &mut Out) -> Result<u8> {
    let db = args.place.open_read_only()?;
    let text = unknown::metrics(&db.metrics());
    db.close()?;
    if out.json {
        out.value(&json!({"content_type": "application/openmetrics-text; version=1.0.0", "metrics": text}))?;
    } else {
        out.bytes(text.as_bytes())?;
    }
    Ok(0)
}
