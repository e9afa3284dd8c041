//! `coppice-lab serve --trouble`: a demonstration with a fault, from the moment at which the canister reports the fault as a problem.

use anyhow::{Result, bail};
use clap::ValueEnum;
use coppice_testkit::demonstration::Demonstration;
use coppice_testkit::embedded::Embedded;
use ic_coppice_cli::client::{Client, Wait};
use ic_coppice_interface::{BeginBlock, ConfigChange, Problem, ProblemCode};
use serde_bytes::ByteBuf;
use std::sync::Arc;

/// Minutes within which the canister must report the problem: two days.
const PATIENCE: u32 = 2_880;
/// Seconds for which the canister keeps an upload that gets no call: a week.
const UPLOAD_EXPIRY: u64 = 604_800;

/// A fault of a demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Trouble {
    /// The exporter acknowledges nothing more, until appends are refused
    Exporter,
    /// The cycles fall below the amount that pruning and appends need
    Cycles,
    /// A producer begins the upload of a block and stops, so that no other block can be appended
    Upload,
}

impl Trouble {
    /// Returns the problem that shows the fault on the dashboard.
    pub fn problem(self) -> ProblemCode {
        match self {
            Self::Exporter => ProblemCode::CapacityExhausted,
            Self::Cycles => ProblemCode::CyclesLow,
            Self::Upload => ProblemCode::UploadStuck,
        }
    }

    /// Causes the fault, and lets time pass until the canister reports it.
    ///
    /// # Errors
    /// When the canister does not report it within two days, or the demonstration fails.
    pub fn befall(self, demonstration: &mut Demonstration) -> Result<()> {
        let client = demonstration.client();
        demonstration.tolerate_refusals();
        match self {
            Self::Exporter => demonstration.stop_exporter(),
            Self::Cycles => demonstration.every_minute(drain(Arc::clone(&client))?),
            Self::Upload => begin_upload(&client)?,
        }
        for _ in 0..PATIENCE {
            demonstration.step()?;
            let problems = client.health().wait()?.problems;
            if problems.iter().filter_map(Problem::known).any(|code| code == self.problem()) {
                // Cycles that are added from now on stay.
                demonstration.every_minute(Box::new(|| {}));
                return Ok(());
            }
        }
        bail!("the canister does not report {:?} after {PATIENCE} minutes", self.problem())
    }
}

/// Returns a function that sets the balance so low that the liquid cycles are below `min_liquid_cycles`, by the freezing threshold.
fn drain(client: Arc<Client<Embedded>>) -> Result<Box<dyn Fn() + Send>> {
    let balance = client.get_config().wait()?.min_liquid_cycles;
    Ok(Box::new(move || client.transport().set_balance(balance)))
}

/// Begins the upload of a block after the head, and sends nothing of it.
fn begin_upload(client: &Client<Embedded>) -> Result<()> {
    let expiry = ConfigChange { upload_expiry_secs: Some(UPLOAD_EXPIRY), ..ConfigChange::default() };
    client.set_config(&expiry).done()?;
    let Ok(head) = client.get_head().wait()? else { bail!("the demonstration has no block") };
    let upload = BeginBlock {
        number: head.number + 1,
        hash: [1; 32].into(),
        parent_hash: head.hash,
        timestamp_secs: head.timestamp_secs,
        lengths: [3 << 20, 0, 0].into(),
        sha256: [(); 3].map(|()| ByteBuf::from([0; 32])).into(),
        chunk_size: ic_coppice_cli::feed::CHUNK,
    };
    client.begin_block(&upload).done()?;
    Ok(())
}
