//! The encoding of a row as the value of its key: the columns that are not part of the key.
//!
//! ```text
//! header     varint    layout * 4 + write kind (0 put, 1 insert, 2 update)
//! nulls      bytes     a bit for each nullable column of the layout, in its order; 1: NULL
//! columns              in the order of the layout; those that are NULL take no space:
//!   fixed              little-endian: bool u8, integers, floats, timestamp i64, uuid 16 bytes
//!   variable           varint length, bytes; the last column of the layout has no length
//! ```
//!
//! A layout is a list of columns. The schema keeps all layouts that a table ever had
//! ([`crate::schema`]), so a row stays readable after columns were added, dropped or renamed.
//! Adding a column rewrites nothing: rows of older layouts have its default value.
//!
//! The decoder is total: any bytes are a row or [`Malformed`].

use crate::error::Malformed;
use std::sync::Arc;

/// What a write of a row was: the change feed reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// The writer did not look for an older row.
    Put,
    /// There was no row with this key.
    Insert,
    /// There was a row with this key.
    Update,
}

impl WriteKind {
    fn code(self) -> u64 {
        match self {
            WriteKind::Put => 0,
            WriteKind::Insert => 1,
            WriteKind::Update => 2,
        }
    }
    fn from_code(code: u64) -> Option<WriteKind> {
        [WriteKind::Put, WriteKind::Insert, WriteKind::Update].get(code as usize).copied()
    }
}

/// How one column of a layout is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnStep {
    /// The field of the row; `None`: the column was dropped.
    pub field: Option<u32>,
    /// Size in bytes; `None`: variable.
    pub fixed_bytes: Option<u32>,
    /// Position in the null bits; `None`: never NULL.
    pub null_bit: Option<u32>,
    /// True for a column of variable size that ends the row.
    pub ends_row: bool,
}

/// How the rows of one layout are encoded and decoded.
#[derive(Clone, Debug, Default)]
pub struct LayoutPlan {
    /// The header of a put.
    pub header: u64,
    pub null_bytes: usize,
    pub steps: Vec<ColumnStep>,
    /// Fields that the layout lacks, and their stored default value; `None`: NULL. All layouts
    /// share the values.
    pub absent: Vec<(u32, Option<Arc<[u8]>>)>,
}

/// Writes one column of a row; passed to [`crate::Row::write_column`].
#[derive(Debug)]
pub struct ColumnWriter<'a> {
    out: &'a mut Vec<u8>,
    nulls_at: usize,
    step: ColumnStep,
}

impl<'a> ColumnWriter<'a> {
    /// Returns a writer of a single value that is not NULL, without a row around it.
    pub(crate) fn of_single_value(out: &'a mut Vec<u8>) -> ColumnWriter<'a> {
        let step = ColumnStep { field: None, fixed_bytes: None, null_bit: None, ends_row: true };
        ColumnWriter { out, nulls_at: 0, step }
    }
    /// Writes NULL.
    #[inline]
    pub fn null(&mut self) {
        if let Some(bit) = self.step.null_bit {
            self.out[self.nulls_at + bit as usize / 8] |= 1 << (bit % 8);
        }
    }
    /// Writes a value of fixed size.
    #[inline]
    pub fn fixed<const N: usize>(&mut self, bytes: [u8; N]) {
        self.out.extend_from_slice(&bytes);
    }
    /// Writes a value of variable size.
    #[inline]
    pub fn variable(&mut self, bytes: &[u8]) {
        if !self.step.ends_row {
            write_varint(bytes.len() as u64, self.out);
        }
        self.out.extend_from_slice(bytes);
    }
}

/// Appends a row: `write_column` is called for each column of the layout, in its order.
#[inline]
pub fn write_row(
    plan: &LayoutPlan,
    kind: WriteKind,
    out: &mut Vec<u8>,
    mut write_column: impl FnMut(usize, &mut ColumnWriter<'_>),
) {
    write_varint(plan.header | kind.code(), out);
    let nulls_at = out.len();
    out.resize(nulls_at + plan.null_bytes, 0);
    for &step in &plan.steps {
        if let Some(field) = step.field {
            write_column(field as usize, &mut ColumnWriter { out, nulls_at, step });
        }
    }
}

/// Splits a header into layout number and kind, and returns the rest of the row.
#[inline]
pub fn read_header(row: &[u8]) -> Result<(u64, WriteKind, &[u8]), Malformed> {
    let mut rest = row;
    let header = read_varint(&mut rest)?;
    let kind = WriteKind::from_code(header & 3).ok_or(Malformed::Bytes("unknown kind of row"))?;
    Ok((header >> 2, kind, rest))
}

/// Splits the columns of a row (without its header) into `fields`; absent fields get their default,
/// NULL is `None`.
#[inline]
pub fn split_columns<'a>(
    plan: &'a LayoutPlan,
    columns: &'a [u8],
    fields: &mut [Option<&'a [u8]>],
) -> Result<(), Malformed> {
    let Some((nulls, mut rest)) = columns.split_at_checked(plan.null_bytes) else {
        return Err(Malformed::Bytes("the null bits of a row are cut off"));
    };
    for step in &plan.steps {
        let is_null =
            step.null_bit.is_some_and(|bit| nulls[bit as usize / 8] >> (bit % 8) & 1 == 1);
        if is_null {
            if let Some(field) = step.field {
                fields[field as usize] = None;
            }
            continue;
        }
        let len = match step.fixed_bytes {
            Some(n) => n as usize,
            None if step.ends_row => rest.len(),
            None => usize::try_from(read_varint(&mut rest)?).unwrap_or(usize::MAX),
        };
        let Some((value, after)) = rest.split_at_checked(len) else {
            return Err(Malformed::Bytes("a column of a row is cut off"));
        };
        rest = after;
        if let Some(field) = step.field {
            fields[field as usize] = Some(value);
        }
    }
    if !rest.is_empty() {
        return Err(Malformed::Bytes("bytes after the last column of a row"));
    }
    for (field, default) in &plan.absent {
        fields[*field as usize] = default.as_deref();
    }
    Ok(())
}

/// Appends a LEB128 varint.
#[inline]
pub fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a LEB128 varint of at most 64 bits.
#[inline]
pub fn read_varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
    if let Some((&byte, after)) = rest.split_first()
        && byte < 0x80
    {
        *rest = after;
        return Ok(u64::from(byte));
    }
    read_long_varint(rest)
}

/// Reads a varint of more than one byte.
fn read_long_varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for (i, &byte) in rest.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if i == 9 && bits > 1 {
            break;
        }
        value |= bits << (7 * i);
        if byte < 0x80 {
            *rest = &rest[i + 1..];
            return Ok(value);
        }
    }
    Err(Malformed::Bytes("a varint is cut off or too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_read_back() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            write_varint(value, &mut bytes);
            assert_eq!(read_varint(&mut &bytes[..]).unwrap(), value);
            for cut in 0..bytes.len() {
                read_varint(&mut &bytes[..cut]).unwrap_err();
            }
        }
        read_varint(&mut &[0xff; 11][..]).unwrap_err();
        read_varint(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2][..])
            .unwrap_err();
    }
}
