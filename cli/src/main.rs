//! The binary `coppice`; the library holds the code.

use clap::Parser;
use coppice::commands::{Cli, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    coppice::exit::end(run(Cli::parse()))
}
