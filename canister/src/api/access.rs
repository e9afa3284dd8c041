//! Access control: the roles, the argument length and the rate of messages that each method allows (`docs/design.md` 8).
//!
//! `TABLE`, in the interface crate, lists every method of the Candid interface once; `LARGEST` lists the methods' longest arguments:
//!
//! ```text
//! from outside ─▶ canister_inspect_message: role, length, bucket ─▶ guard: role; draws ─▶ guard: decodes ─▶ method
//! from a canister ────────────────────────────────────────────────▶ guard: role ────────▶ guard: decodes ─▶ method
//! ```
//! A message that the filter refuses costs the canister nothing, however long it is. A call from another canister bypasses the filter, so
//! the guards check the same roles before they decode the argument. A test compares the tables, the guards and the Candid file.

use crate::api::buckets;
use crate::operation::daemon;
use crate::platform;
use crate::state::{State, mutate, read};
use candid::Principal;
use coppice_interface::Role;
use coppice_interface::access::{
    ADMINS, ALERTS, AUDITORS, BLOB_WORKERS, BLOCK_PRODUCERS, EXPORTERS, GUARDIANS, OPERATORS, RATE_LIMITED, REVERTERS,
    Required, SCHEDULERS, TABLE, UPLOADERS, UTXO_FEEDERS,
};
use coppice_interface::arguments::LARGEST;
use std::fmt::Write;

/// Checks that a caller has one of these roles.
fn check(state: &State, caller: Principal, roles: &[Role]) -> Result<(), String> {
    if roles.iter().any(|&role| state.roles.has(caller, role)) {
        return Ok(());
    }
    if caller == Principal::anonymous() {
        return Err("access denied: anonymous callers change nothing".into());
    }
    // Long enough for the sentence, because each growth of a string costs 300 instructions.
    let mut refused = String::with_capacity(256);
    let _ = write!(refused, "access denied: {caller} is not");
    for (number, role) in roles.iter().enumerate() {
        refused.push_str(if number == 0 { " " } else { " or " });
        let _ = write!(refused, "{role:?}");
    }
    refused.push_str(if roles == EXPORTERS {
        "; an operator can call register_exporter"
    } else {
        "; an admin can call grant_role"
    });
    Err(refused)
}

/// Checks whether an ingress message may enter: `canister_inspect_message`. The argument is not read, so the check costs the same for an
/// argument of any length.
///
/// # Errors
/// A sentence for the sender.
pub fn inspect() -> Result<(), String> {
    read(filter)
}

fn filter(state: &State) -> Result<(), String> {
    let (method, caller) = (platform::method_name(), platform::caller());
    #[cfg(feature = "bench")]
    if method.starts_with("bench_") {
        return check(state, caller, OPERATORS);
    }
    // The tables have the same order.
    let Some(row) = TABLE.iter().position(|(name, _)| *name == method) else {
        return Err(format!("access denied: there is no method {method}"));
    };
    let ((_, required), (_, largest)) = (&TABLE[row], LARGEST[row]);
    match required {
        Required::Role(roles) | Required::Reader(roles) => check(state, caller, roles)?,
        Required::Nobody => {
            if !state.config.open_queries && !state.roles.has_any(caller) {
                return Err(format!("access denied: {caller} has no role; call {method} as a query"));
            }
        }
    }
    let bytes = platform::argument_bytes();
    if bytes > largest {
        let what = format!("access denied: {bytes} bytes of argument, {method} takes at most {largest}");
        return Err(match required {
            Required::Role(_) => what,
            Required::Nobody | Required::Reader(_) => format!("{what}; call {method} as a query"),
        });
    }
    if buckets::has_one(caller, platform::time_ns(), &state.config, &state.roles) {
        return Ok(());
    }
    let rate = state.config.messages_per_minute;
    Err(format!("{RATE_LIMITED}{caller} may have {rate} messages a minute executed; send it again later"))
}

/// Draws the message from its sender's bucket, checks the sender, and looks whether there are cycles: guard of what may change something.
/// A query that is called as an update draws nothing, because the platform discards whatever a query changes.
fn admit(roles: &[Role]) -> Result<(), String> {
    mutate(|state| {
        let caller = platform::caller();
        buckets::draw(caller, platform::time_ns(), &state.config, &state.roles);
        check(state, caller, roles)?;
        daemon::watch_cycles(state);
        Ok(())
    })
}

/// Checks the sender and looks whether there are cycles: guard of methods of feeders alone, because feeders have no bucket.
fn admit_feeder(roles: &[Role]) -> Result<(), String> {
    mutate(|state| {
        check(state, platform::caller(), roles)?;
        daemon::watch_cycles(state);
        Ok(())
    })
}

/// Guard of the methods that measure. They draw nothing, because a measurement takes thousands of messages.
#[cfg(feature = "bench")]
pub fn bench() -> Result<(), String> {
    admit_feeder(OPERATORS)
}

/// Guard of the methods that begin a block.
pub fn block_producer() -> Result<(), String> {
    admit_feeder(BLOCK_PRODUCERS)
}

/// Guard of a feeder's methods.
pub fn utxo_feeder() -> Result<(), String> {
    admit_feeder(UTXO_FEEDERS)
}

/// Guard of methods with which a block's upload goes on, or ends.
pub fn uploader() -> Result<(), String> {
    admit(UPLOADERS)
}

/// Guard of a rollback.
pub fn reverter() -> Result<(), String> {
    admit(REVERTERS)
}

/// Guard of an exporter's methods.
pub fn exporter() -> Result<(), String> {
    admit(EXPORTERS)
}

/// Guard of the alert system's methods.
pub fn alert() -> Result<(), String> {
    admit(ALERTS)
}

/// Guard of a blob worker's methods.
pub fn blob_worker() -> Result<(), String> {
    admit(BLOB_WORKERS)
}

/// Guard of what has blobs outside deleted, and of taking it back.
pub fn scheduler() -> Result<(), String> {
    admit(SCHEDULERS)
}

/// Guard of an operator's methods.
pub fn operator() -> Result<(), String> {
    admit(OPERATORS)
}

/// Guard of what makes pruning safer.
pub fn guardian() -> Result<(), String> {
    admit(GUARDIANS)
}

/// Guard of an admin's methods.
pub fn admin() -> Result<(), String> {
    admit(ADMINS)
}

/// Guard of looking at the audit log, and at the log.
pub fn auditor() -> Result<(), String> {
    read(|state| check(state, platform::caller(), AUDITORS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::native;
    use crate::state;
    use crate::storage::memory;
    use coppice_interface::{CanisterArg, ConfigChange, InitArg};

    fn inspected(caller: Principal, method: &str, argument_bytes: u64) -> Result<(), String> {
        native::with(|world| {
            (world.caller, world.method, world.argument_bytes) = (caller, method.into(), argument_bytes)
        });
        inspect()
    }

    #[test]
    fn the_filter_goes_by_the_tables_of_roles_and_of_lengths() {
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
        state::init(Some(CanisterArg::Init(init))).unwrap();
        for (&(method, required), &(_, largest)) in TABLE.iter().zip(LARGEST) {
            for (caller, roles) in [
                (producer, &[Role::Producer][..]),
                (operator, &[Role::Operator]),
                (admin, &[Role::Admin]),
                (controller, &[Role::Operator, Role::Admin]),
            ] {
                let may = match required {
                    Required::Nobody => true,
                    Required::Role(some) | Required::Reader(some) => some.iter().any(|role| roles.contains(role)),
                };
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
            // What is not in the interface, and what the timer library calls.
            ("", [false; 4]),
            ("append_bloc", [false; 4]),
            ("<ic-cdk internal> timer_executor", [false; 4]),
            ("canister_global_timer", [false; 4]),
        ] {
            let found = [producer, operator, admin, controller].map(|caller| inspected(caller, method, 0).is_ok());
            assert_eq!(found, may, "{method}");
        }
        for stranger in [Principal::anonymous(), of(9), Principal::management_canister()] {
            for (method, _) in TABLE {
                let refused = inspected(stranger, method, 0).unwrap_err();
                assert!(refused.starts_with("access denied: "), "{refused}");
            }
        }
        // What is granted and taken back counts at once, and `open_queries` for queries alone.
        let change = ConfigChange { open_queries: Some(true), ..ConfigChange::default() };
        mutate(|state| state.set_config("set_config", &change)).unwrap();
        for stranger in [Principal::anonymous(), of(9)] {
            for (method, required) in TABLE {
                assert_eq!(inspected(stranger, method, 0).is_ok(), *required == Required::Nobody, "{method}");
            }
        }
        let grant = coppice_interface::Grant { principal: producer, role: Role::Producer };
        assert!(mutate(|state| state.revoke_role(&grant)));
        assert!(inspected(producer, "append_block", 0).is_err());
    }
}
