//! `coppice index` with databases that fail: servers that crash, poolers, proxies that go silent, files that are moved, and a canister that
//! is restored from a snapshot. Nothing is acknowledged that a crash can lose.

mod files;
mod pooler;
mod restore;
pub mod servers;
mod silence;
mod tls;

use crate::net::Net;
use crate::running::wait_for;
use coppice_testkit::chain_gen::Generator;
use ic_coppice_cli::client::{CanisterClient, Wait};
use ic_coppice_interface::*;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Blocks of the chain at first.
const BLOCKS: u64 = 20;
/// Blocks that are appended later, at most.
const MORE: u64 = 40;

/// A canister with a chain and a registered indexer.
struct World {
    net: Net,
    blocks: Vec<AppendBlock>,
    appended: usize,
}

impl World {
    fn new() -> Self {
        let net = Net::start();
        let client = net.client();
        let principal = client.transport().principal(Role::Exporter);
        client.register_exporter(&Exporter { name: "indexer".into(), principal }).done().unwrap();
        let blocks = Generator::new(3, BLOCKS + MORE, 1_700_000_000, 15).unwrap().collect();
        let mut world = Self { net, blocks, appended: 0 };
        world.append(BLOCKS as usize);
        world
    }

    fn append(&mut self, blocks: usize) {
        let client = self.net.client();
        ic_coppice_cli::feed::send(&client, &self.blocks[self.appended..self.appended + blocks]).unwrap();
        self.appended += blocks;
    }

    /// Returns the number of the next block after the head.
    fn next(&self) -> u64 {
        self.blocks[self.appended - 1].number + 1
    }

    /// Makes the canister answer nothing more, until the second value is dropped. The first value receives each request.
    fn let_fall_silent(&self) -> (Receiver<()>, Sender<()>) {
        let (asks, asked) = channel();
        let (silence, ends) = channel::<()>();
        self.net.gateway.forge(Some(Box::new(move |_| {
            // Neither has a reader any more once the test has ended.
            let _ = asks.send(());
            let _ = ends.recv();
            None
        })));
        (asked, silence)
    }

    fn index(&self, database: &str, args: &[&str]) -> Command {
        let every: &[&str] = if args.contains(&"--no-ack") { &[] } else { &["--ack-every", "5"] };
        self.net.command(&[&["index", "--database", database, "--max-wait-secs", "1"], every, args].concat())
    }

    /// Returns the number below which the indexer has acknowledged all blocks.
    fn bound(&self) -> u64 {
        let reply = self.net.host.query_call(
            self.net.canister,
            self.net.principal,
            "get_export_status",
            candid::encode_args(()).unwrap(),
        );
        candid::decode_one::<ExportStatus>(&reply.unwrap()).unwrap().exporters[0].exported_before_block
    }

    fn wait_until_acknowledged(&self) {
        wait_for("all blocks are acknowledged", || self.bound() == self.next());
    }
}
