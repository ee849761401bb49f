//! Reads the cells of CSV and TSV input, in chunks, so that no cell has to fit into memory as a
//! whole.

use csv_core::{ReadFieldResult, Reader, ReaderBuilder};
use std::io::{self, BufRead, BufReader, Read};

/// Size of a chunk of a cell, and of the read buffer.
const CHUNK_BYTES: usize = 64 << 10;

/// What follows a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellEnd {
    /// Another cell of the same row.
    RowContinues,
    /// The next row, or the end of the input.
    RowEnd,
    /// The end of the input; there was no cell.
    InputEnd,
}

/// Reader of cells.
pub struct CellReader {
    input: BufReader<Box<dyn Read>>,
    core: Reader,
    chunk: Vec<u8>,
}

impl CellReader {
    /// Creates a reader of `input`, whose cells are separated by `delimiter`.
    pub fn new(input: Box<dyn Read>, delimiter: u8) -> CellReader {
        let input = BufReader::with_capacity(CHUNK_BYTES, input);
        let core = ReaderBuilder::new().delimiter(delimiter).build();
        CellReader { input, core, chunk: vec![0; CHUNK_BYTES] }
    }

    /// Returns the current line of the input, starting with 1.
    pub fn line(&self) -> u64 {
        self.core.line()
    }

    /// Reads the next cell and passes it to `take` in chunks, without its quotes.
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
            let (mut cell, mut chunks) = (Vec::new(), 0);
            let end = cells.next_cell(&mut |chunk| {
                cell.extend_from_slice(chunk);
                chunks += 1;
            });
            match end.unwrap() {
                CellEnd::InputEnd => break,
                end => all.push((String::from_utf8(cell).unwrap(), end, chunks)),
            }
        }
        let cells: Vec<(&str, CellEnd)> =
            all.iter().map(|(c, end, _)| (c.as_str(), *end)).collect();
        let expected = [
            ("x", CellEnd::RowContinues),
            ("y\"\n,", CellEnd::RowEnd),
            (long.as_str(), CellEnd::RowContinues),
            ("2", CellEnd::RowEnd),
        ];
        assert_eq!(cells, expected);
        assert!(all[2].2 > 2, "a long cell has several chunks");
    }
}
