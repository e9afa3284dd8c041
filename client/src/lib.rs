//! A typed client of the Coppice canister.
//!
//! [`Client`] has every method of the interface under its own name, with the types of `ic_coppice_interface`. It also has methods for work
//! that takes several calls: following a chain through back-pressure and reorgs; uploading blocks and transactions that are too large for a
//! message; commits, rollbacks and applying blocks to the UTXO records over several messages; batches of any size; and paged reads.
//! [`Block`] makes blocks. Every error tells if and when a retry may succeed ([`Retry`]).
//!
//! The client reaches the canister over a [`Transport`], a trait of two functions. Three transports are included, each a feature:
//!
//! | feature | transport | for |
//! |---|---|---|
//! | `agent` | [`OverHttp`] | a canister on a network, by ic-agent |
//! | `host` | [`Embedded`] | a canister in the same process, on `ic_coppice_host` |
//! | `canister` | [`InterCanister`] | another canister, by ic-cdk, with a bounded wait |
//!
//! Two more features serve commands: `bitcoin` converts Bitcoin blocks, and `command` has blocking calls and reads certificates.
//!
//! The client has no runtime of its own; its futures run in any runtime.
//!
//! ```
//! use ic_coppice_client::{Block, Client, Transport};
//!
//! /// Appends a block with one transaction, and returns what prevents it, if anything does. Appending is idempotent: after a lost answer,
//! /// send the same block again.
//! async fn append<T: Transport>(client: &Client<T>) -> Result<(), Box<dyn std::error::Error>> {
//!     let block = Block::new(1, [1; 32], [0; 32], 1_700_000_000)
//!         .body("any bytes")
//!         .transaction([7; 32], Some(b"receipt"), &[b"a secondary key"])
//!         .seal()?;
//!     match client.send_block(&block).await {
//!         Err(error) if error.held_by().is_some() => println!("the block waits for pruning: {:?}", error.held_by()),
//!         Err(error) if error.is_reorg() => println!("the canister has another branch"),
//!         sent => println!("{:?}", sent?),
//!     }
//!     Ok(())
//! }
//! ```
//!
//! [`Client::follow`] does all of it for a whole chain: it waits, repeats, and resolves reorgs.

/// The pages for client developers; their examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/client.md")]
struct Pages;

/// The code in the repository's README.md and in this crate's compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "agent")]
mod agent;
mod apply_block;
#[cfg(test)]
mod arguments;
mod batch;
#[cfg(feature = "bitcoin")]
mod bitcoin;
mod block;
#[cfg(feature = "canister")]
mod canister;
#[cfg(feature = "command")]
pub mod cbor;
#[cfg(feature = "command")]
pub mod certificate;
#[cfg(feature = "command")]
pub mod command;
mod completion;
mod compress;
mod decode;
mod error;
mod follow;
#[cfg(feature = "host")]
mod host;
mod item;
mod methods;
mod pages;
mod read;
mod retry;
mod send;
#[cfg(test)]
mod testing;
mod transport;
mod upload;

#[cfg(feature = "agent")]
pub use agent::OverHttp;
pub use batch::Interrupted;
pub use block::{Block, SealError};
#[cfg(feature = "canister")]
pub use canister::InterCanister;
pub use completion::Unfinished;
pub use error::{CallError, Cause, Error, Failure, Reject, heard};
pub use follow::{Chain, FollowError, Followed, Pause};
#[cfg(feature = "host")]
pub use host::Embedded;
pub use pages::{ExportPager, HeaderPager, KeyPager};
pub use read::Segments;
pub use retry::{Refusal, Retry};
pub use send::{Room, Unsent};
pub use transport::{Replicated, Transport};
pub use upload::{CHUNK, MAX_APPEND, Sent};

use candid::CandidType;
use candid::utils::{ArgumentDecoder, ArgumentEncoder};
use serde::de::DeserializeOwned;

/// Typed client of the canister's interface, over a transport.
#[derive(Clone, Copy, Debug)]
pub struct Client<T> {
    transport: T,
}

impl<T: Transport> Client<T> {
    /// Creates a client over a transport.
    pub fn new(transport: T) -> Self {
        Self { transport }
    }

    /// Returns the transport, for functions of its own.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// Returns the same client with queries sent as update calls: slower, but answered by the subnet instead of one replica.
    pub fn replicated(&self) -> Client<Replicated<&T>> {
        Client::new(Replicated(&self.transport))
    }

    /// Calls an update method by its name, or a query method as an update.
    ///
    /// # Errors
    /// When the argument cannot be encoded, there is no answer, or the answer is not of type `R`.
    pub async fn update<A, R>(&self, method: &str, args: A) -> Result<R, CallError>
    where
        A: ArgumentEncoder,
        R: CandidType + DeserializeOwned,
    {
        let call = async |arg| self.transport.update(method, arg).await;
        let (reply,): (R,) = exchange(method, args, true, call).await?;
        Ok(reply)
    }

    /// Calls a query method by its name.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub async fn query<A, R>(&self, method: &str, args: A) -> Result<R, CallError>
    where
        A: ArgumentEncoder,
        R: CandidType + DeserializeOwned,
    {
        let call = async |arg| self.transport.query(method, arg).await;
        let (reply,): (R,) = exchange(method, args, T::REPLICATED, call).await?;
        Ok(reply)
    }
}

/// Encodes the argument, calls, and decodes the reply. `is_certified`: the whole subnet vouches for the reply, not one replica.
async fn exchange<A, R>(
    method: &str,
    args: A,
    is_certified: bool,
    call: impl AsyncFnOnce(Vec<u8>) -> Result<Vec<u8>, Failure>,
) -> Result<R, CallError>
where
    A: ArgumentEncoder,
    R: for<'a> ArgumentDecoder<'a>,
{
    let failed = |failure| CallError { method: method.into(), failure };
    let arg = candid::encode_args(args).map_err(|error| failed(Failure::Argument(error)))?;
    let reply = call(arg).await.map_err(failed)?;
    decode::decode(&reply).map_err(|error| {
        failed(if is_certified { Failure::Answer(error) } else { Failure::Transport(Box::new(Garbled(error))) })
    })
}

/// A replica's answer that does not match the interface.
#[derive(Debug, thiserror::Error)]
#[error("a replica's answer does not match the interface")]
struct Garbled(#[source] candid::Error);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Script, block_on};

    #[test]
    fn undecodable_answer_is_the_canisters_only_if_the_subnet_certifies_it() {
        let client = Client::new(
            Script::default().returns("health", Ok(b"noise".into())).returns("health", Ok(b"noise".into())),
        );
        let error = block_on(client.health()).unwrap_err();
        assert!(matches!(error.failure, Failure::Transport(_)), "{error:?}");
        let error = block_on(client.replicated().health()).unwrap_err();
        assert!(matches!(error.failure, Failure::Answer(_)), "{error:?}");
        client.transport().ended();
    }
}
