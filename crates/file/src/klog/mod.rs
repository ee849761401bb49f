//! The klog: the keys, small values and value-log pointers of a sorted table. Immutable once
//! referenced by the manifest. Format: `docs/format/klog.md`.

pub mod layout;
pub mod properties;
mod adaptive_compression;
pub mod writer;
pub mod reader;
mod read_ahead;
mod placeholder;
mod salvage;
pub mod cursor;
pub mod trace;
mod verify;
pub mod standalone;

pub use cursor::{EntryMeta, KlogCursor};
pub use layout::{FOOTER_BYTES, Footer};
pub use properties::{KlogSummary, RangeTombstoneSummary};
pub use reader::{BlockHint, EntryValue, KlogReader};
pub use salvage::KlogSalvager;
pub use trace::KlogLookupTrace;
pub use writer::{KlogOptions, KlogWriter};

#[cfg(test)]
mod tests;
