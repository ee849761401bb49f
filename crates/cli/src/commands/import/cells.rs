//! CSV and TSV as cells: read one after the other and handed out in pieces, so that no cell has to fit into memory as a whole.
//! Knows no keys and no database.

use csv_core::{ReadFieldResult, Reader, ReaderBuilder};
use std::io::{self, BufRead, BufReader, Read};

/// Bytes of a cell handed out at once, and of input read at once.
const PIECE_BYTES: usize = 64 << 10;

/// What follows a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Another cell of the same row.
    Cell,
    /// The next row, or the end of the input.
    RowEnd,
    /// Nothing; there was no cell.
    End,
}

/// Reads cells.
pub struct Cells {
    input: BufReader<Box<dyn Read>>,
    core: Reader,
    piece: Vec<u8>,
}

impl Cells {
    /// Reads cells that are separated by `delimiter` from `input`.
    pub fn new(input: Box<dyn Read>, delimiter: u8) -> Cells {
        let input = BufReader::with_capacity(PIECE_BYTES, input);
        let core = ReaderBuilder::new().delimiter(delimiter).build();
        Cells { input, core, piece: vec![0; PIECE_BYTES] }
    }

    /// Line of the input, from 1.
    pub fn line(&self) -> u64 {
        self.core.line()
    }

    /// Reads the next cell and gives it to `take` in pieces, without its quotes.
    pub fn next(&mut self, take: &mut dyn FnMut(&[u8])) -> io::Result<After> {
        loop {
            let input = match self.input.fill_buf() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                filled => filled?,
            };
            let (result, read, written) = self.core.read_field(input, &mut self.piece);
            self.input.consume(read);
            if written > 0 {
                take(&self.piece[..written]);
            }
            match result {
                ReadFieldResult::InputEmpty | ReadFieldResult::OutputFull => {}
                ReadFieldResult::Field { record_end: false } => return Ok(After::Cell),
                ReadFieldResult::Field { record_end: true } => return Ok(After::RowEnd),
                ReadFieldResult::End => return Ok(After::End),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_come_in_pieces() {
        let long = "a\"b".repeat(PIECE_BYTES);
        let text = format!("\u{feff}x,\"y\"\"\n,\"\r\n\r\n\"{}\",2", long.replace('"', "\"\""));
        let mut cells = Cells::new(Box::new(io::Cursor::new(text.into_bytes())), b',');
        let mut all = Vec::new();
        loop {
            let (mut cell, mut pieces) = (Vec::new(), 0);
            let after = cells.next(&mut |piece| {
                cell.extend_from_slice(piece);
                pieces += 1;
            });
            match after.unwrap() {
                After::End => break,
                after => all.push((String::from_utf8(cell).unwrap(), after, pieces)),
            }
        }
        let cells: Vec<(&str, After)> = all.iter().map(|(c, after, _)| (c.as_str(), *after)).collect();
        let expected = [
            ("x", After::Cell),
            ("y\"\n,", After::RowEnd),
            (long.as_str(), After::Cell),
            ("2", After::RowEnd),
        ];
        assert_eq!(cells, expected);
        assert!(all[2].2 > 2, "a long cell is more than one piece");
    }
}
