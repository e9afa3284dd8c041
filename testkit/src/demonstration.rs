//! Canister whose clock runs: with an endless chain, a block per minute, an exporter that copies it with pauses, and a policy that prunes
//! behind both; or with a chain that is complete.

use crate::chain_gen::Generator;
use crate::embedded::Embedded;
use anyhow::{Context, Result};
use ic_coppice_client::Client;
use ic_coppice_client::command::{CanisterClient, Wait};
use ic_coppice_interface::{AppendBlock, BlockHash, ConfigChange, Exporter, PrunePolicyArg, Role};
use std::sync::Arc;
use std::time::Duration;

/// Seconds between two blocks.
const INTERVAL: u64 = 60;
/// Blocks of the chain, enough for more than a year.
const BLOCKS: u64 = 600_000;
/// Blocks below the head that the age trigger keeps.
const RETAINED: u64 = 600;
/// Bytes that the chain may occupy.
const TARGET: u64 = 160 << 20;
/// Blocks after which the exporter acknowledges.
const EVERY: u64 = 10;
/// The exporter pauses for the first `ASLEEP` blocks of every `CYCLE`.
const CYCLE: u64 = 360;
const ASLEEP: u64 = 80;

/// A canister whose clock runs, and whose chain may grow.
pub struct Demonstration<C = Embedded> {
    client: Arc<Client<C>>,
    /// The blocks to append, or `None` if the chain is complete.
    blocks: Option<Generator>,
    /// Blocks appended so far.
    appended: u64,
    /// The last block, if the exporter has not acknowledged it yet.
    last: Option<(u64, BlockHash)>,
    /// The block that the canister refused last, which is sent again.
    refused: Option<AppendBlock>,
    /// Refused appends are repeated a minute later, instead of ending the demonstration.
    tolerant: bool,
    /// The exporter acknowledges.
    exports: bool,
    every_minute: Option<Box<dyn Fn() + Send>>,
}

impl Demonstration {
    /// Installs a canister in this process.
    ///
    /// # Errors
    /// When it cannot be installed; as [`Demonstration::on`].
    pub fn start(wasm: Vec<u8>, seed: u64) -> Result<Self> {
        let client = Embedded::start(wasm)?;
        let now = client.transport().now_secs();
        Self::on(Arc::new(client), seed, now)
    }
}

impl<C: CanisterClient> Demonstration<C> {
    /// Sets up a canister without blocks. The chain begins at a time in Unix seconds.
    ///
    /// # Errors
    /// When the canister refuses something.
    pub fn on(client: Arc<Client<C>>, seed: u64, begins_at: u64) -> Result<Self> {
        client.set_config(&ConfigChange { public_logs: Some(true), ..ConfigChange::default() }).done()?;
        let principal = client.transport().principal(Role::Exporter);
        client.register_exporter(&Exporter { name: "archive".into(), principal }).done()?;
        client
            .set_prune_policy(&PrunePolicyArg {
                retain_blocks: Some(RETAINED),
                timer_interval_secs: Some(60),
                target_bytes: Some(TARGET),
                ..PrunePolicyArg::default()
            })
            .done()?;
        let blocks = Generator::new(seed, BLOCKS, begins_at, INTERVAL)?;
        Ok(Self::of(client, Some(blocks)))
    }

    /// Takes a canister whose chain is complete: only its clock runs. Everybody may read its log.
    ///
    /// # Errors
    /// When the canister refuses the setting.
    pub fn complete(client: Arc<Client<C>>) -> Result<Self> {
        client.set_config(&ConfigChange { public_logs: Some(true), ..ConfigChange::default() }).done()?;
        Ok(Self::of(client, None))
    }

    fn of(client: Arc<Client<C>>, blocks: Option<Generator>) -> Self {
        let (refused, every_minute) = (None, None);
        Self { client, blocks, appended: 0, last: None, refused, tolerant: false, exports: true, every_minute }
    }

    /// From now on a refused block is sent again a minute later.
    pub fn tolerate_refusals(&mut self) {
        self.tolerant = true;
    }

    /// From now on the exporter acknowledges nothing.
    pub fn stop_exporter(&mut self) {
        self.exports = false;
    }

    /// Runs a function at the beginning of each minute from now on.
    pub fn every_minute(&mut self, run: Box<dyn Fn() + Send>) {
        self.every_minute = Some(run);
    }

    pub fn client(&self) -> Arc<Client<C>> {
        Arc::clone(&self.client)
    }

    /// Simulates a minute: appends the next block, lets the exporter acknowledge, and fires due timers.
    ///
    /// # Errors
    /// When the canister refuses something or traps.
    pub fn step(&mut self) -> Result<()> {
        if let Some(run) = &self.every_minute {
            run();
        }
        if let Some(block) = self.refused.take().or_else(|| self.blocks.as_mut()?.next()) {
            let sent = self.client.send_block(&block).done();
            match sent.with_context(|| format!("block {}", block.number)) {
                Ok(_) => {
                    self.appended += 1;
                    self.last = Some((block.number, block.hash));
                }
                Err(_) if self.tolerant => self.refused = Some(block),
                Err(error) => return Err(error),
            }
        }
        let wakes = self.exports && self.appended.is_multiple_of(EVERY) && self.appended % CYCLE >= ASLEEP;
        if let Some((number, hash)) = self.last.take_if(|_| wakes) {
            match self.client.ack_exported(number, &hash).done() {
                Ok(_) => {}
                // Acknowledged with a later block.
                Err(_) if self.tolerant => self.last = Some((number, hash)),
                Err(error) => return Err(error),
            }
        }
        // A second time, for timers that a tick arms for the next round.
        self.client.transport().pass(Duration::from_secs(INTERVAL))?;
        self.client.transport().pass(Duration::ZERO)
    }

    /// Simulates `secs` seconds, minute by minute.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn pass(&mut self, secs: u64) -> Result<()> {
        (0..secs / INTERVAL).try_for_each(|_| self.step())
    }
}
