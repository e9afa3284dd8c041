//! The trait of a transport: how Candid bytes reach one canister and return.

use crate::Failure;

/// A connection to one canister, as one caller. The connection runs in the runtime that its own futures need, if any.
///
/// The future of a [`Client`](crate::Client)'s method is `Send` if those of its transport are.
pub trait Transport {
    /// True if the whole subnet answers a query, as it answers an update call, and not a single replica.
    const REPLICATED: bool = false;

    /// True if the canister pays for the bytes of the calls' arguments, as for ingress messages. Lists of blocks are then compressed.
    const INGRESS: bool = false;

    /// Calls an update method, or a query method as an update, and waits for the answer of the whole subnet.
    ///
    /// # Errors
    /// When the call is rejected or traps, or there is no answer.
    fn update(&self, method: &str, arg: Vec<u8>) -> impl Future<Output = Result<Vec<u8>, Failure>>;

    /// Calls a query method. A single replica answers, unless [`REPLICATED`](Self::REPLICATED).
    ///
    /// # Errors
    /// As [`update`](Self::update).
    fn query(&self, method: &str, arg: Vec<u8>) -> impl Future<Output = Result<Vec<u8>, Failure>>;
}

impl<T: Transport> Transport for &T {
    const REPLICATED: bool = T::REPLICATED;
    const INGRESS: bool = T::INGRESS;

    fn update(&self, method: &str, arg: Vec<u8>) -> impl Future<Output = Result<Vec<u8>, Failure>> {
        T::update(self, method, arg)
    }

    fn query(&self, method: &str, arg: Vec<u8>) -> impl Future<Output = Result<Vec<u8>, Failure>> {
        T::query(self, method, arg)
    }
}

/// A transport that sends queries as update calls: slower, but answered by the subnet instead of one replica. The caller needs a role, any
/// role. The canister refuses arguments that are longer than twice the longest of the method, or than 10,000 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Replicated<T>(pub T);

impl<T: Transport> Transport for Replicated<T> {
    const REPLICATED: bool = true;
    const INGRESS: bool = T::INGRESS;

    fn update(&self, method: &str, arg: Vec<u8>) -> impl Future<Output = Result<Vec<u8>, Failure>> {
        self.0.update(method, arg)
    }

    fn query(&self, method: &str, arg: Vec<u8>) -> impl Future<Output = Result<Vec<u8>, Failure>> {
        self.0.update(method, arg)
    }
}
