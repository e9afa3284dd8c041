//! Tests of the client, written once and run over each of its transports: natively over HTTP and on an Internet Computer for tests, and
//! inside a canister that calls Coppice, which is this crate as wasm.
//!
//! Each test begins after the current head and restores the settings that it found, so all tests share one canister, in any order. The
//! caller has the [`ROLES`].

mod applying;
mod blocks;
mod canister;
mod chain;
mod deletions;
mod following;
mod held;
mod records;

use candid::Principal;
use ic_coppice_client::{Client, Transport};
use ic_coppice_interface::{InitArg, Role};

/// The roles that the caller needs besides that of a registered exporter, which a test registers itself.
pub const ROLES: [Role; 4] = [Role::Producer, Role::Operator, Role::BlobWorker, Role::Alert];

/// The argument that installs the canister under test: small blobs, so that few blocks fill one, and an admin who is the caller.
pub fn init_arg(caller: Principal) -> InitArg {
    let all = vec![caller];
    InitArg {
        log_class: Some(64 << 10),
        operators: all.clone(),
        producers: all.clone(),
        admins: Some(all),
        least_retries: None,
        ..InitArg::default()
    }
}

/// The names of the tests that need a canister with UTXO records.
pub const OF_RECORDS: &[&str] = &[
    "an_applied_block_is_taken_back_by_its_rollback",
    "a_batch_of_any_size_is_answered_whole",
    "a_transaction_larger_than_a_message_is_uploaded",
    "a_block_is_applied_over_several_messages_and_taken_back",
    "a_repeated_acquire_returns_the_same_lease",
];

macro_rules! tests {
    ($($area:ident::$name:ident),* $(,)?) => {
        /// The names of all tests.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];

        /// Runs one test.
        ///
        /// # Panics
        /// If the test fails, or if there is no test with this name.
        pub async fn run<T: Transport>(name: &str, client: &Client<T>, caller: Principal) {
            match name {
                $(stringify!($name) => $area::$name(client, caller).await,)*
                _ => panic!("there is no test {name}"),
            }
        }
    };
}

tests! {
    chain::blocks_are_appended_once_and_read_back,
    chain::a_block_larger_than_a_message_is_sent_in_chunks,
    chain::an_interrupted_upload_resumes,
    chain::a_rollback_removes_appended_blocks,
    chain::exports_are_read_page_by_page_and_acknowledged,
    chain::transactions_with_a_key_come_page_by_page,
    chain::the_subnet_answers_a_query_as_a_replica_does,
    chain::refusals_report_whether_a_retry_may_succeed,
    held::a_refusal_names_the_holder_and_the_block_is_accepted_after_pruning,
    following::a_chain_is_followed_through_a_reorg,
    following::an_applied_block_is_taken_back_by_its_rollback,
    following::a_chain_waits_while_pruning_is_held_back,
    records::a_batch_of_any_size_is_answered_whole,
    records::a_transaction_larger_than_a_message_is_uploaded,
    applying::a_block_is_applied_over_several_messages_and_taken_back,
    deletions::a_repeated_acquire_returns_the_same_lease,
}
