//! `perigee completions`: prints a completion script for a shell, generated from the parser.

use crate::args;
use crate::failure::Result;
use crate::output::Output;
use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::{Shell, generate};
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  perigee completions bash > ~/.local/share/bash-completion/completions/perigee
  perigee completions zsh > ~/.zfunc/_perigee       with ~/.zfunc in fpath
  perigee completions fish > ~/.config/fish/completions/perigee.fish

`make install` installs the scripts for bash, zsh and fish.";

/// Print a script that completes commands and options in a shell
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Returns the completion script for a shell.
pub fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    generate(shell, &mut args::Args::command(), "perigee", &mut script);
    script
}

/// Prints the script.
pub fn run(args: &CompletionsArgs, out: &mut Output) -> Result<u8> {
    let script = script(args.shell);
    if out.json {
        let name = args.shell.to_possible_value().map(|v| v.get_name().to_owned());
        let script = String::from_utf8_lossy(&script);
        out.json_line(&json!({ "shell": name, "script": script }))?;
    } else {
        out.bytes(&script)?;
    }
    Ok(0)
}
