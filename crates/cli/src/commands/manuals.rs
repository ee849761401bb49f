//! `perigee manuals`, hidden: writes the manual pages and the completion scripts, for packages.

use crate::args;
use crate::commands::completions;
use crate::failure::{Failure, Result};
use crate::output::Output;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  perigee manuals ./share     writes share/man/man1/perigee*.1 and the completion scripts";

/// Write the manual pages and the completion scripts to a directory
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ManualsArgs {
    /// Directory, laid out like /usr/share; created if it does not exist
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

/// The shells whose scripts are installed, with the paths where the shells look for them.
const SCRIPTS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/perigee"),
    (Shell::Zsh, "zsh/site-functions/_perigee"),
    (Shell::Fish, "fish/vendor_completions.d/perigee.fish"),
];

fn create_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|e| Failure::file("create", path, &e))
}

/// Writes the files.
pub fn run(args: &ManualsArgs, out: &mut Output) -> Result<u8> {
    let pages = args.directory.join("man/man1");
    create_dir(&pages)?;
    let command = args::Args::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, &pages).map_err(|e| Failure::file("write to", &pages, &e))?;
    for (shell, file) in SCRIPTS {
        let path = args.directory.join(file);
        create_dir(path.parent().unwrap_or(&args.directory))?;
        fs::write(&path, completions::script(shell))
            .map_err(|e| Failure::file("write", &path, &e))?;
    }
    let directory = args.directory.display().to_string();
    out.json_or_text(&json!({ "directory": directory }), format!("written to {directory}"))?;
    Ok(0)
}
