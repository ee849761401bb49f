//! Writes the rows of a table as a Parquet file.

use crate::failure::{Failure, Result};
use crate::progress::Progress;
use perigee_tables::{BatchScan, DynTable, export_parquet};
use std::io::{self, Write};

/// Writer that keeps its first error: the Parquet library returns errors only as text.
struct TargetWriter<'w> {
    writer: &'w mut (dyn Write + Send),
    error: Option<io::Error>,
    bytes: u64,
    progress: Progress,
}

impl TargetWriter<'_> {
    fn keep_error<T: Default>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|e| {
            let text = e.to_string();
            let copy = io::Error::new(e.kind(), text);
            self.error.get_or_insert(e);
            copy
        })
    }
}

impl Write for TargetWriter<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(buf);
        let n = self.keep_error(written)?;
        self.bytes += n as u64;
        self.progress.set_position(self.bytes);
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.writer.flush();
        self.keep_error(flushed)
    }
}

/// Writes all rows and returns their number.
pub fn write_rows(table: &DynTable, writer: &mut (dyn Write + Send)) -> Result<u64> {
    let progress = Progress::bytes("exporting", 0);
    let mut target = TargetWriter { writer, error: None, bytes: 0, progress };
    let written = export_parquet(table.batches(&BatchScan::new())?, &mut target);
    match (written, target.error) {
        (Ok(report), _) => Ok(report.rows),
        (Err(_), Some(e)) => Err(e.into()),
        (Err(e), None) => Err(Failure::from(e)),
    }
}
