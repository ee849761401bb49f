//! The klog: keys, small values and pointers of a sorted table. Immutable once named by the manifest.
//! Format: `docs/format/klog.md`.

pub mod layout;
pub mod props;
mod dense;
pub mod writer;
pub mod reader;
mod load;
mod broken;
mod salvage;
pub mod cursor;
pub mod trace;
mod verify;
pub mod standalone;

pub use cursor::{KlogCursor, Spot};
pub use props::{KlogSummary, RangeSummary};
pub use reader::{Found, KlogReader, Near};
pub use salvage::{Lost, Salvage};
pub use trace::{BlockTrace, Trace};
pub use writer::{KlogOptions, KlogWriter};

#[cfg(test)]
mod tests;
