//! Values of the state in commands, in place of their names: `#faults#`.

use super::advice::more;
use super::records;
use crate::state::State;
use crate::state::records::KEPT;
use candid::Principal;
use ic_coppice_interface::MAX_STABLE_PAGES;

/// Returns an argument with the values of its names.
pub fn filled(state: &State, argument: &str) -> String {
    let parts = argument.split('#').enumerate();
    parts.map(|(at, part)| if at % 2 == 1 { value(state, part) } else { part.into() }).collect()
}

fn value(state: &State, name: &str) -> String {
    let (config, chain) = (&state.config, state.chain.state());
    let number = match name {
        "max_stable_pages" => more(config.max_stable_pages).min(MAX_STABLE_PAGES),
        "target_bytes" => more(state.pruner.policy().map_or(0, |policy| policy.target_bytes)),
        "faults" => state.pruner.stored().faults,
        "upload" => state.chain.upload_progress().map_or(0, |open| open.number),
        "head_hash" => {
            let hash = chain.head_hash.unwrap_or_default();
            return hash.as_slice().iter().map(|byte| format!("\\{byte:02x}")).collect();
        }
        "reserved_cycles_limit" => return config.reserved_cycles_limit.saturating_mul(2).to_string(),
        _ => {
            // An identity of icp-cli: the shell replaces it by its principal.
            if let Some(identity) = name.strip_prefix("principal of ") {
                return format!("\"'\"$(icp identity principal --identity {identity})\"'\"");
            }
            let Some(exporter) = name.strip_prefix("key of ") else {
                return if KEPT { records::value(state, name) } else { String::new() };
            };
            let bound = state.exporters.bound_of(exporter).and_then(|(principal, _)| principal);
            return bound.unwrap_or(Principal::anonymous()).to_text();
        }
    };
    number.to_string()
}
