//! `coppice`: see the library.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match coppice::run(coppice::args::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("coppice: {error:#}");
            ExitCode::from(coppice::exit::Exit::code_of(&error))
        }
    }
}
