//! Forms of a transaction that a record may have: standard, with witnesses, or extended.
//!
//! ```text
//! extended: version ‖ 00 00 00 00 00 ef ‖ VarInt n ‖ n × (input ‖ the output that it spends) ‖ outputs ‖ lock time
//! ```

use bitcoin::consensus::encode::{Decodable, Error, VarInt, deserialize};
use bitcoin::{Transaction, TxIn, TxOut, Txid};

const MARK: [u8; 6] = [0, 0, 0, 0, 0, 0xEF];

/// Returns the id of a transaction in any form, or `None` if the bytes are not a transaction.
pub fn txid(bytes: &[u8]) -> Option<Txid> {
    if bytes.get(4..)?.starts_with(&MARK) {
        return without_extension(bytes).ok().map(|transaction| transaction.compute_txid());
    }
    deserialize::<Transaction>(bytes).ok().map(|transaction| transaction.compute_txid())
}

fn without_extension(mut bytes: &[u8]) -> Result<Transaction, Error> {
    let reader = &mut bytes;
    let version = Decodable::consensus_decode(reader)?;
    let _: [u8; 6] = Decodable::consensus_decode(reader)?;
    let mut input = Vec::new();
    for _ in 0..VarInt::consensus_decode(reader)?.0 {
        input.push(TxIn::consensus_decode(reader)?);
        TxOut::consensus_decode(reader)?;
    }
    let output = Decodable::consensus_decode(reader)?;
    let lock_time = Decodable::consensus_decode(reader)?;
    if !reader.is_empty() {
        return Err(Error::ParseFailed("bytes after the lock time"));
    }
    Ok(Transaction { version, lock_time, input, output })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bitcoin::consensus::encode::serialize;
    use bitcoin::{Amount, Block, ScriptBuf};

    #[test]
    fn all_forms_have_the_same_id() {
        let block: Block = deserialize(bitcoin_test_data::blocks::mainnet_702861()).unwrap();
        let spent = TxOut { value: Amount::from_sat(1 << 42), script_pubkey: ScriptBuf::from(vec![7; 300]) };
        let mut extended = 0;
        for transaction in &block.txdata[1..] {
            let id = transaction.compute_txid();
            assert_eq!(txid(&serialize(transaction)), Some(id));
            if transaction.input.iter().any(|input| !input.witness.is_empty()) {
                continue;
            }
            let inputs = transaction.input.iter().flat_map(|input| [serialize(input), serialize(&spent)]);
            let bytes = [
                serialize(&transaction.version),
                MARK.to_vec(),
                serialize(&VarInt::from(transaction.input.len())),
                inputs.collect::<Vec<_>>().concat(),
                serialize(&transaction.output),
                serialize(&transaction.lock_time),
            ]
            .concat();
            assert_eq!(txid(&bytes), Some(id));
            assert_eq!((txid(&bytes[..bytes.len() - 1]), txid(&[&bytes[..], &[0]].concat())), (None, None));
            extended += 1;
        }
        assert!(extended > 0);
        assert_eq!((txid(&[]), txid(&[1; 20])), (None, None));
    }
}
