//! Reads records of CSV and TSV into memory, with the information whether a cell is in quotes: an
//! empty cell without quotes is NULL, with quotes it is the empty text.
//!
//! Cells are separated by the delimiter and records by LF, CR LF or CR. A cell in quotes may
//! contain all of them; a quote in it is doubled. Blank lines and a byte-order mark are skipped. A
//! quote that is not the first character of a cell is an ordinary character.

use super::row_source::{CellKind, CellSpan};
use perigee::limits::VALUE_BYTES_MAX;
use std::io::{self, BufRead, BufReader, Read};

/// Size of the read buffer.
const BUFFER_BYTES: usize = 256 << 10;
/// Longest record.
const RECORD_BYTES_MAX: usize = VALUE_BYTES_MAX;
/// UTF-8 of the byte-order mark.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Skips a byte-order mark at the start of the input.
struct MarkSkipper {
    input: Box<dyn Read>,
    /// The first bytes of the input, which are not a mark.
    first: Vec<u8>,
    started: bool,
}

impl Read for MarkSkipper {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if !self.started {
            let mark = BYTE_ORDER_MARK.len() as u64;
            (&mut self.input).take(mark).read_to_end(&mut self.first)?;
            self.started = true;
            if self.first == BYTE_ORDER_MARK {
                self.first.clear();
            }
        }
        if self.first.is_empty() {
            return self.input.read(buf);
        }
        let n = self.first.len().min(buf.len());
        buf[..n].copy_from_slice(&self.first[..n]);
        self.first.drain(..n);
        Ok(n)
    }
}

/// Where the reader is in a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CellPhase {
    /// Before its first byte.
    Start,
    /// Outside quotes.
    Bare,
    /// Inside quotes.
    Quoted,
    /// After a quote inside quotes: the end of the quoted part, or the first of two quotes.
    AfterQuote,
}

/// Reader of records.
pub struct RecordReader {
    input: BufReader<MarkSkipper>,
    delimiter: u8,
    /// The next line, counted from 1.
    line: u64,
    /// The last record ended with CR: an LF that follows belongs to it.
    after_return: bool,
    /// Line in which the current record starts.
    pub record_line: u64,
    /// The cells of the current record, one after the other.
    pub text: Vec<u8>,
    /// The cells of the current record.
    pub cells: Vec<CellSpan>,
}

impl RecordReader {
    /// Creates a reader of `input`, whose cells are separated by `delimiter`.
    pub fn new(input: Box<dyn Read>, delimiter: u8) -> RecordReader {
        let input = MarkSkipper { input, first: Vec::new(), started: false };
        let input = BufReader::with_capacity(BUFFER_BYTES, input);
        let (text, cells) = (Vec::new(), Vec::new());
        RecordReader { input, delimiter, line: 1, after_return: false, record_line: 1, text, cells }
    }

    /// Reads the next record that is not blank. Returns false at the end of the input.
    ///
    /// # Errors
    /// The reason why the record at `record_line` is malformed, or an error of the input.
    pub fn read_record(&mut self) -> Result<bool, String> {
        loop {
            self.text.clear();
            self.cells.clear();
            self.record_line = self.line;
            if !self.read_cells()? {
                return Ok(false);
            }
            let blank = matches!(&self.cells[..], [only] if only.kind == CellKind::Empty);
            if !blank {
                return Ok(true);
            }
        }
    }

    /// Reads the cells of a record. Returns false at the end of the input.
    fn read_cells(&mut self) -> Result<bool, String> {
        let mut phase = CellPhase::Start;
        let (mut start, mut quoted) = (0, false);
        loop {
            let chunk = match self.input.fill_buf() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                filled => filled.map_err(|e| e.to_string())?,
            };
            if chunk.is_empty() {
                return match phase {
                    CellPhase::Start if self.cells.is_empty() => Ok(false),
                    CellPhase::Quoted => {
                        Err(format!("cell {}: the closing quote is missing", self.cells.len() + 1))
                    }
                    _ => {
                        self.cells.push(CellSpan::of_record(start, self.text.len(), quoted));
                        Ok(true)
                    }
                };
            }
            let (mut at, mut ended) = (0, false);
            while at < chunk.len() && !ended {
                match phase {
                    CellPhase::Start => {
                        if std::mem::take(&mut self.after_return) && chunk[at] == b'\n' {
                            at += 1;
                            continue;
                        }
                        quoted = chunk[at] == b'"';
                        at += usize::from(quoted);
                        phase = if quoted { CellPhase::Quoted } else { CellPhase::Bare };
                    }
                    CellPhase::Bare => {
                        let ends = |b: &u8| *b == self.delimiter || matches!(b, b'\n' | b'\r');
                        let end = chunk[at..].iter().position(ends);
                        let end = end.map_or(chunk.len(), |n| at + n);
                        self.text.extend_from_slice(&chunk[at..end]);
                        at = end;
                        let Some(byte) = chunk.get(at) else { continue };
                        at += 1;
                        self.cells.push(CellSpan::of_record(start, self.text.len(), quoted));
                        (phase, start) = (CellPhase::Start, self.text.len());
                        if *byte != self.delimiter {
                            self.after_return = *byte == b'\r';
                            self.line += 1;
                            ended = true;
                        }
                    }
                    CellPhase::Quoted => {
                        let end = chunk[at..].iter().position(|b| *b == b'"');
                        let end = end.map_or(chunk.len(), |n| at + n);
                        let part = &chunk[at..end];
                        self.line += part.iter().filter(|b| **b == b'\n').count() as u64;
                        self.text.extend_from_slice(part);
                        at = end;
                        if at < chunk.len() {
                            at += 1;
                            phase = CellPhase::AfterQuote;
                        }
                    }
                    CellPhase::AfterQuote => {
                        if chunk[at] == b'"' {
                            self.text.push(b'"');
                            at += 1;
                            phase = CellPhase::Quoted;
                        } else if chunk[at] == self.delimiter || matches!(chunk[at], b'\n' | b'\r')
                        {
                            phase = CellPhase::Bare;
                        } else {
                            let cell = self.cells.len() + 1;
                            return Err(format!("cell {cell}: text after the closing quote"));
                        }
                    }
                }
            }
            self.input.consume(at);
            if self.text.len() > RECORD_BYTES_MAX {
                return Err(format!("the row is longer than {RECORD_BYTES_MAX} bytes"));
            }
            if ended {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &[u8]) -> Result<Vec<(u64, Vec<String>)>, String> {
        struct OneByte(io::Cursor<Vec<u8>>);
        impl Read for OneByte {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.read(&mut buf[..1])
            }
        }
        let all = |input: Box<dyn Read>| {
            let mut reader = RecordReader::new(input, b',');
            let mut all = Vec::new();
            while reader.read_record()? {
                let cell = |c: &CellSpan| {
                    let text = String::from_utf8_lossy(&reader.text[c.start..c.end]).into_owned();
                    if c.kind == CellKind::Empty { "NULL".to_owned() } else { text }
                };
                all.push((reader.record_line, reader.cells.iter().map(cell).collect()));
            }
            Ok(all)
        };
        let whole = all(Box::new(io::Cursor::new(text.to_vec())));
        let single = all(Box::new(OneByte(io::Cursor::new(text.to_vec()))));
        assert_eq!(whole, single, "the result depends on the size of reads");
        whole
    }

    fn texts(text: &str) -> Vec<Vec<String>> {
        records(text.as_bytes()).unwrap().into_iter().map(|(_, cells)| cells).collect()
    }

    #[test]
    fn quoted_and_bare_cells_are_distinguished() {
        assert_eq!(texts("a,\"\",,\"x\"\n"), [["a", "", "NULL", "x"]]);
        assert_eq!(texts("a,"), [["a", "NULL"]]);
        assert_eq!(texts("\"say \"\"hi\"\"\",5\"\n"), [["say \"hi\"", "5\""]]);
        assert_eq!(texts("\"\"\n\n\n"), [[""]]);
    }

    #[test]
    fn records_end_with_any_line_break() {
        assert_eq!(texts("a,b\r\nc,d\re,f\ng,h"), [["a", "b"], ["c", "d"], ["e", "f"], ["g", "h"]]);
        assert_eq!(texts("\"a\r\nb\",c\r\n"), [["a\r\nb", "c"]]);
        assert!(texts("").is_empty());
        assert!(texts("\r\n\n\r").is_empty());
    }

    #[test]
    fn byte_order_mark_is_removed() {
        assert_eq!(texts("\u{feff}id,n\n1,2\n"), [["id", "n"], ["1", "2"]]);
        assert_eq!(texts("\u{feff}\"id\",n\n"), [["id", "n"]]);
        assert_eq!(texts("\"\u{feff}id\",n\n"), [["\u{feff}id", "n"]]);
        assert!(texts("\u{feff}").is_empty());
        assert_eq!(texts("a"), [["a"]]);
    }

    #[test]
    fn records_have_their_line() {
        let lines: Vec<u64> =
            records(b"a\n\n\"b\nc\"\r\nd\n").unwrap().iter().map(|r| r.0).collect();
        assert_eq!(lines, [1, 3, 5]);
    }

    #[test]
    fn malformed_quotes_are_refused() {
        assert!(records(b"a,\"b\n").unwrap_err().contains("cell 2"));
        assert!(records(b"\"a\" ,b\n").unwrap_err().contains("closing quote"));
    }
}
