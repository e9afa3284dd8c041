//! Blocks that are applied to the UTXO records, compared with the single calls that create, spend and set mined: the records are equal, and
//! applying costs less.

mod advice;
mod by_single_calls;
mod reorg;
mod same;

use crate::net::Net;
use bitcoin::Block;
use bitcoin::consensus::serialize;
use by_single_calls::Form;
use candid::Principal;
use coppice_testkit::spend_chain::{self, FIRST, MATURITY, MEASURED};
use ic_coppice_cli::client::{CanisterClient, Client, Failure, Transport, Wait};
use ic_coppice_cli::ingest::{Plan, feed_to, read};
use ic_coppice_cli::network::Network;
use ic_coppice_client::Embedded;
use ic_coppice_interface::{ConfigChange, Role, UtxoSettingsChange};
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of a signed message besides its argument, at most.
const ENVELOPE: usize = 400;

/// Returns blocks in the format of regtest's `blk*.dat`.
fn framed(blocks: &[Block]) -> Vec<u8> {
    let frame = |block: &Block| {
        let raw = serialize(block);
        [&[0xFA, 0xBF, 0xB5, 0xDA][..], &(raw.len() as u32).to_le_bytes(), &raw].concat()
    };
    blocks.iter().flat_map(frame).collect()
}

/// Returns a canister behind a gateway, with the chain's maturity of coinbases. Its clock is the real one, so that timers fire rarely.
fn net(maturity: u32) -> Net {
    let net = Net::start();
    net.gateway.follow_the_clock();
    let utxo = UtxoSettingsChange { coinbase_maturity: Some(maturity), ..UtxoSettingsChange::default() };
    net.client().set_config(&ConfigChange { utxo: Some(utxo), ..ConfigChange::default() }).done().unwrap();
    net
}

/// Returns a client in this process, which reads faster than one over the gateway.
fn reader(net: &Net) -> Client<Embedded> {
    Client::new(Embedded::new(net.host.clone(), net.canister, Principal::anonymous()))
}

/// A client whose updates go over the gateway. Queries, of which the verification makes 60,000, are free and stay in this process.
struct Split {
    updates: Client<Network>,
    queries: Client<Embedded>,
}

impl Split {
    fn of(net: &Net) -> Client<Self> {
        Client::new(Self { updates: net.client(), queries: reader(net) })
    }
}

impl Transport for Split {
    async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.updates.transport().update(method, arg).await
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.queries.transport().query(method, arg).await
    }
}

impl CanisterClient for Split {
    fn principal(&self, role: Role) -> Principal {
        self.updates.transport().principal(role)
    }

    fn await_timer(&self, interval: Duration) -> anyhow::Result<()> {
        self.updates.transport().await_timer(interval)
    }

    fn patience(&self) -> u32 {
        self.updates.transport().patience()
    }
}

/// The costs of feeding blocks.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// Cycles of everything that the canister executed.
    cycles: u128,
    /// Bytes of all messages.
    bytes_in: usize,
    messages: usize,
}

/// Measures what `feeds` sends to the canister.
fn costs(net: &Net, feeds: impl FnOnce()) -> Costs {
    net.gateway.remember();
    let before = net.host.cycle_balance(net.canister);
    feeds();
    let cycles = before - net.host.cycle_balance(net.canister);
    let made = net.gateway.made();
    let bytes_in = made.iter().map(|call| call.arg.len() + ENVELOPE).sum();
    Costs { cycles, bytes_in, messages: made.len() }
}

#[test]
fn generated_chain_costs_less_than_by_single_calls_and_leaves_equal_records() {
    let blocks = spend_chain::blocks(MEASURED);
    let transactions: u128 = blocks.iter().map(|block| block.txdata.len() as u128).sum();
    let payload: usize = blocks.iter().map(by_single_calls::payload_len).sum();
    let [applied, extended, standard] = [(); 3].map(|()| net(MATURITY));
    let file = applied.path("blocks.dat");
    std::fs::write(&file, framed(&blocks)).unwrap();
    let ordered = read(&[file.into()], None).unwrap();

    let plan = Plan { utxo: true, ..Plan::default() };
    let new = costs(&applied, || drop(feed_to(&Split::of(&applied), &ordered, &plan).unwrap()));
    // In the extended form, which implies the fee, and in the form of the block.
    let [old, bare] = [(&extended, Form::Extended), (&standard, Form::Standard)]
        .map(|(net, form)| costs(net, || by_single_calls::replay(&net.client(), FIRST, &blocks, form)));
    let hundredths = |old: Costs| old.cycles * 100 / new.cycles;
    let of_blocks = new.bytes_in * 1_000 / payload;
    for (name, Costs { cycles, bytes_in, messages }) in
        [("applied", new), ("single calls", old), ("standard form", bare)]
    {
        eprintln!("{name}: {} cycles a transaction, {bytes_in} bytes in, {messages} messages", cycles / transactions);
    }
    eprintln!(
        "{transactions} transactions in {payload} bytes of blocks; bytes in are {of_blocks} thousandths of the blocks"
    );
    eprintln!(
        "the single calls cost {} hundredths of applying, in the standard form {}",
        hundredths(old),
        hundredths(bare)
    );
    assert!(of_blocks <= 1_050, "{new:?}, and {payload} bytes of blocks");
    assert!(hundredths(old) >= 215, "{new:?}, {old:?}");
    same::assert_same(&reader(&applied), &reader(&standard), FIRST, &blocks);
}

#[test]
fn mainnet_blocks_1_to_255_leave_equal_records_both_ways() {
    let Some(files) = std::env::var_os("COPPICE_BLOCKS").map(PathBuf::from) else {
        eprintln!("not run: mainnet blocks 1 to 255 both ways; COPPICE_BLOCKS names no directory of blocks");
        return;
    };
    let ordered = read(std::slice::from_ref(&files), None).unwrap();
    let blocks: Vec<Block> = ordered.chain.iter().map(|found| found.load().unwrap().1).collect();
    assert_eq!(blocks.len(), 255);
    let [applied, standard] = [(); 2].map(|()| net(100));
    let output = applied.run(&["ingest", "--utxo", "--blk", &files.display().to_string()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    by_single_calls::replay(&standard.client(), 1, &blocks, Form::Standard);
    same::assert_same(&reader(&applied), &reader(&standard), 1, &blocks);
}
