//! Who may call what (`docs/design.md` 8).
//!
//! [`TABLE`], in the interface, names every method of the Candid interface once. It is asked twice:
//!
//! ```text
//! from outside ─▶ canister_inspect_message: the table, and how long a query's argument is ─▶ guard ─▶ method
//! from a canister ───────────────────────────────────────────────────────────────────────▶ guard ─▶ method
//! ```
//! What the door refuses costs the canister nothing, however long it is. A call from another canister does not pass the door, so the guards
//! ask the same roles, before the argument is decoded. A test holds table, guards and Candid file together.

use crate::{daemon, runtime, state};
use candid::Principal;
use coppice_interface::Role;
use coppice_interface::access::{
    ADMINS, ALERTS, AUDITORS, BLOB_WORKERS, BLOCK_PRODUCERS, EXPORTERS, GUARDIANS, OPERATORS, QUERY_ARGUMENT,
    REVERTERS, Required, SCHEDULERS, TABLE, UPLOADERS, UTXO_FEEDERS,
};

/// Whether the sender of the message has one of these roles.
fn check(roles: &[Role]) -> Result<(), String> {
    let caller = runtime::caller();
    if caller == Principal::anonymous() {
        return Err("access denied: anonymous callers change nothing".into());
    }
    if state::read(|state| roles.iter().any(|&role| state.roles.has(caller, role))) {
        return Ok(());
    }
    let names: Vec<String> = roles.iter().map(|role| format!("{role:?}")).collect();
    let how =
        if roles == EXPORTERS { "an operator can call register_exporter" } else { "an admin can call grant_role" };
    Err(format!("access denied: {caller} is not {}; {how}", names.join(" or ")))
}

/// Whether a message from outside comes in: `canister_inspect_message`. Its argument is not looked at, so that this costs the same however
/// long it is.
///
/// # Errors
/// A sentence for the sender.
pub fn inspect() -> Result<(), String> {
    let method = runtime::method_name();
    #[cfg(feature = "bench")]
    if method.starts_with("bench_") {
        return operator();
    }
    let Some((_, required)) = TABLE.iter().find(|(name, _)| *name == method) else {
        return Err(format!("access denied: there is no method {method}"));
    };
    match required {
        Required::Role(roles) => return check(roles),
        Required::Reader(roles) => check(roles)?,
        Required::Nobody => {
            let caller = runtime::caller();
            if !state::read(|state| state.config.open_queries || state.roles.has_any(caller)) {
                return Err(format!("access denied: {caller} has no role; call {method} as a query"));
            }
        }
    }
    if runtime::argument_bytes() >= QUERY_ARGUMENT {
        let most = QUERY_ARGUMENT - 1;
        return Err(format!("access denied: more than {most} bytes of argument; call {method} as a query"));
    }
    Ok(())
}

/// As [`check`], of a message that may then change something: it is also the one that notices whether there are cycles.
fn admit(roles: &[Role]) -> Result<(), String> {
    check(roles)?;
    daemon::watch_cycles();
    Ok(())
}

/// Guard of the methods that begin a block.
pub fn block_producer() -> Result<(), String> {
    admit(BLOCK_PRODUCERS)
}

/// Guard of a feeder's methods.
pub fn utxo_feeder() -> Result<(), String> {
    admit(UTXO_FEEDERS)
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
    check(AUDITORS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;
    use crate::runtime::native;
    use coppice_interface::{CanisterArg, ConfigChange, InitArg};

    fn inspected(caller: Principal, method: &str, argument_bytes: u64) -> Result<(), String> {
        native::with(|world| {
            (world.caller, world.method, world.argument_bytes) = (caller, method.into(), argument_bytes)
        });
        inspect()
    }

    #[test]
    fn the_door_goes_by_the_table_and_by_how_long_a_querys_argument_is() {
        native::reset();
        memory::forget();
        let of = |byte: u8| Principal::from_slice(&[byte, 1]);
        let (producer, operator, admin, controller) = (of(1), of(2), of(3), of(4));
        native::with(|world| world.controllers = vec![controller, Principal::anonymous()]);
        let init = InitArg {
            producers: vec![producer],
            operators: vec![operator],
            admins: Some(vec![admin]),
            ..InitArg::default()
        };
        state::init(Some(CanisterArg::Init(init))).unwrap();
        // An update is as long as it is, a query is not.
        for bytes in [0, QUERY_ARGUMENT - 1, QUERY_ARGUMENT, u64::MAX] {
            assert_eq!(inspected(producer, "append_block", bytes), Ok(()));
            for caller in [producer, operator, admin, controller] {
                assert_eq!(inspected(caller, "get_block", bytes).is_ok(), bytes < QUERY_ARGUMENT);
            }
            for caller in [operator, admin, controller] {
                assert_eq!(inspected(caller, "get_audit_log", bytes).is_ok(), bytes < QUERY_ARGUMENT);
                assert!(inspected(caller, "append_block", bytes).is_err());
            }
            assert!(inspected(producer, "get_audit_log", bytes).is_err());
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
        state::mutate(|state| state.set_config("set_config", &change)).unwrap();
        for stranger in [Principal::anonymous(), of(9)] {
            for (method, required) in TABLE {
                assert_eq!(inspected(stranger, method, 9_999).is_ok(), *required == Required::Nobody, "{method}");
                assert!(inspected(stranger, method, 10_000).is_err(), "{method}");
            }
        }
        let grant = coppice_interface::Grant { principal: producer, role: Role::Producer };
        assert!(state::mutate(|state| state.revoke_role(&grant)));
        assert!(inspected(producer, "append_block", 0).is_err());
    }
}
