//! Runs a history through a target and the oracle and compares every answer.

use crate::history::Op;
use crate::oracle::{Oracle, Outcome, Target};
use perigee::KeyComparator;

/// Runs `ops` and returns the number of operations actually performed. `Err` describes the first
/// difference.
pub fn run(target: &mut impl Target, ops: &[Op], comparator: KeyComparator) -> Result<u64, String> {
    let mut oracle = Oracle::new(comparator);
    let mut performed = 0;
    for (i, op) in ops.iter().enumerate() {
        let expected = oracle.perform(op);
        let got = target.perform(op);
        if !expected.allows(&got) {
            return Err(format!(
                "operation {i}: expected {}, got {}, of {}",
                shorten(&expected, 250),
                shorten(&got, 250),
                shorten(op, 400)
            ));
        }
        if let Outcome::Time(now, _) = got {
            oracle.set_now(now);
        }
        performed += u64::from(expected != Outcome::Skipped);
    }
    Ok(performed)
}

/// Formats a value for messages: its debug text with byte lists as text, cut to `max` characters.
pub fn shorten(what: &impl std::fmt::Debug, max: usize) -> String {
    let mut text = String::new();
    let full = format!("{what:?}");
    let mut rest = &full[..];
    // Byte lists become text: "[107, 0]" becomes "k\\x00".
    while let Some(start) = rest.find('[') {
        let (before, list) = rest.split_at(start);
        text.push_str(before);
        let end = list.find(']').map_or(list.len(), |i| i + 1);
        let bytes: Option<Vec<u8>> =
            list[..end].trim_matches(['[', ']']).split(", ").map(|n| n.parse().ok()).collect();
        match bytes {
            Some(bytes) => text.push_str(&format!("\"{}\"", bytes.escape_ascii())),
            None => {
                text.push('[');
                rest = &list[1..];
                continue;
            }
        }
        rest = &list[end..];
    }
    text.push_str(rest);
    cut(&text, max)
}

/// Cuts a text to `max` characters.
pub fn cut(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_string();
    }
    format!("{}… ({} bytes)", text.chars().take(max).collect::<String>(), text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faulty_oracle::{FaultyOracle, MISTAKES, Mistake};
    use crate::history::Generator;

    #[test]
    fn correct_oracle_passes() {
        for seed in 0..50 {
            let ops = Generator::new(seed).history(400);
            assert!(run(&mut FaultyOracle::new(Mistake::None), &ops, KeyComparator::Bytes).is_ok());
        }
    }

    #[test]
    fn every_mistake_is_flagged() {
        for &mistake in MISTAKES {
            let caught = (0..50).any(|seed| {
                let ops = Generator::new(seed).history(400);
                run(&mut FaultyOracle::new(mistake), &ops, KeyComparator::Bytes).is_err()
            });
            assert!(caught, "{mistake:?} was not flagged");
        }
    }
}
