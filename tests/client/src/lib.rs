//! Tests of the client, written once and run over each of its transports: natively over HTTP and on an Internet Computer for tests, and
//! inside a canister that calls Coppice, which is this crate as wasm.
//!
//! Each test begins after the current head and restores the settings that it found, so all tests share one canister, in any order. The
//! caller has the [`ROLES`].

mod blocks;
mod canister;
mod chain;
mod deletions;
mod held;
mod records;

use candid::Principal;
use coppice_client::{Client, Transport};
use coppice_interface::{InitArg, Role};

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
    chain::a_block_that_no_message_holds_goes_in_chunks,
    chain::an_upload_that_was_interrupted_goes_on,
    chain::a_rollback_takes_out_what_was_appended,
    chain::exports_are_read_page_by_page_and_acknowledged,
    chain::transactions_with_a_key_come_page_by_page,
    chain::the_subnet_answers_a_query_as_a_replica_does,
    chain::what_is_refused_says_whether_it_may_succeed_later,
    held::who_holds_pruning_back_is_told_and_the_same_block_goes_on_after_it,
    records::a_batch_of_any_size_is_answered_whole,
    records::a_transaction_that_no_message_holds_is_uploaded,
    deletions::a_lease_is_the_same_when_it_is_asked_for_again,
}
