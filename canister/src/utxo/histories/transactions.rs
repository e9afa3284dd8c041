//! Transactions of a history: few, in chains, and often after the same outputs.

use crate::testing::id;
use crate::utxo::model::source::{given, utxo_hash, varint};
use crate::utxo::model::{Call, Hash};
use coppice_interface::*;
use proptest::prelude::*;
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;

/// How a transaction is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Coinbase,
    Standard,
    Extended,
    Witnesses,
    Partial { coinbase: bool },
    Outside { coinbase: bool },
}

/// A transaction, but for the ids of what it spends.
#[derive(Clone, Debug)]
pub struct Template {
    form: Form,
    /// Which transaction, and which output.
    inputs: Vec<(u8, u8)>,
    /// Which kind of output.
    outputs: Vec<u8>,
}

pub fn template() -> impl Strategy<Value = Template> {
    let form = prop_oneof![
        2 => Just(Form::Coinbase),
        4 => Just(Form::Standard),
        4 => Just(Form::Extended),
        2 => Just(Form::Witnesses),
        2 => prop::bool::weighted(0.3).prop_map(|coinbase| Form::Partial { coinbase }),
        4 => prop::bool::weighted(0.3).prop_map(|coinbase| Form::Outside { coinbase }),
    ];
    let input = (any::<u8>(), prop_oneof![30 => 0u8..4, 1 => Just(11u8)]);
    let count = prop_oneof![4 => Just(1usize), 2 => Just(2), 1 => Just(3)];
    let inputs = count.prop_flat_map(move |count| prop::collection::vec(input.clone(), count));
    let kind = prop_oneof![80 => Just(0u8), 40 => 1u8..7, 1 => Just(7u8)];
    let outputs = prop_oneof![
        1 => Just(Vec::new()),
        30 => prop::collection::vec(kind.clone(), 1..4),
        20 => prop::collection::vec(kind, 4..11),
    ];
    (form, inputs, outputs).prop_map(|(form, inputs, outputs)| Template { form, inputs, outputs })
}

/// A transaction as it is given to the store.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub txid: Hash,
    pub source: TransactionSource,
    pub inputs: Vec<(Hash, u32)>,
    pub outputs: u32,
    spendable: Vec<u32>,
}

/// Satoshis and script of the kinds of outputs; two of them are no UTXOs, and one is long.
fn output(kind: u8) -> (u64, Vec<u8>) {
    match kind {
        0 => (1_000, vec![0x51]),
        1 => (0, vec![0x51, 0x6a]),
        2 => (0, Vec::new()),
        3 => (5, vec![0x6a]),
        4 => (0, vec![0x00]),
        5 => (0, vec![0x6a, 1, 2]),
        6 => (0, vec![0x00, 0x6a, 3]),
        _ => (0, vec![0x52; 70_000]),
    }
}

fn var_bytes(bytes: &[u8]) -> Vec<u8> {
    [&varint(bytes.len() as u64), bytes].concat()
}

fn raw(form: Form, number: u32, inputs: &[(Hash, u32)], outputs: &[u8]) -> Vec<u8> {
    let mut bytes = (number + 1).to_le_bytes().to_vec();
    match form {
        Form::Extended => bytes.extend([0, 0, 0, 0, 0, 0xef]),
        Form::Witnesses => bytes.extend([0, 1]),
        _ => {}
    }
    bytes.extend(varint(inputs.len() as u64));
    for (txid, vout) in inputs {
        bytes.extend(txid);
        bytes.extend(vout.to_le_bytes());
        bytes.extend(var_bytes(&vec![7; number as usize * 3]));
        bytes.extend([0xff; 4]);
        if form == Form::Extended {
            bytes.extend((500 * u64::from(number)).to_le_bytes());
            bytes.extend(var_bytes(if number.is_multiple_of(2) { &[] } else { &[0x51] }));
        }
    }
    bytes.extend(varint(outputs.len() as u64));
    for &kind in outputs {
        let (satoshis, script) = output(kind);
        bytes.extend(satoshis.to_le_bytes());
        bytes.extend(var_bytes(&script));
    }
    if form == Form::Witnesses {
        for vin in 0..inputs.len() {
            bytes.extend(varint(vin as u64));
            (0..vin).for_each(|item| bytes.extend(var_bytes(&vec![9; item * 2])));
        }
    }
    bytes.extend((number * 7).to_le_bytes());
    bytes
}

/// The transactions of templates. Each spends from those before it; one that is kept outside, or known by its outputs only,
/// has an id of its own, and what is kept outside may spend from such a one behind it, too.
pub fn build(templates: &[Template]) -> Vec<Transaction> {
    let mut built: Vec<Transaction> = Vec::new();
    let named = |number: usize| id(0xABC + number as u64);
    let is_named = |number: usize| matches!(templates[number].form, Form::Partial { .. } | Form::Outside { .. });
    for (number, template) in templates.iter().enumerate() {
        let form = if number == 0 && template.form != Form::Extended { Form::Coinbase } else { template.form };
        let outside = matches!(form, Form::Outside { .. });
        let parent = |&(which, vout): &(u8, u8)| match usize::from(which) {
            unknown if number == 0 || unknown % 32 == 31 => (id(vout.into()), vout.into()),
            later if outside && later % 8 == 6 => {
                let later = later / 8 % templates.len();
                if later != number && is_named(later) { (named(later), 0) } else { (built[0].txid, 1) }
            }
            // What another spends already.
            earlier if earlier % 4 == 1 => {
                let one = &built[earlier / 4 % number];
                one.inputs.first().copied().unwrap_or((one.txid, 0))
            }
            earlier => {
                let one = &built[earlier / 4 % number];
                let spendable = &one.spendable;
                let meant = spendable.get(usize::from(vout) % spendable.len().max(1)).copied();
                (one.txid, meant.filter(|_| vout < 10).unwrap_or(vout.into()))
            }
        };
        let mut inputs: Vec<(Hash, u32)> = match form {
            Form::Coinbase | Form::Partial { .. } | Form::Outside { coinbase: true } => Vec::new(),
            _ => template.inputs.iter().map(parent).collect(),
        };
        // Twice the same is not what happens often.
        if template.inputs[0].0 % 16 != 0 {
            let mut seen = BTreeSet::new();
            inputs.retain(|input| seen.insert(*input));
        }
        let outputs = &template.outputs;
        let numbered = || (0..).zip(outputs.iter().copied());
        let source = match form {
            Form::Coinbase => {
                TransactionSource::Raw(ByteBuf::from(raw(form, number as u32, &[([0; 32], u32::MAX)], outputs)))
            }
            Form::Partial { coinbase } => {
                let known = numbered().filter(|&(index, kind)| kind != 4 || index == 0).map(|(index, kind)| {
                    let (satoshis, script) = output(kind);
                    PartialOutput { index, satoshis, script: ByteBuf::from(script) }
                });
                TransactionSource::Outputs(PartialTransaction {
                    txid: named(number).into(),
                    coinbase,
                    total_outputs: outputs.len() as u32,
                    outputs: known.collect(),
                })
            }
            Form::Outside { coinbase } => {
                let hash = |(vout, kind): (u32, u8)| {
                    let (satoshis, script) = output(kind);
                    (!(5..=6).contains(&kind))
                        .then(|| UtxoHash::from(utxo_hash(&named(number), vout, &script, satoshis)))
                };
                let outpoint = |&(txid, vout): &(Hash, u32)| Outpoint { txid: txid.into(), vout };
                let (file_type, store_type) = (FileType::Tx, StoreType::Tx);
                TransactionSource::Outside(OutsideTransaction {
                    txid: named(number).into(),
                    store: ExternalStore { blob_key: ByteBuf::from(vec![7; 1 + number * 25]), file_type, store_type },
                    coinbase,
                    version: number as u32,
                    lock_time: 3,
                    size: 1_000 * number as u64,
                    inputs: inputs.iter().map(outpoint).collect(),
                    utxo_hashes: numbered().map(hash).collect(),
                })
            }
            _ => TransactionSource::Raw(ByteBuf::from(raw(form, number as u32, &inputs, outputs))),
        };
        let call = Call { height: 1, now_ns: 0, settings: UtxoSettings::default(), most: MAX_HEIGHT };
        let given = given(&source, 1, &call, None).ok();
        let txid = given.as_ref().map_or(id(0xBAD + number as u64), |given| given.txid);
        let hashes = given.map_or(Vec::new(), |given| given.outputs);
        let spendable = (0..).zip(hashes).filter_map(|(vout, hash)| hash.map(|_| vout)).collect();
        built.push(Transaction { txid, source, inputs, outputs: outputs.len() as u32, spendable });
    }
    built
}

/// Makes a source wrong.
pub fn spoil(source: &mut TransactionSource, how: u8) {
    match source {
        TransactionSource::Raw(bytes) => match how % 4 {
            0 => *source = TransactionSource::Uploaded([1; 32].into()),
            1 => bytes.push(0),
            2 => drop(bytes.pop()),
            _ => {
                let kept = bytes.len() * how as usize / 256;
                bytes.truncate(kept);
            }
        },
        TransactionSource::Outputs(partial) => match how % 3 {
            0 => drop(partial.txid.pop()),
            1 => partial.total_outputs = partial.outputs.last().map_or(0, |last| last.index),
            _ => partial.outputs.extend(partial.outputs.first().cloned()),
        },
        TransactionSource::Outside(outside) => match how % 5 {
            0 => drop(outside.txid.pop()),
            1 => outside.store.blob_key = ByteBuf::new(),
            2 => outside.store.blob_key = ByteBuf::from([1; 1_025]),
            3 => outside.inputs.push(Outpoint { txid: [1; 31].into(), vout: 0 }),
            _ => outside.utxo_hashes.push(Some(UtxoHash::from(vec![1; 33]))),
        },
        TransactionSource::Uploaded(_) => {}
    }
}
