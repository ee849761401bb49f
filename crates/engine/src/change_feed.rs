//! The change feed: commits and changes of column families, in commit order.

pub use crate::catalog::manifest::{FamilyEvent, FamilyEventKind};
pub use crate::log::change_feed::{FeedCommit, FeedItem, LogFeed};
