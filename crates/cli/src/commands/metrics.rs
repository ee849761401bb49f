//! `perigee metrics`: statistics as OpenMetrics text.

use crate::failure::Result;
use crate::output::Out;
use crate::place::Place;
use clap::Args;
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  perigee metrics ./db
  perigee metrics ./db > /var/lib/node_exporter/perigee.prom
  perigee metrics ./db --json          the text in a JSON string

A program that has the database open serves the same text itself: db.metrics().";

/// Show statistics as OpenMetrics text
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct MetricsArgs {
    #[command(flatten)]
    place: Place,
}

/// Shows the metrics.
pub fn run(args: &MetricsArgs, out: &mut Out) -> Result<u8> {
    let db = args.place.open()?;
    let text = db.metrics();
    db.close()?;
    if out.json {
        out.value(&json!({"content_type": "application/openmetrics-text; version=1.0.0", "metrics": text}))?;
    } else {
        out.bytes(text.as_bytes())?;
    }
    Ok(0)
}
