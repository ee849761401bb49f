//! What `import` and `load` share: where entries come from, and the loop over the inputs.

use super::format::{self, Format};
use super::loader::Loader;
use super::{json_lines, rows, tree};
use crate::database_args::FamilyArg;
use crate::failure::Result;
use clap::Args;
use std::path::{Path, PathBuf};

/// Where entries come from, and what their keys are.
#[derive(Args, Debug)]
pub struct InputArgs {
    /// Directories, files, or - for stdin
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// What the paths are (default: a directory is a tree; .csv, .tsv, .jsonl by their endings)
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Column or field that is the key (default: the first column; the field `id`, else `key`)
    #[arg(long, value_name = "COLUMN")]
    key: Option<String>,
    /// Column family; made if it does not exist
    #[command(flatten)]
    pub family: FamilyArg,
    /// Put this in front of every key
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Start each key with the last part of its PATH, as in src/main.rs
    #[arg(long)]
    with_name: bool,
}

impl InputArgs {
    /// Every path with its format, before anything is written.
    pub fn paths_with_formats(&self) -> Result<Vec<(&Path, Format)>> {
        self.paths
            .iter()
            .map(|path| Ok((path.as_path(), format::format_of(path, self.format)?)))
            .collect()
    }
    /// What every key begins with.
    pub fn prefix(&self) -> Vec<u8> {
        self.prefix.clone().into_bytes()
    }
    /// Reads every input into the loader, whatever that does with it.
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
        }
    }
}
