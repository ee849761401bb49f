//! Tests of the texts generated from the argument parser: the reference in `docs/CLI.md` and the
//! help texts.

use crate::args::Args;
use clap::{Arg, ArgAction, Command, CommandFactory};
use std::path::Path;

const BEGIN: &str = "<!-- Generated from the argument parser by `UPDATE_DOCS=1 cargo test -p perigeedb-cli reference`: do not edit. -->\n";
const END: &str = "<!-- End of generated text. -->\n";

fn root() -> Command {
    // The subcommand `help`, which every program with subcommands has, is not listed.
    let mut root = Args::command().disable_help_subcommand(true);
    root.build();
    root
}

/// Returns the subcommands that the help lists.
fn listed(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

/// Returns the reference: a table of the commands, and a section for each.
fn reference() -> String {
    let root = root();
    let mut out = String::from("\n| command | what it does |\n|---|---|\n");
    for command in listed(&root) {
        let anchor = format!("perigee-{}", command.get_name());
        out += &format!("| [`{}`](#{anchor}) | {} |\n", command.get_name(), about(command));
    }
    listed(&root).for_each(|command| section(command, "perigee", 3, &mut out));
    out.push('\n');
    out
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn section(command: &Command, parent: &str, depth: usize, out: &mut String) {
    let name = format!("{parent} {}", command.get_name());
    let usage = command.clone().render_usage().to_string();
    let usage =
        usage.trim_start_matches("Usage: ").split_whitespace().collect::<Vec<_>>().join(" ");
    *out += &format!("\n{} {name}\n{}.\n\n`{usage}`\n", "#".repeat(depth), about(command));
    let shown =
        |a: &&Arg| !a.is_hide_set() && !["help", "version", "json"].contains(&a.get_id().as_str());
    let mut args: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    args.sort_by_key(|a| (!a.is_positional(), a.get_index()));
    if !args.is_empty() {
        *out += "\n| argument | meaning |\n|---|---|\n";
    }
    args.iter().for_each(|arg| *out += &row(arg));
    command.get_subcommands().for_each(|sub| section(sub, &name, depth + 1, out));
}

fn row(arg: &Arg) -> String {
    let takes_value = !matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::Count);
    let names: Vec<String> =
        arg.get_value_names().into_iter().flatten().map(ToString::to_string).collect();
    let many = arg.get_num_args().is_some_and(|n| n.max_values() > names.len().max(1));
    let values =
        if takes_value { names.join(" ") + if many { "..." } else { "" } } else { String::new() };
    let name = match arg.get_long() {
        Some(long) => format!("--{long} {values}"),
        None => values,
    };
    let mut meaning =
        arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let possible: Vec<String> =
        arg.get_possible_values().iter().map(|v| format!("`{}`", v.get_name())).collect();
    if takes_value && !possible.is_empty() {
        meaning += &format!("; one of {}", possible.join(", "));
    }
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|v| v.to_string_lossy().into()).collect();
    if takes_value && defaults.iter().any(|d| !d.is_empty()) {
        meaning += &format!(" [default: {}]", defaults.join(" "));
    }
    let meaning = meaning.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    format!("| `{}` | {meaning} |\n", name.trim())
}

#[test]
fn cli_page_contains_the_reference() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/CLI.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("docs/CLI.md has the begin marker");
    let (current, after) = rest.split_once(END).expect("docs/CLI.md has the end marker");
    let expected = reference();
    assert!(
        expected.contains("### perigee compaction-sim\n")
            && expected.contains("#### perigee backup create\n")
    );
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
        return;
    }
    for (line, expected_line) in current.lines().zip(expected.lines()) {
        assert_eq!(
            line, expected_line,
            "docs/CLI.md is not up to date: run UPDATE_DOCS=1 cargo test -p perigeedb-cli reference"
        );
    }
    assert_eq!(
        current, expected,
        "docs/CLI.md is not up to date: run UPDATE_DOCS=1 cargo test -p perigeedb-cli reference"
    );
}

/// Collects every command and subcommand with its full name.
fn collect_commands(command: &Command, parent: &str, out: &mut Vec<(String, Command)>) {
    let name = format!("{parent} {}", command.get_name());
    command.get_subcommands().for_each(|sub| collect_commands(sub, &name, out));
    out.push((name.trim().to_owned(), command.clone()));
}

/// Regression test: paragraphs broken by hand at 115 columns were broken again by clap at 100,
/// which left lines of one word.
#[test]
fn help_paragraphs_are_not_wrapped_twice() {
    let mut commands = Vec::new();
    collect_commands(&root(), "", &mut commands);
    assert!(commands.len() > 25);
    let mut checked = 0;
    for (name, command) in commands {
        for width in [80, 100] {
            let help = command.clone().term_width(width).render_long_help().to_string();
            let lines: Vec<&str> = help.lines().collect();
            for pair in lines.windows(2).filter(|pair| is_prose(pair[0]) && is_prose(pair[1])) {
                let next = pair[1].split(' ').next().unwrap_or_default();
                let full = pair[0].chars().count() + 1 + next.chars().count() > width;
                assert!(
                    full,
                    "`{name} --help` at {width} columns breaks a line early:\n{}\n{}",
                    pair[0], pair[1]
                );
                checked += 1;
            }
        }
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in after.lines().filter(|l| l.starts_with(' ')) {
            assert!(
                line.chars().count() <= 100,
                "`{name} --help`: an example is too long to stay on a line:\n{line}"
            );
        }
    }
    assert!(checked > 20, "only {checked} lines were checked");
}

/// Returns true for lines of paragraphs: not indented, not a heading.
fn is_prose(line: &str) -> bool {
    !line.is_empty()
        && !line.starts_with(' ')
        && !line.ends_with(':')
        && !line.starts_with("Usage: ")
}
