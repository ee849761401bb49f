//! The command line: one subcommand for each file of `commands`.

use crate::commands::repair;
use crate::commands::{
    backup, checkpoint, compact, compaction_sim, count, delete, demo, dump, explain, export,
    families, get, import, levels, load, manifest, metrics, options, purge, put, restore, scan,
    sst, stats, verify,
};
use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  perigee import ./db ~/photos          every file becomes an entry: path -> bytes
  perigee get ./db 2026/moon.jpg > moon.jpg
  perigee scan ./db --prefix 2026/ --limit 5
  perigee stats ./db --json
  perigee verify ./db

Exit codes: 0 done, 1 the key is not there, 2 wrong use or an error, 3 damaged bytes were found.

Commands that only read change nothing, and work while a program has the database open. Commands that change something \
need it for themselves.";

/// Import, export, look into and check a Perigee database
#[derive(Debug, Parser)]
#[command(name = "perigee", version, after_help = EXAMPLES, disable_help_subcommand = true)]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub struct Args {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
    /// Print JSON: one document, or one line for each entry where there may be many
    #[arg(long, global = true)]
    pub json: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Read files, CSV, TSV or JSON lines into a database
    Import(Box<import::ImportArgs>),
    /// Read the same inputs as one bulk load: faster, visible and durable when it ends, or not at
    /// all
    Load(load::LoadArgs),
    /// Write entries out as files, JSON lines or CSV
    Export(export::ExportArgs),
    /// Print the value of a key, as it is
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
    /// Show the options of a database and what each trades, or store options from a file
    Options(options::OptionsArgs),
    /// Show levels, log, sizes on disk and what recovery finds
    Stats(stats::StatsArgs),
    /// Show the levels of the tree, and the files in them
    Levels(levels::LevelsArgs),
    /// Show which memtables, files, filters and blocks a get of a key asks, and what each costs
    Explain(explain::ExplainArgs),
    /// Show the properties of one klog or vlog
    Sst(sst::SstArgs),
    /// Show the history of the database: every edit of its manifest
    Manifest(manifest::ManifestArgs),
    /// Show statistics as OpenMetrics text
    Metrics(metrics::MetricsArgs),
    /// Read every byte of every file and check it
    Verify(verify::VerifyArgs),
    /// Decode a file of a database to text, damaged or in use as it may be
    Dump(dump::DumpArgs),
    /// Make a second database with the same contents, by hard links
    Checkpoint(checkpoint::CheckpointArgs),
    /// Make, list, check and prune backups
    Backup(backup::BackupArgs),
    /// Make a new database of everything that can be read of a damaged one
    Repair(repair::RepairArgs),
    /// Make a database of a generation of a backup
    Restore(restore::RestoreArgs),
    /// Merge every family into its deepest level
    Compact(compact::CompactArgs),
    /// Reclaim everything that deletes and overwrites left behind
    Purge(purge::PurgeArgs),
    /// Simulate compactions of a workload: write, read and space amplification over time
    CompactionSim(compaction_sim::CompactionSimArgs),
    /// Import a real tree, kill the import halfway, recover, finish and compare every byte
    Demo(demo::DemoArgs),
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
