//! A canister that runs the tests from inside: `run` takes the name of a test and the canister under test, and traps if the test fails.

use candid::Principal;
use ic_cdk::{query, update};
use ic_coppice_client::{Client, Failure, InterCanister, Retry};
use ic_coppice_interface::ReadError;

/// Runs one test.
#[update]
async fn run(name: String, coppice: Principal) {
    let client = Client::new(InterCanister::new(coppice));
    crate::run(&name, &client, ic_cdk::api::canister_self()).await;
}

/// The names of all tests.
#[query]
fn names() -> Vec<String> {
    crate::NAMES.iter().map(|name| name.to_string()).collect()
}

/// Asks a canister for its head and waits at most `secs` seconds. Returns the reject code and whether the call may be retried; the code is
/// 0 if there is an answer.
#[update]
async fn wait_for_head(coppice: Principal, secs: u32) -> (u32, bool) {
    let client = Client::new(InterCanister::new(coppice).timeout(secs));
    match client.query::<_, Result<ic_coppice_interface::BlockHeader, ReadError>>("get_head", ()).await {
        Ok(_) => (0, false),
        Err(error) => match &error.failure {
            Failure::Rejected(reject) => (reject.code, error.retry() == Retry::Again),
            other => panic!("{other:?}"),
        },
    }
}
