//! Decides whether a value is stored inline or in a value log. Pure.

use perigee_base::{FileId, ValueRef};
use std::collections::BTreeSet;

/// The column family's threshold, and the value logs to be emptied.
#[derive(Clone, Debug, Default)]
pub struct SeparationPolicy {
    /// Values of this length and up are separated.
    pub threshold: usize,
    /// Values in these value logs are moved to a new one.
    pub relocate_vlogs: BTreeSet<FileId>,
}

/// Placement of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuePlacement {
    /// Unchanged: inline, an existing pointer, or no value.
    AsIs,
    /// Write it to the output's value log.
    Separate,
    /// Read it from its old value log and place it again.
    Relocate,
}

impl SeparationPolicy {
    /// Returns the placement of a value.
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
