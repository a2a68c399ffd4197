//! `fs cat`: the content of files in a dataset or snapshot, without a mount.

use std::ffi::OsString;
use std::os::fd::AsFd;

use clap::Args;
use protocol::{Exit, Failure, FileRequest, Response, location, unexpected_answer};

use crate::context::Context;

/// Arguments of `fs cat`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fs cat tank/home:/ann/notes
  fs cat tank/home@monday:/ann/notes > notes.monday")]
pub struct Arguments {
    /// DATASET:/PATH or DATASET@SNAPSHOT:/PATH
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<OsString>,
}

/// Writes the content of files to standard output.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    for place in &arguments.places {
        let location = location(place)?;
        let pool = location.name.pool().to_owned();
        let stream = std::io::stdout().as_fd().try_clone_to_owned()?;
        match context.call_with(&pool, FileRequest::Read { location }, Some(stream))? {
            Response::Done => {}
            _ => return Err(unexpected_answer()),
        }
    }
    Ok(Exit::Done)
}
