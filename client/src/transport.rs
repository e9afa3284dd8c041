//! How bytes of Candid get to one canister and back.

use crate::Failure;

/// A way to reach one canister, as one caller. It runs in whatever runtime its own futures need, or in none.
///
/// The future of a [`Client`](crate::Client)'s method is `Send` where those of its transport are.
pub trait Transport {
    /// True if the whole subnet answers a query, as it answers an update call, and not a single replica.
    const REPLICATED: bool = false;

    /// Calls an update method, or a query method as one, and waits for the answer of the whole subnet.
    ///
    /// # Errors
    /// When the call is rejected or traps, or there is no answer.
    fn update(&self, method: &str, arg: Vec<u8>) -> impl Future<Output = Result<Vec<u8>, Failure>>;

    /// Calls a query method. Where the transport has queries, a single replica answers.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    fn query(&self, method: &str, arg: Vec<u8>) -> impl Future<Output = Result<Vec<u8>, Failure>>;
}

impl<T: Transport> Transport for &T {
    const REPLICATED: bool = T::REPLICATED;

    fn update(&self, method: &str, arg: Vec<u8>) -> impl Future<Output = Result<Vec<u8>, Failure>> {
        T::update(self, method, arg)
    }

    fn query(&self, method: &str, arg: Vec<u8>) -> impl Future<Output = Result<Vec<u8>, Failure>> {
        T::query(self, method, arg)
    }
}

/// A transport whose queries are update calls: slower, and the answers are the subnet's, not one replica's. The caller needs a role for
/// that, whichever; the canister refuses arguments that are longer than twice the longest of the method, and than 10,000 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Replicated<T>(pub T);

impl<T: Transport> Transport for Replicated<T> {
    const REPLICATED: bool = true;

    fn update(&self, method: &str, arg: Vec<u8>) -> impl Future<Output = Result<Vec<u8>, Failure>> {
        self.0.update(method, arg)
    }

    fn query(&self, method: &str, arg: Vec<u8>) -> impl Future<Output = Result<Vec<u8>, Failure>> {
        self.0.update(method, arg)
    }
}
