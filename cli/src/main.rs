//! `coppice`: see the library.

use clap::Parser;
use coppice::terminal::{Level, stderr};
use std::process::ExitCode;

fn main() -> ExitCode {
    match coppice::run(coppice::args::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let why = format!("{error:#}");
            // Where nothing is said, it was said already.
            if !why.is_empty() {
                stderr().note(Level::Error, "ended", &why);
            }
            ExitCode::from(coppice::exit::Exit::code_of(&error))
        }
    }
}
