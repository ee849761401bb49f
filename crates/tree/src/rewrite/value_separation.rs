//! Inline or value log. Pure.

use perigee_base::{FileId, ValueRef};
use std::collections::BTreeSet;

/// The rule of a family, and the value logs being emptied.
#[derive(Clone, Debug, Default)]
pub struct SeparationPolicy {
    /// Values of this length and up are separated.
    pub threshold: usize,
    /// Values in these logs move to a new one.
    pub relocate_vlogs: BTreeSet<FileId>,
}

/// What to do with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuePlacement {
    /// As it is: inline, an untouched pointer, or none.
    AsIs,
    /// Write it to the output's value log.
    Separate,
    /// Read it from its old log and place it anew.
    Relocate,
}

impl SeparationPolicy {
    /// The rule, applied.
    pub fn placement(&self, value: &ValueRef<'_>) -> ValuePlacement {
        match value {
            ValueRef::Inline(v) | ValueRef::InlineExpiring(v, _) | ValueRef::Operand(v)
                if !v.is_empty() && v.len() >= self.threshold =>
            {
                ValuePlacement::Separate
            }
            ValueRef::Pointer(p)
            | ValueRef::PointerExpiring(p, _)
            | ValueRef::OperandPointer(p)
                if self.relocate_vlogs.contains(&p.file) =>
            {
                ValuePlacement::Relocate
            }
            _ => ValuePlacement::AsIs,
        }
    }
}
