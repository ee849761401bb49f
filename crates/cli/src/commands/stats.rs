//! `perigee stats`: prints the statistics of a database.

use crate::database_args::DatabaseArg;
use crate::failure::Result;
use crate::output::{Output, table};
use crate::size::{bytes, count, micros};
use crate::text::escape;
use clap::Args;
use perigee::Options;
use perigee::recovery::RecoveryReport;
use perigee::stats::Stats;
use serde_json::{Map, Value, json};
use std::path::Path;

use super::levels::family_json;
use super::unknown_stats;

const EXAMPLES: &str = "\
Examples:
  perigee stats ./db
  perigee stats ./db --json | jq .disk_bytes
  perigee stats ./db --json | jq '.families[].levels'

The statistics describe the files, even while a program has the database open. Counters, \
latencies, memory and other statistics known only to that program (db.stats()) are omitted; in \
JSON they are null and listed under `unknown`.";

/// Show levels, log, sizes on disk and the result of recovery
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct StatsArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// Also show counters, memory and I/O of this read-only open (not of a program that has the
    /// database open)
    #[arg(long)]
    all: bool,
}

/// Prints the statistics.
pub fn run(args: &StatsArgs, out: &mut Output) -> Result<u8> {
    let db = args.database.open_read_only()?;
    let (stats, options) = (db.admin().stats(), db.admin().options());
    db.close()?;
    if out.json {
        let mut value = stats_json(&stats, &options, &args.database.db);
        value["read_only"] = json!(true);
        if !args.all {
            unknown_stats::null_unknown_fields(&mut value);
        }
        out.json_line(&value)?
    } else {
        print_stats(&stats, args.all, out)?
    }
    Ok(0)
}

/// Returns all statistics as JSON.
pub fn stats_json(s: &Stats, options: &Options, path: &Path) -> Value {
    let counters: Map<String, Value> =
        s.counters.iter().map(|c| (c.name.to_owned(), json!(c.value))).collect();
    let (cached, capacity) = (s.cache.used, s.cache.capacity);
    let mut value = json!({
        "path": path.to_string_lossy(),
        "last_sequence": s.last_sequence,
        "durable_sequence": s.durable_sequence,
        "disk_bytes": s.disk_bytes,
        "snapshots": s.snapshots,
        "stall_reason": s.stall_reason,
        "background_error": s.background_error.as_ref().map(ToString::to_string),
        "wal": {"segments": s.wal.segments, "bytes": s.wal.bytes},
        "cache": {"bytes": cached, "capacity_bytes": capacity},
        "memory": {
            "memtables_bytes": s.families.iter().map(|f| f.memtable.bytes + f.immutable_memtables.bytes).sum::<u64>(),
            "tables_bytes": s.table_memory_bytes,
            "cache_bytes": cached,
        },
        "recovery": recovery_json(&s.recovery),
        "families": s.families.iter().map(|f| family_json(f, options)).collect::<Vec<_>>(),
        "counters": counters,
    });
    // Add the library's other statistics under their own names.
    if let Ok(Value::Object(all)) = serde_json::from_str(&s.to_json()) {
        for (name, more) in all {
            match (value.get_mut(&name), more) {
                (Some(Value::Object(known)), Value::Object(more)) => {
                    for (k, v) in more {
                        known.entry(k).or_insert(v);
                    }
                }
                (Some(_), _) => {}
                (None, more) => value[name] = more,
            }
        }
    }
    value
}

/// Returns the recovery report as JSON.
pub fn recovery_json(r: &RecoveryReport) -> Value {
    json!({
        "recovered_sequence": r.recovered_sequence, "replayed_operations": r.replayed_operations,
        "truncated_bytes": r.truncated_bytes, "reason": r.reason, "orphans": r.orphans,
        "clean": r.clean, "peak_bytes": r.peak_bytes, "elapsed_us": r.elapsed_us,
    })
}

fn print_stats(s: &Stats, all: bool, out: &mut Output) -> Result<()> {
    print_database_table(s, out)?;
    out.line("")?;
    print_families_table(s, out)?;
    out.line("")?;
    if !all {
        let unknown = unknown_stats::UNKNOWN_DESCRIPTION;
        out.line(format!(
            "not known to a read-only open (see db.stats() in the program that has the database \
             open): {unknown}"
        ))?;
        return Ok(());
    }
    out.line("of this read-only open alone, not of a program that has the database open:")?;
    print_activity_tables(s, out)?;
    let mut t = table(&["counter since open", ">value"]);
    for c in &s.counters {
        t.add_row([c.name.to_owned(), count(c.value)]);
    }
    out.line("")?;
    out.line(t.trim_fmt())
}

fn print_database_table(s: &Stats, out: &mut Output) -> Result<()> {
    let mut t = table(&["database", ""]);
    t.add_row(["on disk", &bytes(s.disk_bytes)]);
    t.add_row(["last sequence", &count(s.last_sequence)]);
    t.add_row(["log", &format!("{} in {} segments", bytes(s.wal.bytes), s.wal.segments)]);
    t.add_row(["recovery", &recovery_text(&s.recovery)]);
    out.line(t.trim_fmt())
}

/// Returns one line about the last recovery.
pub fn recovery_text(r: &RecoveryReport) -> String {
    let mut text = format!(
        "{} in {}, {} operations replayed",
        if r.clean { "clean" } else { "after a crash" },
        micros(r.elapsed_us),
        count(r.replayed_operations)
    );
    if r.truncated_bytes > 0 {
        text.push_str(&format!(
            ", {} truncated from the log ({})",
            bytes(r.truncated_bytes),
            r.reason
        ));
    }
    if r.orphans > 0 {
        text.push_str(&format!(", {} unknown files moved to trash/", r.orphans));
    }
    text
}

/// Prints the non-empty ones of these tables: memory, running jobs, stalls, I/O, latencies.
fn print_activity_tables(s: &Stats, out: &mut Output) -> Result<()> {
    let mut jobs = table(&["running", "family", "reason", ">done", ">of", ">written", ">for"]);
    for j in &s.running_jobs {
        jobs.add_row([
            j.kind.to_owned(),
            escape(j.family.as_bytes()),
            j.reason.to_owned(),
            bytes(j.bytes_done),
            bytes(j.bytes),
            bytes(j.bytes_written),
            micros(j.elapsed_us),
        ]);
    }
    let mut memory = table(&["memory of", ">bytes"]);
    for m in s.memory.iter().filter(|m| m.bytes > 0) {
        memory.add_row([m.owner.to_owned(), bytes(m.bytes)]);
    }
    let held = s.memory_bytes();
    memory.add_row(["total".to_owned(), format!("{} of {}", bytes(held), bytes(s.memory_budget))]);
    if let Some(resident) = s.process_resident_bytes {
        memory.add_row(["this process".to_owned(), bytes(resident)]);
    }
    let mut stalls = table(&["writers waited for", ">delays", ">time", ">stops", ">time"]);
    for w in &s.stalls {
        stalls.add_row([
            w.reason.to_owned(),
            count(w.delays),
            micros(w.delay_us),
            count(w.stops),
            micros(w.stop_us),
        ]);
    }
    let mut io = table(&["i/o for", ">reads", ">bytes", ">writes", ">bytes"]);
    for i in s.io.iter().filter(|i| i.reads + i.writes > 0) {
        io.add_row([
            i.cause.to_owned(),
            count(i.reads),
            bytes(i.bytes_read),
            count(i.writes),
            bytes(i.bytes_written),
        ]);
    }
    let mut latency = table(&["latency of", ">samples", ">one in", ">p50", ">p99", ">max"]);
    for l in s.latency.iter().filter(|l| l.count > 0) {
        let us = |ns: u64| format!("{}.{} us", ns / 1000, ns % 1000 / 100);
        latency.add_row([
            l.operation.to_owned(),
            count(l.count),
            count(l.one_in),
            us(l.p50_ns),
            us(l.p99_ns),
            us(l.max_ns),
        ]);
    }
    for t in [memory, jobs, stalls, io, latency].iter().filter(|t| t.row_count() > 0) {
        out.line("")?;
        out.line(t.trim_fmt())?;
    }
    Ok(())
}

fn print_families_table(s: &Stats, out: &mut Output) -> Result<()> {
    let mut t = table(&[
        "family",
        ">in the log",
        ">levels",
        ">tables",
        ">size",
        ">entries",
        ">vlogs",
        ">in use",
    ]);
    for f in &s.families {
        let used = f.levels.iter().filter(|l| l.files > 0);
        t.add_row([
            escape(f.name.as_bytes()),
            bytes(f.memtable.bytes),
            used.count().to_string(),
            f.levels.iter().map(|l| l.files).sum::<usize>().to_string(),
            bytes(f.levels.iter().map(|l| l.bytes).sum()),
            count(f.levels.iter().map(|l| l.entries).sum()),
            bytes(f.vlogs.bytes),
            bytes(f.vlogs.referenced_bytes),
        ]);
    }
    out.line(t.trim_fmt())
}
