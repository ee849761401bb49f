//! The native module `perigeedb._native`: the classes of the Python package `perigeedb` over the
//! public Rust API. All classes are immutable from the view of Python and can be used by several
//! threads, with and without a global interpreter lock.

mod error;
mod input;
mod convert;
mod source;
mod scan;
mod read_view;
mod write_view;
mod options;
mod family;
mod snapshot;
mod transaction;
mod batch;
mod feed;
mod backups;
mod database;

use pyo3::prelude::*;

/// Classes and functions of the package `perigeedb`.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<read_view::ReadView>()?;
    module.add_class::<write_view::WriteView>()?;
    module.add_class::<family::Family>()?;
    module.add_class::<database::Database>()?;
    module.add_class::<snapshot::Snapshot>()?;
    module.add_class::<transaction::TransactionView>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<batch::BatchView>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<scan::Range>()?;
    module.add_class::<scan::RangeIterator>()?;
    module.add_class::<feed::ChangeFeed>()?;
    module.add_class::<feed::Commit>()?;
    module.add_class::<feed::Operation>()?;
    module.add_class::<feed::FamilyChange>()?;
    module.add_class::<backups::Backups>()?;
    module.add_function(wrap_pyfunction!(database::open, module)?)?;
    module.add_function(wrap_pyfunction!(backups::repair, module)?)?;
    Ok(())
}
