//! Runs a history through a target and the oracle and compares every answer.

use crate::history::Op;
use crate::oracle::{Oracle, Outcome, Target};

/// Runs `ops`; `Err` describes the first difference. Returns how many operations were really performed.
pub fn run(target: &mut impl Target, ops: &[Op]) -> Result<u64, String> {
    let mut oracle = Oracle::default();
    let mut performed = 0;
    for (i, op) in ops.iter().enumerate() {
        let expected = oracle.perform(op);
        let got = target.perform(op);
        if !expected.allows(&got) {
            return Err(format!(
                "operation {i} {}: expected {}, got {}",
                shorten(&format!("{op:?}")),
                shorten(&format!("{expected:?}")),
                shorten(&format!("{got:?}"))
            ));
        }
        performed += u64::from(expected != Outcome::Skipped);
    }
    Ok(performed)
}

/// A text that fits a screen.
pub fn shorten(text: &str) -> String {
    if text.chars().count() <= 700 {
        return text.to_string();
    }
    let head: String = text.chars().take(690).collect();
    format!("{head}… ({} bytes)", text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Generator;
    use crate::toy::{MISTAKES, Mistake, Toy};

    #[test]
    fn a_clean_toy_passes() {
        for seed in 0..50 {
            let ops = Generator::new(seed).history(400);
            assert!(run(&mut Toy::new(Mistake::None), &ops).is_ok());
        }
    }

    #[test]
    fn every_mistake_is_flagged() {
        for &mistake in MISTAKES {
            let caught = (0..50).any(|seed| {
                let ops = Generator::new(seed).history(400);
                run(&mut Toy::new(mistake), &ops).is_err()
            });
            assert!(caught, "{mistake:?} was not flagged");
        }
    }
}
