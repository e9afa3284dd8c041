//! Remedy as one text, with this canister's values in its commands, so that each can be copied and run.

use super::action::{Action, Command};
use super::cycles::wanted;
use super::values::filled;
use crate::platform;
use crate::state::State;
use ic_coppice_interface::CyclesStatus;
use std::borrow::Cow;

/// Cycles of a T.
const T: u128 = 1_000_000_000_000;

/// Returns the command line for the mainnet. `coppice status` and `coppice serve` replace `-n ic` by their network.
fn line(command: &Command, state: &State, cycles: Option<CyclesStatus>) -> String {
    let id = platform::canister_self();
    match command {
        Command::Call(method, argument) => {
            format!("icp canister call -n ic {id} {method} '{}'", filled(state, argument))
        }
        Command::Query(method, argument) => format!("icp canister call --query -n ic {id} {method} '{argument}'"),
        Command::TopUp => {
            // As many as must be liquid suffice for any balance above the freezing threshold.
            let wanted = wanted(state) + cycles.map_or(0, |cycles| cycles.missing);
            format!("icp canister top-up -n ic --amount {}t {id}", wanted.div_ceil(T))
        }
        Command::ReservedLimit => {
            let limit = filled(state, "#reserved_cycles_limit#");
            format!("icp canister settings update -n ic --reserved-cycles-limit {limit} {id}")
        }
        Command::Upgrade => format!("icp canister install -n ic --mode upgrade --wasm coppice.wasm.gz {id}"),
    }
}

/// Returns sentences and commands as one text. It names the missing cycles only if `cycles` are given.
pub fn say(action: &Action, state: &State, cycles: Option<CyclesStatus>) -> String {
    let step = |(text, command): &(Cow<str>, Command)| {
        let balance = match cycles {
            _ if *command != Command::TopUp => String::new(),
            None => format!(
                " A controller sees the balance and the freezing threshold with `icp canister status -n ic {}`.",
                platform::canister_self()
            ),
            Some(CyclesStatus { missing: 0, .. }) => String::new(),
            Some(CyclesStatus { missing, .. }) => {
                let milli = missing.div_ceil(T / 1_000);
                format!(" Liquid cycles are {}.{:03} T below the highest threshold.", milli / 1_000, milli % 1_000)
            }
        };
        format!("{text}{balance} Type: `{}`.", line(command, state, cycles))
    };
    action.0.iter().map(step).collect::<Vec<_>>().join(" ")
}
