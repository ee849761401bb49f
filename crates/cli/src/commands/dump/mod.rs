//! `perigee dump`: a stub until the readers are there.

use crate::failure::Result;
use crate::output::Out;
use crate::place::Place;
use clap::Args;

/// x
#[derive(Args, Debug)]
#[command(after_help = "perigee dump")]
pub struct DumpArgs {
    #[command(flatten)]
    place: Place,
}

/// x
pub fn run(_args: &DumpArgs, _out: &mut Out) -> Result<u8> {
    Ok(2)
}
