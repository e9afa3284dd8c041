//! Access control: checks of role, argument length and message rate (`docs/design/interface.md`).
//!
//! `TABLE` in the interface crate has each method of the Candid interface with its roles and its largest argument:
//!
//! ```text
//! ingress ──────▶ canister_inspect_message: role, length, bucket ─▶ admit: role; draws ─▶ decode ─▶ method
//! from a canister ────────────────────────────────────────────────▶ admit: role ────────▶ decode ─▶ method
//! ```
//! A message that the filter refuses costs the canister nothing, however long it is. A call from another canister bypasses the filter, so
//! each method checks the same roles before its argument is decoded.

use crate::api::buckets;
use crate::operation::daemon;
use crate::platform;
use crate::state::{State, mutate, read};
use candid::Principal;
use ic_coppice_interface::Role;
#[cfg(feature = "bench")]
use ic_coppice_interface::access::OPERATORS;
use ic_coppice_interface::access::{EXPORTERS, FEEDERS, RATE_LIMITED};
use ic_coppice_interface::methods::{Method, TABLE};
use std::fmt::Write;

/// Checks that a caller has one of these roles.
fn check(state: &State, caller: Principal, roles: &[Role]) -> Result<(), String> {
    if roles.iter().any(|&role| state.roles.has(caller, role)) {
        return Ok(());
    }
    if caller == Principal::anonymous() {
        return Err("access denied: anonymous callers change nothing".into());
    }
    // Preallocated, because each growth of a string costs 300 instructions.
    let mut refused = String::with_capacity(256);
    let _ = write!(refused, "access denied: {caller} is not");
    for (number, role) in roles.iter().enumerate() {
        refused.push_str(if number == 0 { " " } else { " or " });
        let _ = write!(refused, "{role:?}");
    }
    refused.push_str(match roles {
        EXPORTERS => "; an operator can call register_exporter",
        _ => "; an admin can call grant_role",
    });
    Err(refused)
}

/// Answer of the filter of ingress messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspected {
    /// The message may enter.
    Accepted,
    /// The message may not enter; the sentence is for its sender.
    Refused(String),
    /// The message calls no exported method of Coppice.
    NotMine,
}

/// Checks whether an ingress message may enter (`canister_inspect_message`). `exported` has the names of the exported methods. The argument
/// is not read, so the check costs the same for any length.
pub fn inspect(exported: &[&[&str]]) -> Inspected {
    let name = platform::method_name();
    let method = TABLE.iter().find(|of| of.name == name);
    let checked = match method.filter(|_| exported.iter().any(|set| set.contains(&name.as_str()))) {
        #[cfg(feature = "bench")]
        _ if name.starts_with("bench_") => read(|state| check(state, platform::caller(), OPERATORS)),
        Some(method) => read(|state| filter(state, method)),
        None => return Inspected::NotMine,
    };
    checked.map_or_else(Inspected::Refused, |()| Inspected::Accepted)
}

fn filter(state: &State, method: &Method) -> Result<(), String> {
    let (name, caller) = (method.name, platform::caller());
    if !method.roles.is_empty() {
        check(state, caller, method.roles)?;
    } else if !state.config.open_queries && !state.roles.has_any(caller) {
        return Err(format!("access denied: {caller} has no role; call {name} as a query"));
    }
    let (bytes, largest) = (platform::argument_bytes(), method.largest);
    if bytes > largest {
        let hint = if method.is_query { format!("; call {name} as a query") } else { String::new() };
        return Err(format!("access denied: {bytes} bytes of argument, {name} takes at most {largest}{hint}"));
    }
    if buckets::has_one(caller, platform::time_ns(), &state.config, &state.roles) {
        return Ok(());
    }
    let rate = state.config.messages_per_minute;
    Err(format!("{RATE_LIMITED}{caller} may have {rate} messages a minute executed; send it again later"))
}

/// Admits an update: draws the message from its sender's bucket, checks the sender's roles, and checks the cycles. Feeders have no bucket.
/// A replicated query draws nothing, because the platform discards all changes of a query.
///
/// # Errors
/// A sentence for the caller.
pub fn admit(roles: &[Role]) -> Result<(), String> {
    mutate(|state| {
        let caller = platform::caller();
        if !roles.iter().all(|role| FEEDERS.contains(role)) {
            buckets::draw(caller, platform::time_ns(), &state.config, &state.roles);
        }
        check(state, caller, roles)?;
        daemon::watch_cycles(state);
        Ok(())
    })
}

/// Admits a query.
///
/// # Errors
/// A sentence for the caller.
pub fn admit_reader(roles: &[Role]) -> Result<(), String> {
    if roles.is_empty() { Ok(()) } else { read(|state| check(state, platform::caller(), roles)) }
}

/// Guard of the bench methods, which draw no messages, because a measurement takes thousands.
///
/// # Errors
/// A sentence for the caller.
#[cfg(feature = "bench")]
pub fn bench() -> Result<(), String> {
    mutate(|state| {
        check(state, platform::caller(), OPERATORS)?;
        daemon::watch_cycles(state);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::native;
    use crate::{memory, state};
    use ic_coppice_interface::{ConfigChange, InitArg};

    /// Calls the filter of a canister that exports all methods.
    fn inspected(caller: Principal, method: &str, argument_bytes: u64) -> Result<(), String> {
        let all: Vec<&str> = TABLE.iter().map(|method| method.name).collect();
        native::with(|world| {
            (world.caller, world.method, world.argument_bytes) = (caller, method.into(), argument_bytes)
        });
        match inspect(&[&all]) {
            Inspected::Accepted => Ok(()),
            Inspected::Refused(why) => Err(why),
            Inspected::NotMine => Err("not mine".into()),
        }
    }

    #[test]
    fn filter_follows_the_table_of_roles_and_lengths() {
        native::reset();
        memory::forget();
        let of = |byte: u8| Principal::from_slice(&[byte, 1]);
        let (producer, operator, admin, controller) = (of(1), of(2), of(3), of(4));
        native::with(|world| world.controllers = vec![controller, Principal::anonymous()]);
        let init = InitArg {
            producers: vec![producer],
            operators: vec![operator],
            admins: Some(vec![admin]),
            least_retries: None,
            ..InitArg::default()
        };
        state::init(&init).unwrap();
        for &Method { name: method, roles: of, largest, .. } in TABLE {
            for (caller, has) in [
                (producer, &[Role::Producer][..]),
                (operator, &[Role::Operator]),
                (admin, &[Role::Admin]),
                (controller, &[Role::Operator, Role::Admin]),
            ] {
                let may = of.is_empty() || of.iter().any(|role| has.contains(role));
                for bytes in [0, largest, largest + 1, u64::MAX] {
                    assert_eq!(inspected(caller, method, bytes).is_ok(), may && bytes <= largest, "{method}, {bytes}");
                }
            }
        }
        for (method, may) in [
            ("rollback_to", [true, false, true, true]),
            ("abort_block", [true, true, false, true]),
            ("register_exporter", [false, true, true, true]),
            ("remove_exporter", [false, false, true, true]),
            ("set_prune_policy", [false, true, false, true]),
            ("set_config", [false, false, true, true]),
            // Methods outside the interface, among them those that the timer library calls.
            ("", [false; 4]),
            ("append_bloc", [false; 4]),
            ("<ic-cdk internal> timer_executor", [false; 4]),
            ("canister_global_timer", [false; 4]),
        ] {
            let found = [producer, operator, admin, controller].map(|caller| inspected(caller, method, 0).is_ok());
            assert_eq!(found, may, "{method}");
        }
        for stranger in [Principal::anonymous(), of(9), Principal::management_canister()] {
            for of in TABLE {
                let refused = inspected(stranger, of.name, 0).unwrap_err();
                assert!(refused.starts_with("access denied: "), "{refused}");
            }
        }
        // Grants and revocations apply at once; `open_queries` opens only queries.
        let change = ConfigChange { open_queries: Some(true), ..ConfigChange::default() };
        mutate(|state| state.set_config("set_config", &change)).unwrap();
        for stranger in [Principal::anonymous(), of(9)] {
            for of in TABLE {
                assert_eq!(inspected(stranger, of.name, 0).is_ok(), of.roles.is_empty(), "{}", of.name);
            }
        }
        let grant = ic_coppice_interface::Grant { principal: producer, role: Role::Producer };
        assert!(mutate(|state| state.revoke_role(&grant)));
        assert!(inspected(producer, "append_block", 0).is_err());
    }
}
