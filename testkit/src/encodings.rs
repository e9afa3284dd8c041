//! Serialised forms of a transaction for the canister.
//!
//! ```text
//! extended: version ‖ 00 00 00 00 00 ef ‖ VarInt n ‖ n × (input ‖ the output that it spends) ‖ outputs ‖ lock time
//! ```
//! The extended form implies the fee, but cannot hold witnesses. A transaction with witnesses is sent unchanged, with its fee as an extra
//! field, so that the stored bytes always contain the original transaction.

use bitcoin::consensus::encode::{Encodable, VarInt, serialize};
use bitcoin::io::Write;
use bitcoin::{Transaction, TxOut};

const MARK: [u8; 6] = [0, 0, 0, 0, 0, 0xEF];

/// Returns the bytes to send for a transaction, and the fee to send with them. `spent` lists the outputs that the inputs spend, if all are
/// known.
pub fn of(transaction: &Transaction, spent: Option<&[&TxOut]>) -> (Vec<u8>, Option<u64>) {
    let Some(spent) = spent else { return (serialize(transaction), None) };
    let has_witness = transaction.input.iter().any(|input| !input.witness.is_empty());
    if !has_witness {
        return (extended(transaction, spent), None);
    }
    let sum = |outputs: &mut dyn Iterator<Item = &TxOut>| {
        outputs.fold(0u64, |sum, output| sum.saturating_add(output.value.to_sat()))
    };
    let (taken, paid) = (sum(&mut spent.iter().copied()), sum(&mut transaction.output.iter()));
    (serialize(transaction), Some(taken.saturating_sub(paid)))
}

fn extended(transaction: &Transaction, spent: &[&TxOut]) -> Vec<u8> {
    let mut out = Vec::new();
    let write = |out: &mut Vec<u8>| -> Result<(), bitcoin::io::Error> {
        transaction.version.consensus_encode(out)?;
        out.write_all(&MARK)?;
        VarInt::from(transaction.input.len()).consensus_encode(out)?;
        for (input, output) in transaction.input.iter().zip(spent) {
            input.consensus_encode(out)?;
            output.consensus_encode(out)?;
        }
        transaction.output.consensus_encode(out)?;
        transaction.lock_time.consensus_encode(out)?;
        Ok(())
    };
    write(&mut out).expect("writing to a vector cannot fail");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use bitcoin::consensus::encode::deserialize;
    use bitcoin::{Amount, Block, ScriptBuf};

    #[test]
    fn transaction_without_witness_is_extended_and_one_with_witness_has_a_fee() {
        let block: Block = deserialize(bitcoin_test_data::blocks::mainnet_702861()).unwrap();
        let spent =
            TxOut { value: Amount::from_sat(u64::from(u32::MAX) << 10), script_pubkey: ScriptBuf::from(vec![7; 300]) };
        let (mut extended, mut with_witness) = (0, 0);
        for transaction in &block.txdata[1..] {
            let standard = serialize(transaction);
            assert_eq!(of(transaction, None), (standard.clone(), None));
            let inputs = transaction.input.len();
            let spent = vec![&spent; inputs];
            let paid: u64 = transaction.output.iter().map(|output| output.value.to_sat()).sum();
            let due = spent.iter().map(|spent| spent.value.to_sat()).sum::<u64>() - paid;
            let (bytes, fee) = of(transaction, Some(&spent));
            if bytes[4..].starts_with(&MARK) {
                // Each input is followed by a value, a length in three bytes, and a script.
                assert_eq!((bytes.len(), fee), (standard.len() + MARK.len() + inputs * (8 + 3 + 300), None));
                extended += 1;
            } else {
                assert_eq!((fee, bytes), (Some(due), standard));
                with_witness += 1;
            }
        }
        assert!(extended > 0 && with_witness > 0);
    }
}
