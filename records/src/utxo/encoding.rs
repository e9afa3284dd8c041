//! Encodings of `utxo-data-model.md`: UTXO hash, TxInpoints (the outputs that a transaction spends), UTXOWrapper (a transaction of which
//! only outputs are known).

use super::record::Hash;
use crate::sha256::{self, Message};
use ic_coppice_interface::PartialOutput;
use sha2::{Digest, Sha256};

/// Bytes of the longest script that is copied to be hashed.
pub const MAX_COPIED: usize = 8 << 10;

/// Appends a VarInt (Bitcoin's CompactSize).
pub fn var_int(out: &mut Vec<u8>, n: u64) {
    match n {
        0..=0xFC => out.push(n as u8),
        // A mark, which is the lowest and so the first byte, and the bytes of the number.
        0xFD..=0xFFFF => out.extend_from_slice(&(n << 8 | 0xFD).to_le_bytes()[..3]),
        0x1_0000..=0xFFFF_FFFF => out.extend_from_slice(&(n << 8 | 0xFE).to_le_bytes()[..5]),
        _ => {
            out.push(0xFF);
            out.extend(n.to_le_bytes());
        }
    }
}

/// Returns the message whose SHA-256 is the UTXO hash of an output, which has satoshis and a locking script: txid ‖ VarInt(vout) ‖ locking
/// script ‖ VarInt(satoshis), appended to the buffer or, if the script is long, hashed.
#[inline(never)]
pub fn message<'a>(buffer: &mut Vec<u8>, txid: &Hash, vout: u32, satoshis: u64, script: &[u8]) -> Message<'a> {
    buffer.reserve(script.len().min(MAX_COPIED) + 50 + sha256::ROOM);
    let start = buffer.len();
    buffer.extend_from_slice(txid);
    var_int(buffer, u64::from(vout));
    if script.len() <= MAX_COPIED {
        buffer.extend_from_slice(script);
        var_int(buffer, satoshis);
        return Message::Written;
    }
    let begun = Sha256::new_with_prefix(&buffer[start..]).chain_update(script);
    let end = buffer.len();
    var_int(buffer, satoshis);
    Message::Known(begun.chain_update(&buffer[end..]).finalize().into())
}

/// Returns whether an output is kept as a UTXO: it has satoshis, or its script does not begin like a script that cannot be spent.
pub fn is_utxo(satoshis: u64, script: &[u8]) -> bool {
    satoshis > 0 || !(script.starts_with(&[0x6A]) || script.starts_with(&[0x00, 0x6A]))
}

/// Returns TxInpoints: u32 LE parents ‖ their ids, by first occurrence ‖ for each, u32 LE count ‖ u32 LE vouts.
pub fn inpoints(inputs: &[(Hash, u32)]) -> Vec<u8> {
    let mut indices = std::collections::BTreeMap::new();
    let mut parents: Vec<(&Hash, Vec<u32>)> = Vec::new();
    for (txid, vout) in inputs {
        let index = *indices.entry(txid).or_insert_with(|| {
            parents.push((txid, Vec::new()));
            parents.len() - 1
        });
        parents[index].1.push(*vout);
    }
    let mut out = (parents.len() as u32).to_le_bytes().to_vec();
    parents.iter().for_each(|(txid, _)| out.extend_from_slice(*txid));
    for (_, vouts) in &parents {
        out.extend((vouts.len() as u32).to_le_bytes());
        vouts.iter().for_each(|vout| out.extend(vout.to_le_bytes()));
    }
    out
}

/// Returns a UTXOWrapper: txid ‖ u32 LE (height·2 + coinbase) ‖ u32 LE n ‖ n × (u32 index, u64 value, u32 script length, script).
pub fn wrapper(txid: &Hash, (height, coinbase): (u32, bool), outputs: &[PartialOutput]) -> Vec<u8> {
    let height_coinbase = height.wrapping_mul(2) | u32::from(coinbase);
    let mut out = [&txid[..], &height_coinbase.to_le_bytes(), &(outputs.len() as u32).to_le_bytes()].concat();
    for PartialOutput { index, satoshis, script } in outputs {
        out.extend(index.to_le_bytes());
        out.extend(satoshis.to_le_bytes());
        out.extend((script.len() as u32).to_le_bytes());
        out.extend_from_slice(script);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_bytes::ByteBuf;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
    }

    fn utxo_hash(txid: &Hash, vout: u32, script: &[u8], satoshis: u64) -> Hash {
        let mut bytes = Vec::new();
        let message = message(&mut bytes, txid, vout, satoshis, script);
        assert!(matches!(message, Message::Written));
        Sha256::digest(&bytes).into()
    }

    #[test]
    fn utxo_hashes_are_those_of_the_reference() {
        let mut txid: Hash =
            hex("2fb09ea4d1d282f55b4f4b5b1eec92fa314e1ba5a5a009e897f63d155b4dba82").try_into().unwrap();
        txid.reverse();
        let script = hex("76a914d687c76d6ee133c9cc42bd96e3947d8a84bdf60288ac");
        let mut hash = utxo_hash(&txid, 0, &script, 1_149_996_160);
        hash.reverse();
        assert_eq!(hash.to_vec(), hex("8ef53bb4c9c4b849c30ec75243bad8a7eafd83f407407a154a6d9ec80d83dd00"));
        for (vout, satoshis, expected) in [
            (0, 0, "4e94fda23f40416c583f3c454f71fec364bf23ce1f38e5ed8e747fb584b8164f"),
            (253, 253, "47e025c5d6ce7f2d47343c98a22b94163b8b5d8531e703ed6cdfc898b560de13"),
            (65_536, 1 << 32, "bf258a2b3b6ab9e2cea809adfb74d1e45125eaa4504fb9b3ff19d84ae3b97349"),
        ] {
            assert_eq!(utxo_hash(&[0; 32], vout, &[0x51], satoshis).to_vec(), hex(expected));
        }
    }

    #[test]
    fn var_ints_at_their_boundaries() {
        for (n, expected) in [
            (0, "00"),
            (252, "fc"),
            (253, "fdfd00"),
            (65_535, "fdffff"),
            (65_536, "fe00000100"),
            ((1 << 32) - 1, "feffffffff"),
            (1 << 32, "ff0000000001000000"),
            (u64::MAX, "ffffffffffffffffff"),
        ] {
            let mut out = Vec::new();
            var_int(&mut out, n);
            assert_eq!(out, hex(expected), "{n}");
        }
    }

    #[test]
    fn inpoints_are_grouped_by_parent() {
        let (a, b) = ([0xA; 32], [0xB; 32]);
        let encoded = inpoints(&[(a, 0), (b, 1), (a, 2)]);
        let mut expected = hex("02000000");
        expected.extend([a, b].concat());
        expected.extend(hex("02000000000000000200000001000000"));
        expected.extend(hex("01000000"));
        assert_eq!(encoded, expected);
        assert_eq!(inpoints(&[]), [0; 4]);
    }

    #[test]
    fn a_wrapper_is_that_of_the_reference_byte_for_byte() {
        let output = |index, satoshis, script: &[u8]| PartialOutput { index, satoshis, script: ByteBuf::from(script) };
        let outputs = [output(1, 5_000_000_000, &[0x51]), output(3, 0, &[])];
        let mut expected = [7; 32].to_vec();
        expected.extend(hex("d1070000"));
        expected.extend(hex("02000000"));
        expected.extend(hex("0100000000f2052a010000000100000051"));
        expected.extend(hex("03000000000000000000000000000000"));
        assert_eq!(wrapper(&[7; 32], (1_000, true), &outputs), expected);
    }

    #[test]
    fn unspendable_outputs_are_no_utxos() {
        assert!(!is_utxo(0, &[0x6A, 1]) && !is_utxo(0, &[0, 0x6A]));
        assert!(is_utxo(1, &[0x6A]) && is_utxo(0, &[]) && is_utxo(0, &[0]) && is_utxo(0, &[0, 0x6B]));
    }
}
