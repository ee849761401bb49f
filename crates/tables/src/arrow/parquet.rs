//! Parquet files: [`export_parquet`] writes the batches of a scan, [`ParquetRows`] reads rows for a
//! table (feature `parquet`).

use crate::arrow::rows::rows_from_batch;
use crate::arrow::scan::BatchIter;
use crate::error::{Error, Result};
use crate::limits::{BATCH_BYTES_MAX, BATCH_ROWS_DEFAULT, PARQUET_GROUP_BYTES_MAX};
use crate::schema::Schema;
use crate::value::Value;
use ::parquet::arrow::ArrowWriter;
use ::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use ::parquet::basic::Compression;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::RowGroupMetaData;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::reader::ChunkReader;
use arrow_schema::SchemaRef;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Result of [`export_parquet`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParquetReport {
    /// Number of rows.
    pub rows: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
}

fn write_error(e: &ParquetError) -> Error {
    Error::invalid(format!("the Parquet file cannot be written: {e}"))
}

fn read_error(e: &ParquetError) -> Error {
    Error::invalid(format!("the Parquet file cannot be read: {e}"))
}

/// Calls a function of the Parquet library, which panics for some damaged files.
fn catch_panic<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    let damaged = |_| Err(Error::invalid("the Parquet file cannot be read: it is damaged"));
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(damaged)
}

/// Writes the batches of a scan to a Parquet file, compressed with Snappy. The file contains the
/// Arrow schema. A row group takes at most about 80 MiB of memory.
///
/// ```
/// use perigee_tables::{BatchScan, ColumnType, ParquetRows, Schema, TableDb, export_parquet};
/// # let db = perigee::example_db()?;
/// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
/// users.load((0..100u32).map(|id| vec![id.into()]))?;
///
/// let mut file = Vec::new(); // or a std::fs::File
/// let report = export_parquet(users.batches(&BatchScan::new())?, &mut file)?;
/// assert_eq!(report.rows, 100);
///
/// let rows = ParquetRows::open(bytes::Bytes::from(file))?; // or a std::fs::File
/// let schema = Schema::from_arrow(&rows.arrow_schema(), &["id"])?;
/// let copy = db.create_dyn_table("copy", schema.clone())?;
/// let mut load = copy.begin_load()?;
/// for row in rows.read(&schema)? {
///     load.push(&row?)?;
/// }
/// assert_eq!(load.finish()?.rows, 100);
/// # Ok::<(), perigee_tables::Error>(())
/// ```
///
/// # Errors
/// Those of the scan; `InvalidArgument` if `out` fails, with its message.
pub fn export_parquet(batches: BatchIter<'_>, out: impl Write + Send) -> Result<ParquetReport> {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let writer = ArrowWriter::try_new(out, batches.schema(), Some(properties));
    let mut writer = writer.map_err(|e| write_error(&e))?;
    let mut report = ParquetReport::default();
    for batch in batches {
        let batch = batch?;
        report.rows += batch.num_rows() as u64;
        writer.write(&batch).map_err(|e| write_error(&e))?;
        if writer.memory_size() >= PARQUET_GROUP_BYTES_MAX {
            writer.flush().map_err(|e| write_error(&e))?;
        }
    }
    writer.finish().map_err(|e| write_error(&e))?;
    report.bytes = writer.bytes_written() as u64;
    Ok(report)
}

/// An open Parquet file; see [`export_parquet`] for an example.
pub struct ParquetRows<F> {
    file: F,
    metadata: ArrowReaderMetadata,
}

impl<F: ChunkReader + 'static> ParquetRows<F> {
    /// Reads the metadata of a Parquet file: a [`std::fs::File`], or bytes in memory.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// let error = ParquetRows::open(bytes::Bytes::from("id,name")).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if it is no Parquet file, or damaged.
    pub fn open(file: F) -> Result<ParquetRows<F>> {
        let metadata = catch_panic(|| {
            ArrowReaderMetadata::load(&file, Default::default()).map_err(|e| read_error(&e))
        })?;
        Ok(ParquetRows { metadata, file })
    }
    /// Returns the schema of the file, for [`Schema::from_arrow`].
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let mut file = Vec::new();
    /// export_parquet(users.batches(&BatchScan::new())?, &mut file)?;
    /// let rows = ParquetRows::open(bytes::Bytes::from(file))?;
    /// assert_eq!(Schema::from_arrow(&rows.arrow_schema(), &["id"])?, users.schema());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn arrow_schema(&self) -> SchemaRef {
        SchemaRef::clone(self.metadata.schema())
    }
    /// Returns the number of rows.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.load((0..100u32).map(|id| vec![id.into()]))?;
    /// let mut file = Vec::new();
    /// export_parquet(users.batches(&BatchScan::new())?, &mut file)?;
    /// assert_eq!(ParquetRows::open(bytes::Bytes::from(file))?.row_count(), 100);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn row_count(&self) -> u64 {
        u64::try_from(self.metadata.metadata().file_metadata().num_rows()).unwrap_or(0)
    }
    /// Returns the number of rows that are decoded at a time: those that take about 16 MiB in
    /// the row group with the largest rows, according to the metadata of the file. For values in
    /// dictionaries that is exact only if the file has size statistics.
    fn batch_rows(&self) -> usize {
        let bytes_per_row = |group: &RowGroupMetaData| {
            let text = group.columns().iter().filter_map(|c| c.unencoded_byte_array_data_bytes());
            let bytes = group.total_byte_size().max(text.fold(0, i64::saturating_add));
            u64::try_from(bytes).unwrap_or(0) / u64::try_from(group.num_rows()).unwrap_or(0).max(1)
        };
        let groups = self.metadata.metadata().row_groups().iter();
        let largest = groups.map(bytes_per_row).max().unwrap_or(0);
        let rows = BATCH_BYTES_MAX as u64 / largest.max(1);
        usize::try_from(rows).unwrap_or(usize::MAX).clamp(1, BATCH_ROWS_DEFAULT)
    }
    /// Returns the rows for a table of this schema, as of [`rows_from_batch`]. About 16 MiB of rows
    /// are in memory at a time, or one row if it is larger.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.insert(&vec![Value::U32(7)])?;
    /// let mut file = Vec::new();
    /// export_parquet(users.batches(&BatchScan::new())?, &mut file)?;
    /// let rows = ParquetRows::open(bytes::Bytes::from(file))?;
    /// let rows: Result<Vec<_>> = rows.read(&users.schema())?.collect();
    /// assert_eq!(rows?, [[Value::U32(7)]]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the file uses an unknown codec or encoding.
    pub fn read(self, schema: &Schema) -> Result<impl Iterator<Item = Result<Vec<Value>>>> {
        let batch_rows = self.batch_rows();
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(self.file, self.metadata);
        let builder = builder.with_batch_size(batch_rows);
        let reader = catch_panic(|| builder.build().map_err(|e| read_error(&e)))?;
        Ok(RowsOfBatches {
            reader,
            schema: schema.clone(),
            rows: Vec::new().into_iter(),
            ended: false,
        })
    }
}

/// Prints the schema.
impl<F> std::fmt::Debug for ParquetRows<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ParquetRows({:?})", self.metadata.schema())
    }
}

/// Iterates over the rows of all batches of a reader.
struct RowsOfBatches {
    reader: ParquetRecordBatchReader,
    schema: Schema,
    rows: std::vec::IntoIter<Vec<Value>>,
    ended: bool,
}

impl Iterator for RowsOfBatches {
    type Item = Result<Vec<Value>>;
    fn next(&mut self) -> Option<Result<Vec<Value>>> {
        loop {
            if let Some(row) = self.rows.next() {
                return Some(Ok(row));
            }
            if self.ended {
                return None;
            }
            let batch = catch_panic(|| {
                let batch = self.reader.next().transpose();
                batch.map_err(|e| Error::invalid(format!("the Parquet file cannot be read: {e}")))
            });
            match batch.transpose()?.and_then(|batch| rows_from_batch(&batch, &self.schema)) {
                Ok(rows) => self.rows = rows.into_iter(),
                Err(e) => {
                    self.ended = true;
                    return Some(Err(e));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchScan, ColumnType, TableDb};

    /// Returns a file of rows with one value of this size each, the same or different ones.
    fn file(rows: u32, value_bytes: usize, same: bool) -> ParquetRows<bytes::Bytes> {
        let db = perigee::example_db().unwrap();
        let schema = Schema::new().key("id", ColumnType::U32).column("v", ColumnType::Bytes);
        let table = db.create_dyn_table("t", schema).unwrap();
        let value = |id: u32| {
            let byte = if same { 7 } else { id as u8 };
            Value::Bytes(vec![byte; value_bytes])
        };
        table.load((0..rows).map(|id| vec![id.into(), value(id)])).unwrap();
        let mut out = Vec::new();
        export_parquet(table.batches(&BatchScan::new()).unwrap(), &mut out).unwrap();
        ParquetRows::open(bytes::Bytes::from(out)).unwrap()
    }

    #[test]
    fn batches_of_large_rows_have_few_rows() {
        assert_eq!(file(100, 10, false).batch_rows(), BATCH_ROWS_DEFAULT);
        assert_eq!(file(0, 10, false).batch_rows(), BATCH_ROWS_DEFAULT);
        // Also if the values are in a dictionary, which stores each once.
        for same in [false, true] {
            let rows = file(64, 1 << 20, same).batch_rows();
            assert!((8..=16).contains(&rows), "{rows}");
        }
    }
}
