//! Completion at the prompt: keywords, names of tables and columns, commands with a backslash. Also
//! decides whether a statement continues on the next line.

use crate::text::must_escape;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper};

/// Keywords of the supported statements.
const KEYWORDS: &[&str] = &[
    "ALTER TABLE",
    "AND",
    "AS",
    "ASC",
    "AVG",
    "BEGIN",
    "BETWEEN",
    "BIGINT",
    "BOOLEAN",
    "BYTEA",
    "CASE",
    "COMMIT",
    "COUNT",
    "CREATE INDEX",
    "CREATE TABLE",
    "CREATE UNIQUE INDEX",
    "CREATE EXTERNAL TABLE",
    "DEFAULT",
    "DELETE FROM",
    "DESC",
    "DISTINCT",
    "DOUBLE PRECISION",
    "DROP INDEX",
    "DROP TABLE",
    "EXISTS",
    "EXPLAIN",
    "EXPLAIN ANALYZE",
    "FROM",
    "GROUP BY",
    "HAVING",
    "IN",
    "INSERT INTO",
    "INTEGER",
    "IS NOT NULL",
    "IS NULL",
    "JOIN",
    "LEFT JOIN",
    "LIKE",
    "LIMIT",
    "MAX",
    "MIN",
    "NOT NULL",
    "NULL",
    "OFFSET",
    "ON",
    "ON CONFLICT",
    "OR",
    "ORDER BY",
    "PRIMARY KEY",
    "REAL",
    "ROLLBACK",
    "SELECT",
    "SET",
    "SHOW TABLES",
    "SMALLINT",
    "SUM",
    "TEXT",
    "TIMESTAMP",
    "UNION",
    "UNIQUE",
    "UPDATE",
    "UUID",
    "VALUES",
    "WHERE",
    "WITH",
];

/// Commands of the prompt.
pub const COMMANDS: &[(&str, &str)] = &[
    ("\\d", "lists tables; `\\d TABLE` shows columns, key and indexes"),
    ("\\dt", "lists tables with their estimated rows and bytes"),
    ("\\timing", "turns the time of each statement on or off"),
    ("\\csv", "prints rows as CSV from now on"),
    ("\\json", "prints rows as JSON lines from now on"),
    ("\\table", "prints rows as a table from now on"),
    ("\\?", "shows this help"),
    ("\\q", "ends the program; so does Ctrl-D"),
];

/// See the module.
#[derive(Debug, Default)]
pub struct SqlHelper {
    /// Names of tables and columns.
    pub names: Vec<String>,
}

impl SqlHelper {
    /// Returns the completions of a word.
    fn complete_word(&self, word: &str) -> Vec<String> {
        if word.starts_with('\\') {
            let commands = COMMANDS.iter().map(|(name, _)| (*name).to_owned());
            return commands.filter(|name| name.starts_with(word)).collect();
        }
        let lower = word.to_lowercase();
        let quoted = |name: &String| {
            let plain =
                name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            if plain { name.clone() } else { format!("\"{name}\"") }
        };
        // A name with control characters would reach the terminal.
        let names = self.names.iter().filter(|name| !name.contains(must_escape));
        let names = names.filter(|name| name.to_lowercase().starts_with(&lower));
        let keywords = KEYWORDS.iter().filter(|k| k.to_lowercase().starts_with(&lower));
        names.map(quoted).chain(keywords.map(|k| (*k).to_owned())).collect()
    }
}

impl Completer for SqlHelper {
    type Candidate = Pair;
    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..position];
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '\\' || c == '?';
        let start = before
            .rfind(|c| !is_word(c))
            .map_or(0, |i| i + before[i..].chars().next().map_or(1, char::len_utf8));
        let word = &before[start..];
        if word.is_empty() {
            return Ok((start, Vec::new()));
        }
        let pair = |text: String| Pair { display: text.clone(), replacement: text };
        Ok((start, self.complete_word(word).into_iter().map(pair).collect()))
    }
}

impl Validator for SqlHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match is_complete(context.input()) {
            true => ValidationResult::Valid(None),
            false => ValidationResult::Incomplete,
        })
    }
}

impl Hinter for SqlHelper {
    type Hint = String;
}

impl Highlighter for SqlHelper {}
impl Helper for SqlHelper {}

/// Returns true if the input is empty, a command, or ends with a semicolon outside of quotes and
/// comments.
fn is_complete(input: &str) -> bool {
    let text = input.trim();
    if text.is_empty() || text.starts_with('\\') {
        return true;
    }
    let mut quote = None;
    let mut ends = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None => match c {
                '\'' | '"' => {
                    quote = Some(c);
                    ends = false;
                }
                '-' if chars.peek() == Some(&'-') => {
                    for skipped in chars.by_ref() {
                        if skipped == '\n' {
                            break;
                        }
                    }
                }
                ';' => ends = true,
                c if c.is_whitespace() => {}
                _ => ends = false,
            },
        }
    }
    ends && quote.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_with_a_semicolon_outside_of_quotes() {
        for text in ["", "  ", "\\d", "SELECT 1;", "SELECT ';';", "SELECT 1; -- done", "a\n;"] {
            assert!(is_complete(text), "{text}");
        }
        for text in ["SELECT 1", "SELECT ';'", "SELECT 1; SELECT", "-- ;", "SELECT \";"] {
            assert!(!is_complete(text), "{text}");
        }
    }

    #[test]
    fn names_and_keywords_are_completed() {
        let names = ["users", "User Id", "use\x1b[31m"].map(str::to_owned).to_vec();
        let helper = SqlHelper { names };
        assert_eq!(helper.complete_word("use"), ["users", "\"User Id\""]);
        assert_eq!(helper.complete_word("SEL"), ["SELECT"]);
        assert_eq!(helper.complete_word("\\d"), ["\\d", "\\dt"]);
    }
}
