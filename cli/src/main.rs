//! The binary `coppice`; the library holds the code.

use clap::Parser;
use ic_coppice_cli::commands::{Cli, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    ic_coppice_cli::exit::end(run(Cli::parse()))
}
