//! A typed client of the Coppice canister.
//!
//! [`Client`] has every method of the interface under its own name, with the types of `coppice_interface`. On top of these it knows what takes
//! several calls: blocks and transactions that no message holds, commits and rollbacks that go on over messages, batches of which something
//! remains, pages. What it is refused says whether the same may succeed later ([`Retry`]).
//!
//! It reaches the canister over a [`Transport`], which is two functions. Three are here, each a feature:
//!
//! | feature | transport | for |
//! |---|---|---|
//! | `agent` | [`OverHttp`] | a canister on a network, by ic-agent |
//! | `host` | [`Embedded`] | a canister in the same process, on `coppice_host` |
//! | `canister` | [`InterCanister`] | another canister, by ic-cdk, with a bounded wait |
//!
//! The client has no runtime: its futures run in whichever there is.
//!
//! ```
//! use coppice_client::{Client, Error, Retry, Sent, Transport};
//! use coppice_interface::{AppendBlock, AppendError, HeldBy, UploadError};
//!
//! /// Feeds a block: `Ok(None)` when it is kept, else who holds pruning back. An error whose class is `Retry::Again` asks for the same block
//! /// a little later: appending is idempotent.
//! async fn feed<T: Transport>(client: &Client<T>, block: &AppendBlock) -> Result<Option<HeldBy>, Error<UploadError>> {
//!     match client.send_block(block).await {
//!         Ok(Sent::Whole | Sent::InChunks) => Ok(None),
//!         // Send the same block again when something was pruned.
//!         Err(Error::Refused(UploadError::Append(AppendError::CapacityExhausted { held_by }))) => Ok(Some(held_by)),
//!         Err(error) => Err(error),
//!     }
//! }
//!
//! /// Feeds a block, ten times at most, as it would be done with a `wait` of the caller's runtime, in seconds.
//! async fn feed_patiently<T: Transport>(
//!     client: &Client<T>,
//!     block: &AppendBlock,
//!     wait: impl AsyncFn(u64),
//! ) -> Result<Option<HeldBy>, Error<UploadError>> {
//!     for seconds in 1..10 {
//!         match feed(client, block).await {
//!             Err(error) if error.retry() == Retry::Again => wait(seconds).await,
//!             fed => return fed,
//!         }
//!     }
//!     feed(client, block).await
//! }
//! ```

/// The page for client developers: what it shows compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/client.md")]
struct Page;

#[cfg(feature = "agent")]
mod agent;
#[cfg(test)]
mod arguments;
mod batch;
#[cfg(feature = "canister")]
mod canister;
mod completion;
mod decode;
mod error;
#[cfg(feature = "host")]
mod host;
mod methods;
mod pages;
mod read;
mod retry;
#[cfg(test)]
mod testing;
mod transport;
mod upload;

#[cfg(feature = "agent")]
pub use agent::OverHttp;
pub use batch::Interrupted;
#[cfg(feature = "canister")]
pub use canister::InterCanister;
pub use completion::Unfinished;
pub use error::{CallError, Cause, Error, Failure, Reject, heard};
#[cfg(feature = "host")]
pub use host::Embedded;
pub use pages::{ExportPager, HeaderPager, KeyPager};
pub use read::Segments;
pub use retry::{Refusal, Retry};
pub use transport::{Replicated, Transport};
pub use upload::{CHUNK, MAX_APPEND, Sent};

use candid::CandidType;
use candid::utils::{ArgumentDecoder, ArgumentEncoder};
use serde::de::DeserializeOwned;

/// The canister's interface, typed, over a transport.
#[derive(Clone, Copy, Debug)]
pub struct Client<T> {
    transport: T,
}

impl<T: Transport> Client<T> {
    /// A client over a transport.
    pub fn new(transport: T) -> Self {
        Self { transport }
    }

    /// The transport, for what only it can do.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// The same client, whose queries are update calls: slower, and the answers are the subnet's, not one replica's.
    pub fn replicated(&self) -> Client<Replicated<&T>> {
        Client::new(Replicated(&self.transport))
    }

    /// Calls an update method by its name, or a query method as one.
    ///
    /// # Errors
    /// When the argument cannot be encoded, there is no answer, or it is not what it is taken for.
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

/// Encodes the argument, calls, and decodes the reply, for which the whole subnet vouches or one replica.
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

/// One replica's answer that is not what the interface says.
#[derive(Debug, thiserror::Error)]
#[error("a replica's answer is not what the interface says")]
struct Garbled(#[source] candid::Error);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Script, block_on};

    #[test]
    fn an_answer_that_is_no_candid_counts_as_the_canisters_only_where_the_subnet_vouches_for_it() {
        let client =
            Client::new(Script::default().says("health", Ok(b"noise".into())).says("health", Ok(b"noise".into())));
        let error = block_on(client.health()).unwrap_err();
        assert!(matches!(error.failure, Failure::Transport(_)), "{error:?}");
        let error = block_on(client.replicated().health()).unwrap_err();
        assert!(matches!(error.failure, Failure::Answer(_)), "{error:?}");
        client.transport().ended();
    }
}
