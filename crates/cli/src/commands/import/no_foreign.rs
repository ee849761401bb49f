//! Replaces `foreign` where databases of other engines cannot be imported: the locks that those
//! engines use exist on Unix systems only.

use crate::failure::{Failure, Result};
use crate::output::Output;
use clap::Args;

/// No arguments.
#[derive(Args, Debug)]
#[group(id = "foreign")]
pub struct ForeignArgs {}

/// Returns the error for a missing database argument.
pub fn run(_: &ForeignArgs, _: &mut Output) -> Result<u8> {
    Err(Failure::usage("specify the database"))
}
