//! One module per command, with its arguments, its help text and its implementation. Most share
//! only `database_args`, `failure`, `output`, `progress`, `size`, `table_formats`
//! and `text`.

pub mod backup;
pub mod checkpoint;
pub mod compact;
pub mod compaction_sim;
mod compaction_sim_html;
pub mod completions;
pub mod count;
pub mod delete;
pub mod demo;
pub mod dump;
pub mod explain;
pub mod export;
pub mod families;
pub mod get;
pub mod import;
pub mod levels;
mod levels_html;
pub mod load;
pub mod manifest;
pub mod manuals;
pub mod metrics;
pub mod purge;
pub mod options;
pub mod put;
pub mod repair;
pub mod restore;
pub mod scan;
pub mod serve;
pub mod sql;
pub mod sst;
mod unknown_stats;
pub mod stats;
pub mod tables;
pub mod verify;

use crate::args::Command;
use crate::failure::Result;
use crate::output::Output;

/// Runs a command and returns its exit code.
pub fn run(command: Command, out: &mut Output) -> Result<u8> {
    match command {
        Command::Import(args) => import::run(&args, out),
        Command::Load(args) => load::run(&args, out),
        Command::Export(args) => export::run(&args, out),
        Command::Get(args) => get::run(&args, out),
        Command::Put(args) => put::run(&args, out),
        Command::Delete(args) => delete::run(&args, out),
        Command::Scan(args) => scan::run(&args, out),
        Command::Count(args) => count::run(&args, out),
        Command::Families(args) => families::run(&args, out),
        Command::Options(args) => options::run(&args, out),
        Command::Stats(args) => stats::run(&args, out),
        Command::Tables(args) => tables::run(&args, out),
        Command::Levels(args) => levels::run(&args, out),
        Command::Explain(args) => explain::run(&args, out),
        Command::Sql(args) => sql::run(&args, out),
        Command::Serve(args) => serve::run(&args, out),
        Command::Sst(args) => sst::run(&args, out),
        Command::Manifest(args) => manifest::run(&args, out),
        Command::Metrics(args) => metrics::run(&args, out),
        Command::Verify(args) => verify::run(&args, out),
        Command::Dump(args) => dump::run(&args, out),
        Command::Checkpoint(args) => checkpoint::run(&args, out),
        Command::Backup(args) => backup::run(&args, out),
        Command::Repair(args) => repair::run(&args, out),
        Command::Restore(args) => restore::run(&args, out),
        Command::Compact(args) => compact::run(&args, out),
        Command::Purge(args) => purge::run(&args, out),
        Command::CompactionSim(args) => compaction_sim::run(&args, out),
        Command::Demo(args) => demo::run(&args, out),
        Command::Completions(args) => completions::run(&args, out),
        Command::Manuals(args) => manuals::run(&args, out),
    }
}
