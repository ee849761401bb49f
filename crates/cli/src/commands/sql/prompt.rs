//! The prompt: lines with editing, completion and a history in the state directory of the user.

use crate::commands::sql::completion::SqlHelper;
use crate::commands::sql::shell::Shell;
use crate::failure::{Failure, Result};
use crate::output::Output;
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{CompletionType, Config, Editor};
use std::path::PathBuf;

/// Lines that the history keeps.
const HISTORY_LINES: usize = 1000;

/// Returns the file of the history: `$XDG_STATE_HOME/perigee/sql_history`, by default in
/// `~/.local/state`.
fn history_file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("perigee/sql_history"))
}

/// Reads and runs statements until `\q` or the end of the input. Errors are printed.
pub fn run(shell: &mut Shell, out: &mut Output) -> Result<()> {
    let fails = |e: ReadlineError| Failure::other("io", format!("the terminal: {e}"));
    let config = Config::builder()
        .max_history_size(HISTORY_LINES)
        .map_err(fails)?
        .history_ignore_space(true)
        .completion_type(CompletionType::List)
        .build();
    let mut editor = Editor::<SqlHelper, DefaultHistory>::with_config(config).map_err(fails)?;
    let history = history_file();
    if let Some(file) = &history {
        // There is none at the first start.
        let _ = editor.load_history(file);
    }
    out.line("Statements end with a semicolon. \\? lists the commands, \\q ends the program.")?;
    out.flush()?;
    loop {
        editor.set_helper(Some(SqlHelper { names: shell.names() }));
        let prompt = match (shell.in_transaction(), shell.session.has_failed()) {
            (_, true) => "perigee!> ",
            (true, _) => "perigee*> ",
            _ => "perigee> ",
        };
        let line = match editor.readline(prompt) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(e) => return Err(fails(e)),
        };
        let text = line.trim();
        if text.is_empty() {
            continue;
        }
        // A history that cannot be kept does not stop the session.
        let _ = editor.add_history_entry(text);
        if matches!(text.trim_end_matches(';'), "\\q" | "exit" | "quit") {
            break;
        }
        match shell.run_text(text, out) {
            Ok(()) => {}
            Err(Failure::OutputClosed) => return Err(Failure::OutputClosed),
            Err(e) => {
                out.flush()?;
                e.report(false);
            }
        }
    }
    if let Some(file) = &history {
        let _ = file.parent().map(std::fs::create_dir_all);
        let _ = editor.save_history(file);
    }
    Ok(())
}
