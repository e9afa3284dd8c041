//! The certificates of a run: the newest one, and the one that has proved the blocks in the database.

use crate::index::store::Proof;
use ic_coppice_client::certificate::{Certified, Kept};
use std::time::Duration;

/// The largest difference between a certificate's time and the reader's clock.
const CLOCK: Duration = Duration::from_secs(300);
/// The longest time without a new block or certificate.
const STALE: Duration = Duration::from_secs(600);

/// The certificates of a run.
#[derive(Default)]
pub struct Trust {
    certified: Option<Certified>,
    /// The proof of the stored blocks.
    proof: Option<Proof>,
    /// The certificate that has proved the blocks that come next.
    proving: Option<Certified>,
    /// The canister was restored from a snapshot, so that rows it lacks may be the only copy.
    pub restored: bool,
    /// The time of the last proved block or certificate, on the reader's clock.
    seen: Duration,
    /// A replica has not handed out the next proved block, perhaps because the chain was reorganised.
    doubt: bool,
    note: Option<String>,
    claim: Option<String>,
    /// Calls in a row that were refused because the caller has no role.
    refusals: u32,
}

impl Trust {
    /// Continues with the proof of the stored blocks.
    pub fn since(proof: Option<Proof>) -> Self {
        Self { proof, ..Self::default() }
    }

    pub fn note(&mut self, note: String) {
        self.note = Some(note);
    }

    /// Returns the note for the user.
    pub fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// The newest certificate.
    pub fn certified(&self) -> Option<&Certified> {
        self.certified.as_ref()
    }

    /// The certificate that has proved the next blocks.
    pub fn proving(&self) -> Option<&Certified> {
        self.proving.as_ref()
    }

    pub fn proof(&self) -> Option<Proof> {
        self.proof
    }

    /// Accepts a genuine certificate, unless it is too old or the clock is off.
    ///
    /// # Errors
    /// The reason, a sentence.
    pub fn accept(&mut self, certified: Certified, now: Duration) -> Result<(), String> {
        let (time, secs) = (Duration::from_nanos(certified.time_ns), |time: Duration| time.as_secs());
        let newest = self.certified.as_ref().map(|newest| newest.time_ns).max(self.proof.map(|proof| proof.time_ns));
        if newest.is_some_and(|newest| certified.time_ns < newest) {
            let newest = Duration::from_nanos(newest.unwrap_or_default());
            return Err(format!(
                "a replica handed out the certificate of {} s since 1970, but a later one, of {} s, was used before",
                secs(time),
                secs(newest)
            ));
        }
        if now.abs_diff(time) > CLOCK {
            return Err(format!(
                "the subnet's certificate is of {} s since 1970, and the clock of this machine shows {} s: either the clock is off, or the \
                 gateway hands out old certificates",
                secs(time),
                secs(now)
            ));
        }
        self.certified = Some(certified);
        self.seen = now;
        Ok(())
    }

    /// The number of the head in the newest certificate.
    pub fn certified_head(&self) -> Option<u64> {
        self.certified.as_ref()?.head.map(|(number, _)| number)
    }

    /// The oldest block of the canister when the stored blocks were proved.
    pub fn stored_first(&self) -> u64 {
        self.proof.map_or(0, |proof| proof.first)
    }

    /// Keeps a replica's claim, about which the subnet is asked.
    pub fn claim(&mut self, claim: String) {
        self.claim = Some(claim);
    }

    /// Returns the claim about which the subnet was asked.
    pub fn take_claim(&mut self) -> Option<String> {
        self.claim.take()
    }

    /// Notes that the caller may not ask the subnet. Returns how often in a row.
    pub fn refused(&mut self) -> u32 {
        self.refusals += 1;
        self.refusals
    }

    /// Notes that the subnet has answered.
    pub fn asked(&mut self) {
        self.refusals = 0;
    }

    /// Returns whether a certificate is due, because no block and no certificate came for ten minutes.
    pub fn is_stale(&self, now: Duration) -> bool {
        now < self.seen || now.saturating_sub(self.seen) >= STALE
    }

    /// Doubts that the proved blocks are still in the chain.
    pub fn doubt(&mut self) {
        self.doubt = true;
    }

    /// Returns whether headers up to a new certificate must show that the proved blocks are still in the chain.
    pub fn is_in_doubt(&self, now: Duration) -> bool {
        self.doubt || self.is_stale(now)
    }

    /// Notes that a proved block was stored.
    pub fn saw_block(&mut self, now: Duration) {
        self.seen = now;
    }

    /// Notes that the newest certificate proves the next blocks. Returns the proof that is stored with them.
    pub fn prove(&mut self) -> Option<Proof> {
        let Certified { time_ns, kept, .. } = self.certified.as_ref()?;
        (self.proving, self.doubt) = (self.certified.clone(), false);
        self.proof = match (*kept, self.proof) {
            (Some(Kept { first, resets, rollbacks, .. }), _) => {
                Some(Proof { time_ns: *time_ns, first, resets, rollbacks })
            }
            (None, before) => before.map(|before| Proof { time_ns: *time_ns, ..before }),
        };
        self.proof
    }

    /// Returns the beginning of the chain, with how its counts differ from those of the stored blocks.
    pub fn counts(&self) -> Counts {
        let Some((kept, proof)) = self.certified.as_ref().and_then(|certified| certified.kept).zip(self.proof) else {
            return Counts::Unknown;
        };
        if kept.resets < proof.resets || kept.rollbacks < proof.rollbacks {
            Counts::Lower
        } else if kept.resets > proof.resets {
            Counts::Reset
        } else if kept.rollbacks > proof.rollbacks {
            Counts::RolledBack
        } else {
            Counts::Same
        }
    }
}

/// The counts of a certificate, compared with those of the stored blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// The certificate has no counts, or nothing is stored.
    Unknown,
    /// Nothing was rolled back since.
    Same,
    /// Blocks were rolled back since.
    RolledBack,
    /// The chain was reset since.
    Reset,
    /// The canister was restored from a snapshot or installed anew.
    Lower,
}
