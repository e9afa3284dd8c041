//! `coppice`: see the library.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match coppice::run(coppice::args::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let why = format!("{error:#}");
            // Where nothing is said, it was said already.
            if !why.is_empty() {
                coppice::terminal::write_line(&format!("coppice: {why}"));
            }
            ExitCode::from(coppice::exit::Exit::code_of(&error))
        }
    }
}
