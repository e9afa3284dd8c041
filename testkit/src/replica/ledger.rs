//! The ledger of cycles, of which this host has only `withdraw`: icp-cli tops canisters up by it. Cycles are made of nothing, as on local
//! networks.

use super::answer::Outcome;
use super::reject::rejection;
use candid::{CandidType, Deserialize, Nat, Principal, decode_one, encode_one};
use ic_coppice_host::Host;

/// Bytes of the ledger's id, um5iw-rqaaa-aaaaq-qaaba-cai.
const ID: [u8; 10] = [0, 0, 0, 0, 0x02, 0x10, 0x00, 0x02, 1, 1];
/// Most cycles of a withdrawal, so that no balance overflows: a million T.
const MOST: u128 = 1_000_000_000_000_000_000;

/// Returns the ledger's id.
pub fn id() -> Principal {
    Principal::from_slice(&ID)
}

#[derive(CandidType, Deserialize)]
struct Withdraw {
    amount: Nat,
    to: Principal,
}

#[derive(CandidType)]
enum WithdrawError {
    InvalidReceiver { receiver: Principal },
    InsufficientFunds { balance: Nat },
}

/// Executes a call. A withdrawal of more than [`MOST`] cycles, or to a canister that the host does not have, is refused as the ledger does.
pub fn call(host: &Host, method: &str, arg: &[u8]) -> Outcome {
    if method != "withdraw" {
        return Err(rejection(format!("the ledger of cycles of this host has no method {method}")));
    }
    let Withdraw { amount, to } =
        decode_one(arg).map_err(|error| rejection(format!("the argument is invalid: {error}")))?;
    let cycles = u128::try_from(amount.0).ok().filter(|cycles| *cycles <= MOST);
    let answer: Result<Nat, WithdrawError> = match (host.canister_info(to), cycles) {
        (None, _) => Err(WithdrawError::InvalidReceiver { receiver: to }),
        (Some(_), None) => Err(WithdrawError::InsufficientFunds { balance: MOST.into() }),
        (Some(_), Some(cycles)) => {
            host.add_cycles(to, cycles);
            Ok(Nat::from(1u8))
        }
    };
    encode_one(answer).map_err(|error| rejection(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_reach_a_canister_of_the_host_and_no_other() {
        assert_eq!(id().to_text(), "um5iw-rqaaa-aaaaq-qaaba-cai");
        let host = Host::new();
        let canister = host.create_canister_with_settings(None, None);
        let before = host.cycle_balance(canister);
        let withdraw = |to, amount| call(&host, "withdraw", &encode_one(Withdraw { amount, to }).unwrap());
        assert!(withdraw(canister, Nat::from(7_000u32)).is_ok());
        assert_eq!(host.cycle_balance(canister), before + 7_000);
        assert!(withdraw(id(), Nat::from(7_000u32)).is_ok_and(|answer| answer.windows(10).any(|bytes| bytes == ID)));
        // The balance does not overflow, whatever amount a caller names.
        for amount in [Nat::from(MOST) + 1u8, Nat::from(u128::MAX), Nat::from(u128::MAX) + 1u8] {
            assert!(withdraw(canister, amount).is_ok());
        }
        assert_eq!(host.cycle_balance(canister), before + 7_000);
        assert!(withdraw(canister, Nat::from(MOST)).is_ok());
        assert_eq!(host.cycle_balance(canister), before + 7_000 + MOST);
        assert!(call(&host, "icrc1_transfer", &[]).is_err() && call(&host, "withdraw", b"DIDL").is_err());
    }
}
