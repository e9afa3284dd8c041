//! `coppice completions`.

use crate::terminal;
use anyhow::Result;
use clap::Command;
use clap_complete::{Shell, generate};

/// Options of `coppice completions`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the completions.
///
/// # Errors
/// When stdout is full.
pub fn command(args: &CompletionsArgs, commands: Command) -> Result<()> {
    Ok(terminal::print_page(&completions(args.shell, commands))?)
}

fn completions(shell: Shell, mut commands: Command) -> String {
    let mut script = Vec::new();
    generate(shell, &mut commands, "coppice", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::{CommandFactory as _, ValueEnum as _};

    #[test]
    fn completions_of_every_shell_have_every_command() {
        for &shell in Shell::value_variants() {
            let script = completions(shell, Cli::command());
            for command in Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }
}
