//! Merge operators: how an operand is merged into the value below it, or into an older operand.
//! Defines the two built-in operators, the registry of user-defined operators, and the wrapper that
//! calls either kind and converts a panic into an error that names the key and the operator.
//!
//! Requirements on an operator, for all bytes that it does not refuse: 1. it is associative, `(a b)
//! c = a (b c)`: operands are merged in any grouping, but never reordered; 2. without a base value,
//! `merge(None, a)` returns the value that `a` alone represents, and merging into that value is the
//! same as merging into `a`; 3. it is deterministic: the same arguments always give the same
//! result. Values and operands therefore have one form, and an operator does not need to
//! distinguish them.

use crate::limits::{MERGE_NAME_BYTES_MAX, VALUE_BYTES_MAX};
use crate::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Merges operands into values.
pub trait MergeOperator: Send + Sync {
    /// Returns its name, which is stored with the column families that use it.
    fn name(&self) -> &str;
    /// Appends to `out`, which is empty, the result of merging `right` into `left`. `left` is a
    /// value or an older operand; `None` if there is no base value.
    ///
    /// # Errors
    /// If the two cannot be merged. A read of the key then fails; a compaction keeps both
    /// unchanged.
    fn merge(&self, key: &[u8], left: Option<&[u8]>, right: &[u8], out: &mut Vec<u8>)
    -> Result<()>;
    /// Merges one or more operands, oldest first, into `left`. The default implementation divides
    /// the operands into halves, recursively, so that an operator with growing results copies each
    /// byte a logarithmic number of times.
    ///
    /// # Errors
    /// Same as [`MergeOperator::merge`].
    fn merge_all(
        &self,
        key: &[u8],
        left: Option<&[u8]>,
        rights: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match rights {
            [] => Err(Error::internal("merge_all was called without operands")),
            [one] => self.merge(key, left, one, out),
            many => {
                let (older, newer) = many.split_at(many.len() / 2);
                let (mut low, mut high) = (Vec::new(), Vec::new());
                self.merge_all(key, left, older, &mut low)?;
                if let [one] = newer {
                    return self.merge(key, Some(&low), one, out);
                }
                self.merge_all(key, Some(newer[0]), &newer[1..], &mut high)?;
                self.merge(key, Some(&low), &high, out)
            }
        }
    }
    /// Validates an operand before it is written; an error refuses the write.
    ///
    /// # Errors
    /// If the operand is malformed, so that no merge of it could succeed.
    fn check(&self, operand: &[u8]) -> Result<()> {
        let _ = operand;
        Ok(())
    }
}

/// Adds signed 8-byte little-endian integers. The sum wraps around, because saturation would not be
/// associative.
#[derive(Debug)]
struct CounterOperator;

fn decode_counter(bytes: &[u8]) -> Result<i64> {
    let eight = bytes.try_into().map_err(|_| {
        Error::invalid("a counter must be a signed 8-byte little-endian integer")
            .expected(8, bytes.len())
    })?;
    Ok(i64::from_le_bytes(eight))
}

impl MergeOperator for CounterOperator {
    fn name(&self) -> &str {
        "counter"
    }
    fn merge(
        &self,
        key: &[u8],
        left: Option<&[u8]>,
        right: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.merge_all(key, left, &[right], out)
    }
    fn merge_all(
        &self,
        _: &[u8],
        left: Option<&[u8]>,
        rights: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut sum = left.map_or(Ok(0), decode_counter)?;
        for right in rights {
            sum = sum.wrapping_add(decode_counter(right)?);
        }
        out.extend_from_slice(&sum.to_le_bytes());
        Ok(())
    }
    fn check(&self, operand: &[u8]) -> Result<()> {
        decode_counter(operand).map(drop)
    }
}

/// Appends operands, with a separator between any two.
#[derive(Debug)]
struct AppendOperator {
    name: String,
    separator: String,
}

impl MergeOperator for AppendOperator {
    fn name(&self) -> &str {
        &self.name
    }
    fn merge(
        &self,
        key: &[u8],
        left: Option<&[u8]>,
        right: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.merge_all(key, left, &[right], out)
    }
    fn merge_all(
        &self,
        _: &[u8],
        left: Option<&[u8]>,
        rights: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let all = || left.into_iter().chain(rights.iter().copied());
        let bytes: usize = all().map(|part| part.len() + self.separator.len()).sum();
        if bytes > VALUE_BYTES_MAX + self.separator.len() {
            return Err(too_long_error(bytes));
        }
        out.reserve_exact(bytes);
        for (i, part) in all().enumerate() {
            if i > 0 {
                out.extend_from_slice(self.separator.as_bytes());
            }
            out.extend_from_slice(part);
        }
        Ok(())
    }
}

fn too_long_error(bytes: usize) -> Error {
    Error::invalid("the merged value is too long")
        .expected(format_args!("at most {VALUE_BYTES_MAX} bytes"), bytes)
}

/// The merge operator of a column family; stored by name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeRule {
    /// Values are signed 8-byte little-endian integers, to which operands are added. The sum wraps
    /// around on overflow. An operand of another length is refused when it is written; a base value
    /// of another length (written by a put) makes reads of the key fail as long as operands lie
    /// above it.
    Counter,
    /// An operand is appended to the value, after this separator (at most 64 bytes); without a
    /// value, the operand is the value. An empty value counts as a value: the result then begins
    /// with the separator.
    Append(String),
    /// A user-defined operator, by its [`MergeOperator::name`]. The database can be opened for
    /// writing only if the operator is registered.
    User(String),
}

const COUNTER_NAME: &str = "counter";
const APPEND_PREFIX: &str = "append:";
const USER_PREFIX: &str = "user:";

impl MergeRule {
    /// Returns the stored name.
    pub fn stored_name(&self) -> String {
        match self {
            MergeRule::Counter => COUNTER_NAME.to_owned(),
            MergeRule::Append(separator) => format!("{APPEND_PREFIX}{separator}"),
            MergeRule::User(name) => format!("{USER_PREFIX}{name}"),
        }
    }
    /// Returns the rule with a stored name.
    ///
    /// # Errors
    /// `FormatTooNew` for a name that this version does not support.
    pub fn from_stored_name(word: &str) -> Result<MergeRule> {
        if word == COUNTER_NAME {
            return Ok(MergeRule::Counter);
        }
        if let Some(separator) = word.strip_prefix(APPEND_PREFIX) {
            return Ok(MergeRule::Append(separator.to_owned()));
        }
        match word.strip_prefix(USER_PREFIX) {
            Some(name) => Ok(MergeRule::User(name.to_owned())),
            None => Err(Error::new(
                ErrorKind::FormatTooNew,
                format!(
                    "the column family uses the merge operator {word:?}, which this version does \
                     not support: open it with a newer Perigee"
                ),
            )),
        }
    }
    /// Checks the name or the separator.
    ///
    /// # Errors
    /// `InvalidArgument` if it is too long, or a name is empty or contains control characters.
    pub fn check(&self) -> Result<()> {
        let (text, min_bytes) = match self {
            MergeRule::Counter => return Ok(()),
            MergeRule::Append(separator) => (separator, 0),
            MergeRule::User(name) => (name, 1),
        };
        let control = min_bytes > 0 && text.chars().any(char::is_control);
        if (min_bytes..=MERGE_NAME_BYTES_MAX).contains(&text.len()) && !control {
            return Ok(());
        }
        Err(Error::invalid(
            "the name of a merge operator must have 1 to 64 bytes and no control characters, a \
             separator at most 64 bytes",
        )
        .expected(
            format_args!("{min_bytes} to {MERGE_NAME_BYTES_MAX} bytes"),
            format_args!("{text:?}"),
        ))
    }
}

/// Formats as in an options file: `counter`, `append:SEPARATOR`, `user:NAME`.
impl std::fmt::Display for MergeRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.stored_name())
    }
}

/// Parses what `Display` formats.
///
/// # Errors
/// `InvalidArgument` if the text is none of these, or name or separator break a rule.
impl std::str::FromStr for MergeRule {
    type Err = Error;
    fn from_str(text: &str) -> Result<MergeRule> {
        let parsed = MergeRule::from_stored_name(text).and_then(|rule| rule.check().map(|()| rule));
        parsed.map_err(|_| {
            let forms = "\"counter\", \"append:, \", \"user:NAME\"";
            Error::invalid(format!("{text:?} is not one of {forms}"))
        })
    }
}

/// Registry of user-defined merge operators, by name.
#[derive(Clone, Default)]
pub struct MergeOperators(BTreeMap<String, Arc<dyn MergeOperator>>);

impl std::fmt::Debug for MergeOperators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl MergeOperators {
    /// Registers an operator, replacing one of the same name.
    pub fn register(&mut self, operator: Arc<dyn MergeOperator>) {
        self.0.insert(operator.name().to_owned(), operator);
    }
    /// Checks that the operator of `rule` is available.
    ///
    /// # Errors
    /// `InvalidArgument` for a user-defined operator that is not registered.
    pub fn check_registered(&self, rule: Option<&MergeRule>) -> Result<()> {
        match rule {
            Some(MergeRule::User(name)) if !self.0.contains_key(name) => {
                Err(unregistered_error(name))
            }
            _ => Ok(()),
        }
    }
    /// Returns the merger of a rule; `None` without a rule. If the operator is not registered,
    /// every call of the merger fails.
    pub fn merger(&self, rule: Option<&MergeRule>) -> Option<Arc<OperandMerger>> {
        let rule = rule?;
        let operator: Option<Arc<dyn MergeOperator>> = match rule {
            MergeRule::Counter => Some(Arc::new(CounterOperator)),
            MergeRule::Append(separator) => Some(Arc::new(AppendOperator {
                name: rule.stored_name(),
                separator: separator.clone(),
            })),
            MergeRule::User(name) => self.0.get(name).cloned(),
        };
        Some(Arc::new(OperandMerger { rule: rule.clone(), operator }))
    }
}

fn unregistered_error(name: &str) -> Error {
    Error::invalid(format!(
        "the merge operator {name:?} is not registered: pass it to \
         Options::register_merge_operator when opening the database"
    ))
}

/// The merge operator of a column family. Catches panics and adds operator and key to errors.
pub struct OperandMerger {
    rule: MergeRule,
    operator: Option<Arc<dyn MergeOperator>>,
}

impl std::fmt::Debug for OperandMerger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OperandMerger({:?})", self.rule)
    }
}

impl OperandMerger {
    /// Returns the rule.
    pub fn rule(&self) -> &MergeRule {
        &self.rule
    }
    fn operator(&self) -> Result<&dyn MergeOperator> {
        match (&self.operator, &self.rule) {
            (Some(operator), _) => Ok(&**operator),
            (None, MergeRule::User(name)) => Err(unregistered_error(name)),
            (None, _) => Err(Error::internal("a built-in merge operator is missing")),
        }
    }
    /// Validates an operand before it is written.
    ///
    /// # Errors
    /// The error of the operator.
    pub fn check_operand(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.call_operator(key, |operator| operator.check(operand))
    }
    /// Returns the result of merging operands, oldest first, into `left`. `None` means that no
    /// older version exists or ever will.
    ///
    /// # Errors
    /// The error of the operator, with its name and the key; `InvalidArgument` if the result is too
    /// long.
    pub fn full_merge(&self, key: &[u8], left: Option<&[u8]>, rights: &[&[u8]]) -> Result<Vec<u8>> {
        self.call_operator(key, |operator| {
            let mut out = Vec::new();
            operator.merge_all(key, left, rights, &mut out)?;
            if out.len() > VALUE_BYTES_MAX { Err(too_long_error(out.len())) } else { Ok(out) }
        })
    }
    /// Merges several operands, oldest first, into one operand.
    ///
    /// # Errors
    /// Same as [`OperandMerger::full_merge`].
    pub fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Result<Vec<u8>> {
        match operands {
            [] => Err(Error::internal("partial_merge was called without operands")),
            [one] => Ok(one.to_vec()),
            [oldest, newer @ ..] => self.full_merge(key, Some(oldest), newer),
        }
    }

    fn call_operator<T>(
        &self,
        key: &[u8],
        work: impl FnOnce(&dyn MergeOperator) -> Result<T>,
    ) -> Result<T> {
        let operator = self.operator()?;
        let done = catch_unwind(AssertUnwindSafe(|| work(operator)));
        done.unwrap_or_else(|_| Err(Error::new(ErrorKind::InvalidArgument, "it panicked"))).map_err(
            |e| {
                let shown = &key[..key.len().min(64)];
                let more = if shown.len() < key.len() { "..." } else { "" };
                let context = format!(
                    "the merge operator {:?} failed, key \"{}{more}\"",
                    self.rule.stored_name(),
                    shown.escape_ascii()
                );
                let kind = e.kind();
                e.wrap(kind, &context)
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merger(rule: MergeRule) -> Arc<OperandMerger> {
        MergeOperators::default().merger(Some(&rule)).unwrap()
    }

    #[test]
    fn counter_adds_wraps_and_refuses_other_lengths() {
        let m = merger(MergeRule::Counter);
        let n = |n: i64| n.to_le_bytes();
        assert_eq!(m.full_merge(b"k", Some(&n(5)), &[&n(-7), &n(3)]).unwrap(), n(1));
        assert_eq!(m.full_merge(b"k", None, &[&n(i64::MAX), &n(1)]).unwrap(), n(i64::MIN));
        let e = m.full_merge(b"tide", Some(b"seven"), &[&n(1)]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument);
        assert!(e.to_string().contains("\"counter\" failed, key \"tide\""), "{e}");
        assert!(m.check_operand(b"k", b"123").is_err() && m.check_operand(b"k", &n(1)).is_ok());
    }

    #[test]
    fn append_inserts_separators_and_is_associative() {
        let m = merger(MergeRule::Append(", ".into()));
        assert_eq!(m.full_merge(b"k", Some(b"a"), &[b"b", b"c"]).unwrap(), b"a, b, c");
        assert_eq!(m.full_merge(b"k", None, &[b"b", b"c"]).unwrap(), b"b, c");
        assert_eq!(m.full_merge(b"k", Some(b""), &[b"c"]).unwrap(), b", c");
        let joined = m.partial_merge(b"k", &[b"b", b"", b"c"]).unwrap();
        let in_one_call = m.full_merge(b"k", Some(b"a"), &[b"b", b"", b"c"]).unwrap();
        assert_eq!(m.full_merge(b"k", Some(b"a"), &[&joined]).unwrap(), in_one_call);
    }

    /// Concatenates, so that the result does not depend on the grouping.
    struct ConcatOperator;
    impl MergeOperator for ConcatOperator {
        fn name(&self) -> &str {
            "own"
        }
        fn merge(
            &self,
            _: &[u8],
            left: Option<&[u8]>,
            right: &[u8],
            out: &mut Vec<u8>,
        ) -> Result<()> {
            assert_ne!(right, b"panic");
            out.extend_from_slice(left.unwrap_or_default());
            out.extend_from_slice(right);
            Ok(())
        }
    }

    #[test]
    fn user_operator_joins_halves_and_its_panic_is_an_error() {
        let mut all = MergeOperators::default();
        let rule = MergeRule::User("own".into());
        assert!(all.check_registered(Some(&rule)).is_err());
        assert!(
            all.merger(Some(&rule)).unwrap().full_merge(b"k", None, &[b"a"]).is_err(),
            "the operator is not registered"
        );
        all.register(Arc::new(ConcatOperator));
        all.check_registered(Some(&rule)).unwrap();
        let m = all.merger(Some(&rule)).unwrap();
        let parts: Vec<Vec<u8>> = (0..100u8).map(|i| vec![i; usize::from(i % 3)]).collect();
        let borrowed: Vec<&[u8]> = parts.iter().map(|p| &p[..]).collect();
        for n in 1..borrowed.len() {
            assert_eq!(m.full_merge(b"k", Some(b"base"), &borrowed[..n]).unwrap(), {
                let mut all = b"base".to_vec();
                all.extend(parts[..n].concat());
                all
            });
        }
        let e = m.full_merge(b"k", None, &[b"panic"]).unwrap_err();
        assert!(e.to_string().contains("\"user:own\" failed, key \"k\": it panicked"), "{e}");
    }

    #[test]
    fn merge_rules_round_trip_through_stored_names() {
        for rule in
            [MergeRule::Counter, MergeRule::Append("; ".into()), MergeRule::User("max".into())]
        {
            assert_eq!(MergeRule::from_stored_name(&rule.stored_name()).unwrap(), rule);
            rule.check().unwrap();
        }
        assert_eq!(MergeRule::from_stored_name("sum").unwrap_err().kind(), ErrorKind::FormatTooNew);
        assert!(MergeRule::User(String::new()).check().is_err());
        assert!(MergeRule::Append("-".repeat(65)).check().is_err());
    }
}
