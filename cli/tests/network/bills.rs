//! The canister's bill for blocks that come one by one, plain, and for the same blocks as the client sends them: several in a message,
//! compressed. Whole messages over the gateway, so envelopes, ingress, execution and pages of the heap count.

use crate::net::Net;
use bitcoin::consensus::serialize;
use candid::Principal;
use ic_coppice_cli::client::{Client, Wait};
use ic_coppice_cli::network::Network;
use ic_coppice_client::Block;
use ic_coppice_interface::AppendBlock;
use sha2::{Digest, Sha256};

/// A list of blocks with its name in the table of `docs/reference/costs.md`, and the largest part of the bill that may be left.
struct List {
    name: &'static str,
    most: f64,
    blocks: Vec<AppendBlock>,
}

fn hash(number: u64) -> [u8; 32] {
    Sha256::digest(number.to_le_bytes()).into()
}

/// Returns a block without its payload, which has the block before it as its parent.
fn block(number: u64) -> Block {
    Block::new(number, hash(number), hash(number - 1), 1_700_000_000_000 + number)
}

/// Bytes that nothing compresses.
struct Noise(u64);

impl Noise {
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let parts = (0..len.div_ceil(32)).flat_map(|_| {
            self.0 += 1;
            hash(self.0)
        });
        parts.take(len).collect()
    }

    /// Returns one of `of` values of this length, small numbers more often than large ones.
    fn popular(&mut self, of: u64, len: usize) -> Vec<u8> {
        let drawn = self.bytes(2);
        let share = f64::from(drawn[0]) * f64::from(drawn[1]) / 65_025.0;
        Noise((share * of as f64) as u64 * 1_000).bytes(len)
    }
}

/// Encodes a string (`0x80`) or a list (`0xC0`) in RLP.
fn rlp(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let length: Vec<u8> = (bytes.len() as u64).to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
    match bytes {
        [byte] if kind == 0x80 && *byte < 0x80 => vec![*byte],
        _ if bytes.len() < 56 => [&[kind + bytes.len() as u8], bytes].concat(),
        _ => [&[kind + 55 + length.len() as u8], &length[..], bytes].concat(),
    }
}

fn string(bytes: &[u8]) -> Vec<u8> {
    rlp(0x80, bytes)
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    rlp(0xC0, &items.concat())
}

/// Returns an address or a topic as a word of 32 bytes.
fn word(bytes: &[u8]) -> Vec<u8> {
    [vec![0; 32 - bytes.len()], bytes.to_vec()].concat()
}

/// Returns a block like those of Ethereum: 150 transfers of tokens, signed, with receipts that have a bloom filter and one log.
fn ethereum_like(number: u64) -> AppendBlock {
    let mut noise = Noise(number << 32);
    let (mut body, mut receipts) = (Vec::new(), Vec::new());
    for position in 0..150_u64 {
        let [token, from, to] = [(60, 20), (5_000, 20), (5_000, 20)].map(|(of, len)| noise.popular(of, len));
        let amount = noise.bytes(7);
        let input = [b"\xa9\x05\x9c\xbb", &word(&to)[..], &word(&amount)].concat();
        let fees = [vec![0x77, 0x35, 0x94, position as u8], vec![0x0B, 0xEB, 0xC2, 0x00, position as u8]];
        let signature = [noise.bytes(32), noise.bytes(32)];
        let fields = [
            &[vec![1], noise.bytes(2), fees[0].clone(), fees[1].clone(), vec![0xFD, 0xE8], token.clone()][..],
            &[vec![], input, vec![], vec![position as u8 & 1], signature[0].clone(), signature[1].clone()],
        ]
        .concat();
        let transaction = [vec![2], list(&fields.iter().map(|field| string(field)).collect::<Vec<_>>())].concat();
        let transfer = hash(0xDDF2_52AD);
        let mut bloom = vec![0; 256];
        for topic in [&token, &transfer.to_vec(), &from, &to] {
            for pair in Sha256::digest(topic).as_chunks::<2>().0.iter().take(3) {
                let bit = usize::from(u16::from_be_bytes(*pair)) % 2_048;
                bloom[bit / 8] |= 1 << (bit % 8);
            }
        }
        let topics = list(&[string(&transfer), string(&word(&from)), string(&word(&to))]);
        let log = list(&[string(&token), topics, string(&word(&amount))]);
        let gas = ((position + 1) * 51_000).to_be_bytes();
        let receipt = [vec![2], list(&[string(&[1]), string(&gas[5..]), string(&bloom), list(&[log])])].concat();
        receipts.push((Sha256::digest(&transaction).into(), receipt, [[&[1], &token[..]].concat(), transfer.to_vec()]));
        body.push(string(&transaction));
    }
    let block = block(number).body(list(&body));
    let with = |block: Block, (id, receipt, keys): ([u8; 32], Vec<u8>, [Vec<u8>; 2])| {
        block.transaction(id, Some(&receipt), &[&keys[0], &keys[1]])
    };
    receipts.into_iter().fold(block, with).seal().unwrap()
}

/// Returns the start of the mainnet block with the ids of its whole transactions.
fn mainnet(number: u64, bytes: &[u8]) -> AppendBlock {
    const LEN: usize = 177_000;
    let whole: bitcoin::Block = bitcoin::consensus::deserialize(bytes).unwrap();
    let (mut at, mut sealed) = (83, block(number).body(&bytes[..LEN]));
    for transaction in whole.txdata {
        at += serialize(&transaction).len();
        if at <= LEN {
            let id: [u8; 32] = *AsRef::<[u8; 32]>::as_ref(&transaction.compute_txid());
            sealed = sealed.transaction(id, None, &[]);
        }
    }
    sealed.seal().unwrap()
}

/// Returns a block of 1 KB in all segments with three transactions.
fn small(number: u64) -> AppendBlock {
    let mut noise = Noise(number << 40);
    let with = |block: Block, position: u8| {
        let id = hash(number << 8 | u64::from(position));
        block.transaction(id, Some(&[position; 60]), &[&[7; 20]])
    };
    let body = [noise.bytes(300), vec![0; 200]].concat();
    (0..3).fold(block(number).body(body), with).seal().unwrap()
}

/// Returns what a canister pays for blocks that `send` sends, after it has kept a block like them.
fn bill(net: &Net, canister: Principal, first: &AppendBlock, send: impl FnOnce(&Client<Network>)) -> u128 {
    let client = ic_coppice_cli::network::NetworkArgs { canister: Some(canister), ..net.args() }.connect().unwrap();
    client.append_block(first).done().unwrap();
    let before = net.host.cycle_balance(canister);
    send(&client);
    before - net.host.cycle_balance(canister)
}

#[test]
fn whole_bill_of_blocks_that_come_together_and_compressed_is_that_of_the_page() {
    let mut lists = vec![
        List { name: "an Ethereum-like block", most: 0.65, blocks: vec![ethereum_like(1), ethereum_like(2)] },
        List { name: "100 blocks of 1 KB with 3 transactions", most: 0.30, blocks: (1..102).map(small).collect() },
    ];
    match std::env::var_os("COPPICE_BLOCKS") {
        Some(directory) => {
            let file = "mainnet-block-0000000000000000001602407ac49862.raw";
            let bytes = std::fs::read(std::path::Path::new(&directory).join(file)).unwrap();
            let blocks = vec![mainnet(1, &bytes), mainnet(2, &bytes)];
            lists.insert(0, List { name: "177,000 bytes of a mainnet block, with ids", most: 0.86, blocks });
        }
        None => eprintln!("not run: the bill of a mainnet block; COPPICE_BLOCKS names no directory of blocks"),
    }
    let rows = lists.into_iter().map(|List { name, most, blocks }| {
        let net = Net::start();
        let (first, rest) = blocks.split_first().unwrap();
        let one_by_one = bill(&net, net.canister, first, |client| {
            rest.iter().for_each(|block| client.append_block(block).done().unwrap());
        });
        let together = bill(&net, net.install_another(), first, |client| {
            pollster::block_on(client.send_blocks(rest)).unwrap();
        });
        let part = together as f64 / one_by_one as f64;
        let million = |cycles: u128| format!("{:.1} M", cycles as f64 / 1e6);
        let row = format!("| {name} | {} | {} | {part:.2} |", million(one_by_one), million(together));
        assert!(part <= most, "{row}");
        row
    });
    let rows = rows.collect::<Vec<_>>().join("\n");
    let page = include_str!("../../../docs/reference/costs.md");
    assert!(page.contains(&rows), "docs/reference/costs.md should have:\n{rows}");
}
