//! Rules that a Bitcoin block must pass before it is appended: work, body and witnesses.
//!
//! **Constraint.** A header proves neither its body nor its chain: a mutated block has the same hash (CVE-2012-2459), a stripped block the
//! same Merkle root, and a header of least work costs nothing.
//!
//! | check | refuses |
//! |---|---|
//! | the hash against the header's own target, the target against the network's limit | headers without work |
//! | no transaction twice, the Merkle root | mutated and damaged bodies |
//! | the witness commitment, after segwit's activation | stripped and damaged witnesses |
//!
//! Difficulty adjustments are not checked, because they need headers that the files may lack: an attacker who mines blocks of the
//! network's least difficulty passes. Scripts and signatures are not checked either.

use bitcoin::block::{Block, Header};
use bitcoin::consensus::Decodable;
use bitcoin::constants::genesis_block;
use bitcoin::{BlockHash, Network, Transaction, Txid, merkle_tree};
use std::collections::HashSet;
use std::fmt;

/// The network whose rules the blocks must pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum NetworkRules {
    /// Bitcoin's mainnet
    Mainnet,
    /// The third test network
    Testnet3,
    /// The fourth test network
    Testnet4,
    /// The signed test network
    Signet,
    /// Private test networks
    Regtest,
}

impl NetworkRules {
    pub const ALL: [Self; 5] = [Self::Mainnet, Self::Testnet3, Self::Testnet4, Self::Signet, Self::Regtest];

    fn network(self) -> Network {
        match self {
            Self::Mainnet => Network::Bitcoin,
            Self::Testnet3 => Network::Testnet,
            Self::Testnet4 => Network::Testnet4,
            Self::Signet => Network::Signet,
            Self::Regtest => Network::Regtest,
        }
    }

    /// Returns the magic before each block in a file.
    pub fn magic(self) -> [u8; 4] {
        self.network().magic().to_bytes()
    }

    /// Returns the network whose magic these bytes begin with.
    pub fn of_magic(bytes: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|rules| bytes.starts_with(&rules.magic()))
    }

    /// Returns the hash of the first block.
    pub fn genesis(self) -> BlockHash {
        genesis_block(self.network()).block_hash()
    }

    /// Returns the height from which a commitment demands its witness.
    fn segwit_height(self) -> u64 {
        match self {
            Self::Mainnet => 481_824,
            Self::Testnet3 => 834_624,
            Self::Testnet4 | Self::Signet | Self::Regtest => 0,
        }
    }

    /// Returns whether a header's target is at most the network's limit.
    pub fn allows(self, header: &Header) -> bool {
        header.target() <= self.network().params().max_attainable_target
    }

    /// Checks a block's body against its header.
    ///
    /// # Errors
    /// When the body is not the one that the header proves.
    pub fn check(self, block: &Block) -> Result<(), Fault> {
        if !block.coinbase().is_some_and(Transaction::is_coinbase) {
            return Err(Fault::NoCoinbase);
        }
        let ids: Vec<Txid> = block.txdata.iter().map(|transaction| transaction.compute_txid()).collect();
        let mut seen = HashSet::with_capacity(ids.len());
        if let Some(&twice) = ids.iter().find(|id| !seen.insert(**id)) {
            return Err(Fault::Mutated(twice));
        }
        let root = merkle_tree::calculate_root(ids.into_iter().map(Txid::to_raw_hash));
        if root != Some(block.header.merkle_root.to_raw_hash()) {
            return Err(Fault::Damaged);
        }
        self.check_witnesses(block)
    }

    fn check_witnesses(self, block: &Block) -> Result<(), Fault> {
        let from = self.segwit_height();
        let is_active = from == 0 || block.bip34_block_height().is_ok_and(|height| height >= from);
        let has_witness =
            block.txdata.iter().any(|transaction| transaction.input.iter().any(|input| !input.witness.is_empty()));
        match (is_active && commits(block), has_witness) {
            (true, false) => Err(Fault::Stripped),
            // The library passes a block without witnesses, which was refused above.
            (true, true) if !block.check_witness_commitment() => Err(Fault::Witnesses),
            (false, true) => Err(Fault::Uncommitted),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for NetworkRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mainnet => "mainnet",
            Self::Testnet3 => "testnet3",
            Self::Testnet4 => "testnet4",
            Self::Signet => "signet",
            Self::Regtest => "regtest",
        })
    }
}

/// Returns whether the coinbase has an output that commits to the block's witnesses (BIP 141).
fn commits(block: &Block) -> bool {
    const MARK: [u8; 6] = [0x6A, 0x24, 0xAA, 0x21, 0xA9, 0xED];
    let is_commitment = |script: &[u8]| script.len() >= 38 && script.starts_with(&MARK);
    let outputs = block.txdata.first().map(|coinbase| &coinbase.output[..]).unwrap_or_default();
    outputs.iter().any(|output| is_commitment(output.script_pubkey.as_bytes()))
}

/// The reason why a body is not the one that its header proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The bytes are not a block.
    #[error("the block cannot be decoded: its bytes are cut off or overwritten")]
    Undecodable,
    /// The first transaction is not a coinbase.
    #[error("the block is damaged: its first transaction is not a coinbase")]
    NoCoinbase,
    /// A transaction occurs twice.
    #[error("the block is a mutation of the right one: transaction {0} is in it twice (CVE-2012-2459)")]
    Mutated(Txid),
    /// The transactions are others.
    #[error("the block is damaged: its transactions do not match the Merkle root in its header")]
    Damaged,
    /// The witnesses were removed.
    #[error("the block is stripped: its coinbase commits to witnesses, but it has none")]
    Stripped,
    /// The witnesses are others.
    #[error("the block is damaged: its witnesses do not match the commitment in its coinbase")]
    Witnesses,
    /// There are witnesses without a commitment, or before segwit's activation.
    #[error("the block is damaged: it has witnesses, but no commitment to them that counts")]
    Uncommitted,
}

/// Returns the header at the beginning of some bytes, if its hash meets its own target. Random bytes practically never do.
pub fn header_of(bytes: &[u8]) -> Option<Header> {
    let header = Header::consensus_decode(&mut bytes.get(..80)?).ok()?;
    let target = header.target();
    // Nodes refuse bits that overflow, which the library cuts off.
    let is_exact = target.to_compact_lossy() == header.bits;
    (is_exact && header.validate_pow(target).is_ok()).then_some(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bitcoin::hashes::Hash;
    use bitcoin::{CompactTarget, Witness};

    fn mainnet_702861() -> Block {
        bitcoin::consensus::deserialize(bitcoin_test_data::blocks::mainnet_702861()).unwrap()
    }

    #[test]
    fn real_block_passes_and_its_mutations_are_refused() {
        let (block, rules) = (mainnet_702861(), NetworkRules::Mainnet);
        assert_eq!(rules.check(&block), Ok(()));
        let altered = |alter: fn(&mut Block)| {
            let mut block = mainnet_702861();
            alter(&mut block);
            rules.check(&block)
        };
        let last = block.txdata.last().unwrap().compute_txid();
        assert_eq!(altered(|block| block.txdata.extend(block.txdata.last().cloned())), Err(Fault::Mutated(last)));
        assert_eq!(altered(|block| block.txdata.truncate(1)), Err(Fault::Damaged));
        assert_eq!(altered(|block| drop(block.txdata.remove(0))), Err(Fault::NoCoinbase));
        assert_eq!(altered(|block| block.txdata.clear()), Err(Fault::NoCoinbase));
        let strip = |block: &mut Block| {
            let inputs = block.txdata.iter_mut().flat_map(|transaction| &mut transaction.input);
            inputs.for_each(|input| input.witness = Witness::new());
        };
        assert_eq!(altered(strip), Err(Fault::Stripped));
        // The library alone passes it.
        let mut stripped = mainnet_702861();
        strip(&mut stripped);
        assert!(stripped.check_merkle_root() && stripped.check_witness_commitment());
        assert_eq!(altered(|block| block.txdata[0].input[0].witness = Witness::new()), Err(Fault::Witnesses));
        let flip = |block: &mut Block| {
            let mut inputs = block.txdata[1..].iter_mut().flat_map(|transaction| &mut transaction.input);
            let input = inputs.find(|input| !input.witness.is_empty()).unwrap();
            let mut items = input.witness.to_vec();
            items[0][7] ^= 1;
            input.witness = Witness::from_slice(&items);
        };
        assert_eq!(altered(flip), Err(Fault::Witnesses));
    }

    #[test]
    fn commitment_demands_its_witness_from_the_activation_on() {
        let mut block = mainnet_702861();
        let height = |block: &mut Block, height: i64| {
            let coinbase = &mut block.txdata[0];
            coinbase.input[0].script_sig = bitcoin::script::Builder::new().push_int(height).into_script();
            block.header.merkle_root = block.compute_merkle_root().unwrap();
        };
        for transaction in &mut block.txdata {
            transaction.input.iter_mut().for_each(|input| input.witness = Witness::new());
        }
        for (rules, at, refused) in [
            (NetworkRules::Mainnet, 481_823, false),
            (NetworkRules::Mainnet, 481_824, true),
            (NetworkRules::Testnet3, 834_623, false),
            (NetworkRules::Testnet3, 834_624, true),
            (NetworkRules::Testnet4, 1, true),
            (NetworkRules::Signet, 1, true),
            (NetworkRules::Regtest, 1, true),
        ] {
            height(&mut block, at);
            let expected = if refused { Err(Fault::Stripped) } else { Ok(()) };
            assert_eq!(rules.check(&block), expected, "{rules} {at}");
        }
        // Before the activation a witness has no commitment that counts.
        let mut block = mainnet_702861();
        height(&mut block, 481_823);
        assert_eq!(NetworkRules::Mainnet.check(&block), Err(Fault::Uncommitted));
    }

    #[test]
    fn header_without_its_work_or_above_the_limit_is_refused() {
        let real = mainnet_702861().header;
        let bytes = bitcoin::consensus::serialize(&real);
        assert_eq!(header_of(&bytes), Some(real));
        assert_eq!(header_of(&bytes[..79]), None);
        let other = Header { nonce: real.nonce ^ 1, ..real };
        assert_eq!(header_of(&bitcoin::consensus::serialize(&other)), None);
        assert!(NetworkRules::ALL.iter().all(|rules| rules.allows(&real)));
        let mined = |bits| {
            let bits = CompactTarget::from_consensus(bits);
            let mut header = Header { bits, prev_blockhash: BlockHash::all_zeros(), ..real };
            while header.validate_pow(header.target()).is_err() {
                header.nonce = header.nonce.wrapping_add(1);
            }
            header
        };
        let easy = mined(0x207F_FFFF);
        assert_eq!(header_of(&bitcoin::consensus::serialize(&easy)), Some(easy));
        for rules in NetworkRules::ALL {
            assert_eq!(rules.allows(&easy), rules == NetworkRules::Regtest, "{rules}");
        }
        // Bits whose target overflows.
        let overflown = mined(0x217F_7FFF);
        assert_eq!(header_of(&bitcoin::consensus::serialize(&overflown)), None);
    }

    #[test]
    fn magic_names_its_network() {
        for rules in NetworkRules::ALL {
            assert_eq!(NetworkRules::of_magic(&[&rules.magic()[..], &[7]].concat()), Some(rules));
            assert_eq!(<NetworkRules as clap::ValueEnum>::from_str(&rules.to_string(), false), Ok(rules));
        }
        assert_eq!((NetworkRules::of_magic(&[0xF9, 0xBE, 0xB4]), NetworkRules::of_magic(b"none")), (None, None));
    }
}
