//! Inline or value log. Pure.

use perigee_base::{FileId, ValueRef};
use std::collections::BTreeSet;

/// The rule of a family, and the value logs being emptied.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Values of this length and up are separated.
    pub threshold: usize,
    /// Values in these logs move to a new one.
    pub relocate: BTreeSet<FileId>,
}

/// What to do with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// As it is: inline, an untouched pointer, or none.
    AsIs,
    /// Write it to the output's value log.
    Separate,
    /// Read it from its old log and place it anew.
    Relocate,
}

impl Place {
    /// The rule, applied.
    pub fn of(&self, value: &ValueRef<'_>) -> Placement {
        match value {
            ValueRef::Inline(v) | ValueRef::InlineUntil(v, _) | ValueRef::Operand(v)
                if !v.is_empty() && v.len() >= self.threshold =>
            {
                Placement::Separate
            }
            ValueRef::Pointer(p) | ValueRef::PointerUntil(p, _) | ValueRef::OperandPointer(p)
                if self.relocate.contains(&p.file) =>
            {
                Placement::Relocate
            }
            _ => Placement::AsIs,
        }
    }
}
