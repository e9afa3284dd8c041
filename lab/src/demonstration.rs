//! A canister with a chain that never ends: a block a minute, an exporter that copies it with pauses, and a policy that prunes behind both.

use crate::chain_gen::Generator;
use crate::embedded::Embedded;
use anyhow::Result;
use coppice::client::{Client, Reach, Wait};
use coppice::feed;
use coppice::site::Site;
use coppice_interface::{BlockHash, ConfigChange, Exporter, PrunePolicyArg, Role};
use std::sync::Arc;
use std::time::Duration;

/// Seconds between two blocks.
const INTERVAL: u64 = 60;
/// Blocks of the chain: more than a year of them.
const BLOCKS: u64 = 600_000;
/// Blocks behind the head that age leaves.
const RETAINED: u64 = 600;
/// Bytes that the chain may take.
const TARGET: u64 = 160 << 20;
/// The exporter acknowledges each so many blocks.
const EVERY: u64 = 10;
/// Of so many blocks it sleeps through some.
const CYCLE: u64 = 360;
const ASLEEP: u64 = 80;

/// A chain that goes on as long as somebody lets time pass.
pub struct Demonstration {
    client: Arc<Client<Embedded>>,
    blocks: Generator,
    /// Blocks that were appended.
    appended: u64,
    /// The last block, which the exporter has not acknowledged yet.
    last: Option<(u64, BlockHash)>,
}

impl Demonstration {
    /// Installs a canister in this process.
    ///
    /// # Errors
    /// When it cannot be installed, or refuses something.
    pub fn start(wasm: Vec<u8>, seed: u64) -> Result<Self> {
        let client = Embedded::start(wasm)?;
        client.set_config(&ConfigChange { public_logs: Some(true), ..ConfigChange::default() }).done()?;
        let principal = client.transport().principal(Role::Exporter);
        client.register_exporter(&Exporter { name: "archive".into(), principal }).done()?;
        client
            .set_prune_policy(&PrunePolicyArg {
                retain_blocks: Some(RETAINED),
                target_bytes: Some(TARGET),
                ..PrunePolicyArg::default()
            })
            .done()?;
        let blocks = Generator::new(seed, BLOCKS, client.transport().now_secs(), INTERVAL)?;
        Ok(Self { client: Arc::new(client), blocks, appended: 0, last: None })
    }

    /// The canister.
    pub fn client(&self) -> Arc<Client<Embedded>> {
        Arc::clone(&self.client)
    }

    /// A minute: a block comes, the exporter acknowledges what it has, and timers that are due fire.
    ///
    /// # Errors
    /// When the canister refuses something or traps.
    pub fn step(&mut self) -> Result<()> {
        if let Some(block) = self.blocks.next() {
            feed::send(&self.client, &block)?;
            self.appended += 1;
            self.last = Some((block.number, block.hash));
        }
        let wakes = self.appended.is_multiple_of(EVERY) && self.appended % CYCLE >= ASLEEP;
        if let Some((number, hash)) = self.last.take_if(|_| wakes) {
            self.client.ack_exported(number, &hash).done()?;
        }
        // Twice, so that what a tick arms for the next round is done, too.
        self.client.transport().pass(Duration::from_secs(INTERVAL))?;
        self.client.transport().pass(Duration::ZERO)
    }

    /// So many seconds, a minute after the other.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn pass(&mut self, secs: u64) -> Result<()> {
        (0..secs / INTERVAL).try_for_each(|_| self.step())
    }
}
