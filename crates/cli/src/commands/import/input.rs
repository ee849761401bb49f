//! Input arguments that `import` and `load` share, and the loop over the inputs.

use super::format::{self, Format};
use super::loader::Loader;
use super::{json_lines, rows, tree};
use crate::database_args::FamilyArg;
use crate::failure::{Failure, Result, show_path};
use clap::Args;
use std::path::{Path, PathBuf};

/// The sources of entries, and how their keys are formed.
#[derive(Args, Debug)]
pub struct InputArgs {
    /// Directories, files, or - for stdin
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Input format (default: tree for a directory; by the extension .csv, .tsv, .jsonl or
    /// .parquet)
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Column (CSV, TSV) or field (JSON lines) to use as the key (default: the first column; the
    /// field `id`, else `key`); with --table, also several: 'city,day desc'
    #[arg(long, value_name = "COLUMN")]
    key: Option<String>,
    /// Column family, created if it does not exist
    #[command(flatten)]
    pub family: FamilyArg,
    /// Prefix to add to every key
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Prefix each key with the last component of its PATH: main.rs below ./src becomes src/main.rs
    #[arg(long)]
    with_name: bool,
}

impl InputArgs {
    /// Returns every path with its format. Called before anything is written, so that an unknown
    /// format has no effect.
    pub fn paths_with_formats(&self) -> Result<Vec<(&Path, Format)>> {
        self.paths
            .iter()
            .map(|path| Ok((path.as_path(), format::format_of(path, self.format)?)))
            .collect()
    }
    /// Returns every path with its format, for an import of entries.
    pub fn entry_paths(&self) -> Result<Vec<(&Path, Format)>> {
        let paths = self.paths_with_formats()?;
        match paths.iter().find(|(_, format)| *format == Format::Parquet) {
            Some((path, _)) => Err(parquet_entries_failure(path)),
            None => Ok(paths),
        }
    }
    /// Returns the requested key.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
    /// Returns the prefix of every key.
    pub fn prefix(&self) -> Vec<u8> {
        self.prefix.clone().into_bytes()
    }
    /// Passes the entries of every input to the loader.
    pub fn read_inputs(&self, inputs: &[(&Path, Format)], loader: &mut Loader<'_>) -> Result<()> {
        for (path, format) in inputs {
            let name = if self.with_name { tree::last_path_part(path)? } else { Vec::new() };
            loader.begin_path(&name);
            self.read_input(path, *format, loader)?;
        }
        Ok(())
    }

    fn read_input(&self, path: &Path, format: Format, loader: &mut Loader<'_>) -> Result<()> {
        let column = self.key.as_deref();
        match format {
            Format::Tree => tree::import_tree(path, loader),
            Format::Csv => rows::import_rows(path, b',', column, loader),
            Format::Tsv => rows::import_rows(path, b'\t', column, loader),
            Format::Jsonl => {
                json_lines::import_lines(path, json_lines::LineFormat::Rows { key: column }, loader)
            }
            Format::Entries => {
                json_lines::import_lines(path, json_lines::LineFormat::Entries, loader)
            }
            Format::Parquet => Err(parquet_entries_failure(path)),
        }
    }
}

fn parquet_entries_failure(path: &Path) -> Failure {
    Failure::usage(format!(
        "{}: the rows of a Parquet file are imported into a table",
        show_path(path)
    ))
    .hint("add --table NAME to `perigee import`")
}
