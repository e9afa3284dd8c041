//! The check of a proof, which needs nothing besides the canister's principal and the network's root key.

use super::format::{Proof, Refused};
use anyhow::Result;
use ic_coppice_client::certificate::{self, Vouched};
use ic_coppice_interface::TipCertificate;
use ic_coppice_interface::seals::{Seal, seal};

/// The facts that a proof proves besides the block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    pub seal: Seal,
    /// The number of the certified block, which was the head.
    pub certified: u64,
    /// The certificate's time, in nanoseconds since 1970. The block was in the chain then.
    pub time_ns: u64,
}

impl Proof {
    /// Checks the proof. `vouch` verifies the subnet's certificate for the canister.
    pub fn check(&self, vouch: impl FnOnce(&[u8]) -> Result<Vouched>) -> Result<Checked, Refused> {
        let answer = TipCertificate {
            certificate: self.certificate.0.clone().into(),
            hash_tree: self.hash_tree.0.clone().into(),
        };
        let certified = certificate::read(answer, vouch).map_err(|why| Refused::Certificate(crate::exit::why(&why)))?;
        let (number, expected) = certified.head.ok_or(Refused::NoHead)?;
        let (block, leaves) = (self.header.number, self.leaves.len() as u64);
        if block.checked_add(leaves) != Some(number) {
            return Err(Refused::Number { block, leaves, certified: number });
        }
        let own = seal(&self.seal_before.0, &self.header.leaf()?);
        if self.leaves.iter().fold(own, |before, leaf| seal(&before, &leaf.0)) != expected {
            return Err(Refused::Seal);
        }
        Ok(Checked { seal: own, certified: number, time_ns: certified.time_ns })
    }
}
