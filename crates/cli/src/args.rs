//! The command line: one subcommand per module of `commands`.

use crate::commands::repair;
use crate::commands::{
    backup, checkpoint, compact, compaction_sim, completions, count, delete, demo, dump, explain,
    export, families, get, import, levels, load, manifest, manuals, metrics, options, purge, put,
    restore, scan, serve, sql, sst, stats, tables, verify,
};
use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  perigee import ./db ~/photos          each file becomes an entry: path -> bytes
  perigee get ./db 2026/moon.jpg > moon.jpg
  perigee scan ./db --prefix 2026/ --limit 5
  perigee import ./db --from-sqlite app.db    tables with their keys and indexes
  perigee tables ./db
  perigee stats ./db --json
  perigee verify ./db

Exit codes: 0 success, 1 key not found, 2 usage error or any other error, 3 corruption found.

Commands that only read change nothing and work while a program has the database open. Commands \
that change something need exclusive access.";

/// Import, export, inspect and check a Perigee database
#[derive(Debug, Parser)]
#[command(name = "perigee", version, after_help = EXAMPLES)]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub struct Args {
    /// The command to run
    #[command(subcommand)]
    pub command: Command,
    /// Print JSON: one document, or one line per entry for commands that list entries
    #[arg(long, global = true)]
    pub json: bool,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Read files, CSV, TSV, JSON lines, Parquet or a SQLite database into entries or tables
    Import(Box<import::ImportArgs>),
    /// Read the same inputs as `import`, but as one atomic bulk load, which is faster
    Load(load::LoadArgs),
    /// Write entries to files, JSON lines or CSV, or the rows of a table to JSON lines, CSV or Parquet
    Export(export::ExportArgs),
    /// Print the value of a key, byte for byte
    Get(get::GetArgs),
    /// Set a key to a value
    Put(put::PutArgs),
    /// Remove a key
    Delete(delete::DeleteArgs),
    /// List entries in key order
    Scan(scan::ScanArgs),
    /// Count entries
    Count(count::CountArgs),
    /// List, create, rename, clone, clear or drop column families
    Families(families::FamiliesArgs),
    /// Show the options of a database and the trade-off of each, or store options from a file
    Options(options::OptionsArgs),
    /// Show levels, log, sizes on disk and the result of recovery
    Stats(stats::StatsArgs),
    /// List the tables with columns, keys, indexes, rows and bytes, or describe one table
    Tables(tables::TablesArgs),
    /// Show the levels of the tree and their files
    Levels(levels::LevelsArgs),
    /// Show which memtables, files, filters and blocks a get of a key reads, and the cost of each
    Explain(explain::ExplainArgs),
    /// Show the properties of one klog or vlog
    Sst(sst::SstArgs),
    /// Show the history of the database: every edit in its manifest
    Manifest(manifest::ManifestArgs),
    /// Show statistics as OpenMetrics text
    Metrics(metrics::MetricsArgs),
    /// Read and check every byte of every file
    Verify(verify::VerifyArgs),
    /// Decode a database file to text, even if it is damaged or in use
    Dump(dump::DumpArgs),
    /// Create a second database with the same contents, using hard links
    Checkpoint(checkpoint::CheckpointArgs),
    /// Create, list, verify and prune backups
    Backup(backup::BackupArgs),
    /// Create a new database from everything readable in a damaged one
    Repair(repair::RepairArgs),
    /// Create a database from a backup generation
    Restore(restore::RestoreArgs),
    /// Merge every column family into its deepest level
    Compact(compact::CompactArgs),
    /// Reclaim all space used by deleted and overwritten entries
    Purge(purge::PurgeArgs),
    /// Simulate compactions of a workload: write, read and space amplification over time
    CompactionSim(compaction_sim::CompactionSimArgs),
    /// Run SQL statements over the tables of a database
    Sql(sql::SqlArgs),
    /// Serve the tables of a database to clients of PostgreSQL
    Serve(serve::ServeArgs),
    /// Import a directory tree, kill the import halfway, recover, finish and compare every byte
    Demo(demo::DemoArgs),
    /// Print a script that completes commands and options in a shell
    Completions(completions::CompletionsArgs),
    /// Write the manual pages and the completion scripts to a directory
    #[command(hide = true)]
    Manuals(manuals::ManualsArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples() {
        for command in Args::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("perigee "), "{} has no example", command.get_name());
        }
    }
}
