//! The command `coppice-lab`; see the library.

use clap::Parser;
use coppice_lab::commands::{Cli, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    ic_coppice_cli::exit::end(run(Cli::parse()))
}
