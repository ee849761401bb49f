//! CSV and TSV as cells: read one after the other and handed out in pieces, so that no cell has to
//! fit into memory as a whole. Knows no keys and no database.

use csv_core::{ReadFieldResult, Reader, ReaderBuilder};
use std::io::{self, BufRead, BufReader, Read};

/// Bytes of a cell handed out at once, and of input read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// What follows a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellEnd {
    /// Another cell of the same row.
    RowContinues,
    /// The next row, or the end of the input.
    RowEnd,
    /// Nothing; there was no cell.
    InputEnd,
}

/// Reads cells.
pub struct CellReader {
    input: BufReader<Box<dyn Read>>,
    core: Reader,
    chunk: Vec<u8>,
}

impl CellReader {
    /// Reads cells that are separated by `delimiter` from `input`.
    pub fn new(input: Box<dyn Read>, delimiter: u8) -> CellReader {
        let input = BufReader::with_capacity(CHUNK_BYTES, input);
        let core = ReaderBuilder::new().delimiter(delimiter).build();
        CellReader { input, core, chunk: vec![0; CHUNK_BYTES] }
    }

    /// Line of the input, from 1.
    pub fn line(&self) -> u64 {
        self.core.line()
    }

    /// Reads the next cell and gives it to `take` in pieces, without its quotes.
    pub fn next_cell(&mut self, take: &mut dyn FnMut(&[u8])) -> io::Result<CellEnd> {
        loop {
            let input = match self.input.fill_buf() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                filled => filled?,
            };
            let (result, read, written) = self.core.read_field(input, &mut self.chunk);
            self.input.consume(read);
            if written > 0 {
                take(&self.chunk[..written]);
            }
            match result {
                ReadFieldResult::InputEmpty | ReadFieldResult::OutputFull => {}
                ReadFieldResult::Field { record_end: false } => return Ok(CellEnd::RowContinues),
                ReadFieldResult::Field { record_end: true } => return Ok(CellEnd::RowEnd),
                ReadFieldResult::End => return Ok(CellEnd::InputEnd),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_read_in_chunks() {
        let long = "a\"b".repeat(CHUNK_BYTES);
        let text = format!("\u{feff}x,\"y\"\"\n,\"\r\n\r\n\"{}\",2", long.replace('"', "\"\""));
        let mut cells = CellReader::new(Box::new(io::Cursor::new(text.into_bytes())), b',');
        let mut all = Vec::new();
        loop {
            let (mut cell, mut pieces) = (Vec::new(), 0);
            let after = cells.next_cell(&mut |piece| {
                cell.extend_from_slice(piece);
                pieces += 1;
            });
            match after.unwrap() {
                CellEnd::InputEnd => break,
                after => all.push((String::from_utf8(cell).unwrap(), after, pieces)),
            }
        }
        let cells: Vec<(&str, CellEnd)> =
            all.iter().map(|(c, after, _)| (c.as_str(), *after)).collect();
        let expected = [
            ("x", CellEnd::RowContinues),
            ("y\"\n,", CellEnd::RowEnd),
            (long.as_str(), CellEnd::RowContinues),
            ("2", CellEnd::RowEnd),
        ];
        assert_eq!(cells, expected);
        assert!(all[2].2 > 2, "a long cell is more than one piece");
    }
}
