//! In the place of the network, where it was not built in; in tests beside it.
#![cfg_attr(feature = "network", expect(dead_code, reason = "tests look at its refusal alone"))]

use super::NetworkArgs;
use crate::client::{Client, Failure, Reach, Transport};
use crate::embedded::Costs;
use crate::site::Site;
use anyhow::{Result, bail};
use candid::Principal;
use coppice_interface::Role;
use std::time::Duration;

/// A canister on a network: there is none.
pub enum Network {}

/// Refuses, where a network is named.
pub(super) fn connect(args: &NetworkArgs) -> Result<Option<Client<Network>>> {
    if let Some(url) = &args.network {
        bail!(
            "this command was built without the network, so {url} cannot be reached: build it with --features network"
        );
    }
    Ok(None)
}

impl Network {
    /// The canister's principal.
    pub fn canister(&self) -> Principal {
        match *self {}
    }

    /// The network's URL.
    pub fn url(&self) -> &str {
        match *self {}
    }
}

impl Transport for Network {
    async fn update(&self, _: &str, _: Vec<u8>) -> Result<Vec<u8>, Failure> {
        match *self {}
    }

    async fn query(&self, _: &str, _: Vec<u8>) -> Result<Vec<u8>, Failure> {
        match *self {}
    }
}

impl Reach for Network {
    fn principal(&self, _: Role) -> Principal {
        match *self {}
    }
}

impl Site for Network {
    fn now_secs(&self) -> u64 {
        match *self {}
    }

    fn pass(&self, _: Duration) {
        match *self {}
    }

    fn await_timer(&self, _: Duration) {
        match *self {}
    }

    fn patience(&self) -> u32 {
        match *self {}
    }

    fn costs(&self) -> Result<Option<Costs>> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_that_is_named_is_refused_with_the_way_to_have_it() {
        let args = NetworkArgs { network: Some("http://127.0.0.1:1".parse().unwrap()), ..NetworkArgs::default() };
        let error = connect(&args).err().unwrap().to_string();
        assert!(error.contains("--features network") && error.contains("127.0.0.1"), "{error}");
        assert!(connect(&NetworkArgs::default()).unwrap().is_none());
    }
}
