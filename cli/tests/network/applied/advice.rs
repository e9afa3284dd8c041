//! Each advice of `ingest --utxo` about a block that the canister does not apply, played to its end: the calls that the error shows, or
//! `--leave-out`, until the command ends well.

use super::{framed, net};
use crate::net::Net;
use bitcoin::absolute::LockTime;
use bitcoin::consensus::serialize;
use bitcoin::hashes::Hash;
use bitcoin::transaction::Version;
use bitcoin::{Amount, Block, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut, Txid, Witness};
use candid::{IDLArgs, Principal};
use candid_parser::utils::CandidSource;
use coppice_testkit::spend_chain::{self, FIRST, MATURITY, Shape};
use ic_coppice_cli::client::{Client, Wait};
use ic_coppice_cli::feed::{bitcoin_block, sha256};
use ic_coppice_cli::ingest::{Plan, feed_to, read};
use ic_coppice_cli::utxo::set::utxo_hash;
use ic_coppice_client::Embedded;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::path::Path;

const SHAPE: Shape = Shape { seed: 5, blocks: 4, per_block: 6, pool: 12, wide: 0 };
/// Blocks that are applied before something goes wrong.
const APPLIED: usize = 4;
/// Begins the advice for an output whose spender has no record.
const WITHOUT_RECORD: &str = "If it has none";
/// The hash of an output's new owner.
const NEW_HASH: [u8; 32] = [7; 32];

/// A canister, blocks of which the first are applied, and the input of the next block that cannot spend its output any more.
struct World {
    net: Net,
    client: Client<Embedded>,
    blocks: Vec<Block>,
    target: Transaction,
    input: OutPoint,
    /// The output that the input spends.
    output: TxOut,
}

fn id(txid: Txid) -> ic_coppice_interface::Txid {
    txid.to_byte_array().into()
}

fn plan(leave_out: Vec<Txid>) -> Plan {
    Plan { utxo: true, leave_out, ..Plan::default() }
}

impl World {
    fn new(maturity: u32) -> Self {
        let (net, blocks) = (net(maturity), spend_chain::blocks(SHAPE));
        let client = Client::new(Embedded::new(net.host.clone(), net.canister, net.principal));
        net.client().grant_role(&Grant { principal: net.principal, role: Role::Alert }).done().unwrap();
        // A parent from which nothing else spends yet.
        let spends = |of: &[Block], parent: Txid| {
            let inputs = of.iter().flat_map(|block| &block.txdata).flat_map(|transaction| &transaction.input);
            inputs.filter(|input| input.previous_output.txid == parent).count()
        };
        let (before, next) = (&blocks[..APPLIED], &blocks[APPLIED]);
        let parents = || before[1..].iter().flat_map(|block| &block.txdata[1..]);
        let found = next.txdata.iter().skip(1).find_map(|target| {
            let input = target.input[0].previous_output;
            let parent = parents().find(|parent| parent.compute_txid() == input.txid)?;
            let output = parent.output[input.vout as usize].clone();
            (spends(before, input.txid) == 0).then(|| (target.clone(), input, output))
        });
        let (target, input, output) = found.expect("the chain has such an input");
        Self { net, client, blocks, target, input, output }
    }

    /// Runs the command over the first blocks.
    fn ingest(&self, blocks: usize, plan: Plan) -> Result<(), String> {
        let file = self.net.path("part.dat");
        std::fs::write(&file, framed(&self.blocks[..blocks])).unwrap();
        let ordered = read(&[file.into()], None).unwrap();
        feed_to(&self.net.client(), &ordered, &plan).map(drop).map_err(|error| format!("{error:#}"))
    }

    fn height(&self) -> u32 {
        FIRST + APPLIED as u32
    }

    fn freeze(&self) {
        let target = FreezeTarget { txid: id(self.input.txid), vout: Some(self.input.vout), utxo_hash: None };
        let batch = UtxoFreezeBatch { height: self.height(), items: vec![target] };
        assert_eq!(self.client.utxo_freeze(&batch).wait().unwrap().results, [Ok(1)]);
    }

    fn create(&self, transaction: &Transaction, conflicting: bool) {
        let source = TransactionSource::Raw(ByteBuf::from(serialize(transaction)));
        let item = UtxoCreate { source, mined: None, locked: Some(false), conflicting, fee: None, is_new: false };
        let batch = UtxoCreateBatch { height: self.height(), items: vec![item] };
        assert!(self.client.utxo_create(&batch).wait().unwrap().results[0].is_ok());
    }

    /// Lets another transaction spend the output. Returns that transaction.
    fn spend(&self) -> Transaction {
        let input = TxIn {
            previous_output: self.input,
            script_sig: ScriptBuf::new(),
            sequence: Sequence::MAX,
            witness: Witness::new(),
        };
        let output = TxOut { value: Amount::from_sat(1), script_pubkey: self.output.script_pubkey.clone() };
        let rival =
            Transaction { version: Version::ONE, lock_time: LockTime::ZERO, input: vec![input], output: vec![output] };
        let utxo_hash = utxo_hash(self.input, &self.output).into();
        let spend = Spend { txid: id(self.input.txid), vout: self.input.vout, utxo_hash, vin: 0 };
        let spends = TransactionSpends { spender: id(rival.compute_txid()), spends: vec![spend] };
        let batch = UtxoSpendBatch { height: self.height(), items: vec![spends] };
        assert_eq!(self.client.utxo_spend(&batch).wait().unwrap().results, [Ok(1)]);
        rival
    }

    /// Lets another transaction, which has a record, spend the output.
    fn spend_with_record(&self) {
        let rival = self.spend();
        self.create(&rival, false);
    }

    fn reassign(&self) {
        let utxo = UtxoSettingsChange { reassign_spendable_after: Some(0), ..UtxoSettingsChange::default() };
        self.client.set_config(&ConfigChange { utxo: Some(utxo), ..ConfigChange::default() }).done().unwrap();
        self.freeze();
        let outpoint = Outpoint { txid: id(self.input.txid), vout: self.input.vout };
        let utxo_hash = utxo_hash(self.input, &self.output).into();
        let item = Reassign { outpoint, utxo_hash, new_utxo_hash: NEW_HASH.into() };
        let batch = UtxoReassignBatch { height: self.height(), items: vec![item] };
        assert!(self.client.utxo_reassign(&batch).wait().unwrap().results[0].is_ok());
    }
}

/// Calls, in order, each method that a text shows with an argument, as one caller, and repeats a call while it has more. Returns the
/// methods.
fn play(net: &Net, caller: Principal, text: &str) -> Vec<String> {
    play_with(net, caller, text, NEW_HASH)
}

/// Like `play`, with the hash that stands for HASH.
fn play_with(net: &Net, caller: Principal, text: &str, hash: [u8; 32]) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../candid/coppice.did");
    let (env, actor) = CandidSource::File(&path).load().unwrap();
    let actor = actor.unwrap();
    let text = text.replace("HASH", &hash.map(|byte| format!("\\{byte:02x}")).concat());
    let parts: Vec<&str> = text.split('\'').collect();
    let calls = parts.windows(2).filter(|pair| pair[1].starts_with('('));
    let calls = calls.filter_map(|pair| Some((pair[0].split_whitespace().last()?, pair[1])));
    calls
        .map(|(method, argument)| {
            let function = env.get_method(&actor, method).unwrap_or_else(|error| panic!("{method}: {error}"));
            let argument: IDLArgs =
                candid_parser::parse_idl_args(argument).unwrap_or_else(|error| panic!("{argument}: {error}"));
            let bytes = argument.to_bytes_with_types(&env, &function.args).unwrap();
            loop {
                let reply = net.host.update_call(net.canister, caller, method, bytes.clone()).unwrap();
                let reply = IDLArgs::from_bytes_with_types(&reply, &env, &function.rets).unwrap().to_string();
                let is_done = reply.contains("Ok") || reply.contains("TxExists");
                assert!(is_done && (!reply.contains("Err") || reply.contains("TxExists")), "{method}: {reply}");
                if !reply.contains("has_more = true") {
                    return method.to_string();
                }
            }
        })
        .collect()
}

/// Returns the transaction that an error advises to leave out.
fn left_out(error: &str) -> Option<Txid> {
    error.split_once("--leave-out ")?.1.split_whitespace().next()?.parse().ok()
}

/// A way in which a block cannot be applied.
struct Case {
    reason: &'static str,
    breaks: fn(&World),
    /// The methods of the advice.
    methods: &'static [&'static str],
}

const CASES: [Case; 8] = [
    Case { reason: "the output is frozen", breaks: World::freeze, methods: &["utxo_unfreeze"] },
    Case {
        reason: "the transaction is locked",
        breaks: |world| {
            let batch = UtxoSetLockedBatch { height: world.height(), locked: true, txids: vec![id(world.input.txid)] };
            assert_eq!(world.client.utxo_set_locked(&batch).wait().unwrap().results, [Ok(())]);
        },
        methods: &["utxo_set_locked"],
    },
    Case {
        reason: "the transaction is a double spend",
        breaks: |world| {
            let batch = UtxoSetConflictingBatch { height: world.height(), txids: vec![id(world.input.txid)] };
            assert!(world.client.utxo_set_conflicting(&batch).wait().unwrap().results[0].is_ok());
        },
        methods: &["utxo_process_conflicting"],
    },
    Case {
        reason: "the output is spent by another input",
        breaks: World::spend_with_record,
        methods: &["utxo_create", "utxo_set_conflicting", "utxo_process_conflicting"],
    },
    Case {
        reason: "the output is spent by another input",
        breaks: |world| {
            world.spend_with_record();
            world.create(&world.target, false);
        },
        methods: &["utxo_create", "utxo_set_conflicting", "utxo_process_conflicting"],
    },
    Case {
        reason: "the record is a double spend",
        breaks: |world| world.create(&world.target, true),
        methods: &["utxo_process_conflicting"],
    },
    Case { reason: "the output was reassigned", breaks: World::reassign, methods: &["utxo_spend"] },
    Case {
        reason: "require_extended is set",
        breaks: |world| {
            let utxo = UtxoSettingsChange { require_extended: Some(true), ..UtxoSettingsChange::default() };
            world.client.set_config(&ConfigChange { utxo: Some(utxo), ..ConfigChange::default() }).done().unwrap();
        },
        methods: &["set_config"],
    },
];

#[test]
fn calls_of_each_advice_resolve_what_stops_a_block() {
    for Case { reason, breaks, methods } in CASES {
        let world = World::new(MATURITY);
        world.ingest(APPLIED, plan(vec![])).unwrap();
        breaks(&world);
        let error = world.ingest(APPLIED + 1, plan(vec![])).expect_err(reason);
        assert!(error.contains(reason), "{reason}: {error}");
        let of_holder_with_record = error.split(WITHOUT_RECORD).next().unwrap();
        assert_eq!(play(&world.net, world.net.principal, of_holder_with_record), methods, "{error}");
        assert_eq!(world.ingest(APPLIED + 1, plan(vec![])), Ok(()), "{reason}");
    }
}

#[test]
fn output_that_a_transaction_without_a_record_holds_is_freed_by_the_advised_call() {
    let world = World::new(MATURITY);
    world.ingest(APPLIED, plan(vec![])).unwrap();
    world.spend();
    let error = world.ingest(APPLIED + 1, plan(vec![])).unwrap_err();
    let (_, advice) = error.split_once(WITHOUT_RECORD).expect("there is an advice for it");
    let hash = utxo_hash(world.input, &world.output);
    assert_eq!(play_with(&world.net, world.net.principal, advice, hash), ["utxo_unspend"], "{error}");
    assert_eq!(world.ingest(APPLIED + 1, plan(vec![])), Ok(()));
}

#[test]
fn transaction_that_stops_a_block_can_be_left_out() {
    for Case { reason, breaks, .. } in CASES {
        let world = World::new(MATURITY);
        world.ingest(APPLIED, plan(vec![])).unwrap();
        breaks(&world);
        let mut leave_out = Vec::new();
        while let Err(error) = world.ingest(APPLIED + 1, plan(leave_out.clone())) {
            let Some(txid) = left_out(&error) else {
                assert!(reason.starts_with("require_extended"), "{reason}: {error}");
                break;
            };
            assert!(!leave_out.contains(&txid), "{reason}: {error}");
            leave_out.push(txid);
        }
        assert!(leave_out.is_empty() || leave_out[0] == world.target.compute_txid(), "{reason}: {leave_out:?}");
        // The run is repeated as a whole.
        assert_eq!(world.ingest(APPLIED + 1, plan(leave_out.clone())).is_ok(), !leave_out.is_empty(), "{reason}");
    }
}

#[test]
fn store_that_refuses_missing_parents_skips_them_after_the_advised_call() {
    let world = World::new(MATURITY);
    world.ingest(APPLIED, Plan::default()).unwrap();
    // The records begin with a later block.
    let first = &world.blocks[APPLIED - 1];
    let height = world.height() - 1;
    let (number, hash) = (u64::from(height), first.block_hash().to_byte_array().into());
    let arg =
        UtxoApplyBlock { number, hash, height, block_id: height, missing_parents: None, skip: None, skip_rest: false };
    assert!(world.client.utxo_apply_block(&arg).done().unwrap().has_more);
    let error = world.ingest(APPLIED + 1, plan(vec![])).unwrap_err();
    assert!(error.contains("the parent has no record"), "{error}");
    assert_eq!(play(&world.net, world.net.principal, &error), ["utxo_apply_block"]);
    assert_eq!(world.ingest(APPLIED + 1, plan(vec![])), Ok(()));
}

#[test]
fn rest_of_a_body_that_breaks_off_is_skipped_by_the_advised_call() {
    let world = World::new(MATURITY);
    world.ingest(APPLIED, plan(vec![])).unwrap();
    // Another program has appended the next block, and cut its last transaction.
    let next = &world.blocks[APPLIED];
    let raw = serialize(next);
    let number = u64::from(world.height());
    let whole = bitcoin_block(number, raw.clone(), next).unwrap();
    let body = raw[..raw.len() - 5].to_vec();
    let digest = sha256(&body).to_vec().into();
    let cut = AppendBlock { body: body.into(), sha256: BySegment { body: digest, ..whole.sha256 }, ..whole };
    world.client.append_block(&cut).done().unwrap();
    let error = world.ingest(APPLIED + 1, plan(vec![])).unwrap_err();
    assert!(error.contains("block body, transaction") && error.contains("skips the rest"), "{error}");
    assert_eq!(play(&world.net, world.net.principal, &error), ["utxo_apply_block"], "{error}");
    let last = next.txdata.last().unwrap().compute_txid();
    // The block is applied; that it is not the file's block stays an error.
    let error = world.ingest(APPLIED + 1, plan(vec![last])).unwrap_err();
    assert!(error.contains("the head is not the last appended block"), "{error}");
    assert_eq!(world.client.get_storage_status(None).wait().unwrap().utxo.unwrap().applying.unwrap().next, number + 1);
}

#[test]
fn first_block_of_a_caller_who_is_no_operator_is_applied_after_the_advised_grant() {
    let world = World::new(MATURITY);
    let operator = Principal::self_authenticating(b"another operator");
    let (net, client) = (&world.net, &world.client);
    for role in [Role::Operator, Role::Admin] {
        client.grant_role(&Grant { principal: operator, role }).done().unwrap();
    }
    let other = Client::new(Embedded::new(net.host.clone(), net.canister, operator));
    other.revoke_role(&Grant { principal: net.principal, role: Role::Operator }).done().unwrap();
    let error = world.ingest(2, plan(vec![])).unwrap_err();
    assert!(error.contains("only an operator applies the first block"), "{error}");
    assert_eq!(play(net, operator, &error), ["grant_role"]);
    assert_eq!(world.ingest(2, plan(vec![])), Ok(()));
}

#[test]
fn immature_coinbase_is_left_out_or_the_maturity_is_set_in_an_empty_canister() {
    let world = World::new(100);
    let mut leave_out = Vec::new();
    while let Err(error) = world.ingest(2, plan(leave_out.clone())) {
        assert!(error.contains("begin in an empty canister"), "{error}");
        leave_out.push(left_out(&error).expect("the error names the transaction"));
    }
    assert!(!leave_out.is_empty());
    let world = World::new(100);
    let chain = || Plan { coinbase_maturity: Some(MATURITY), ..plan(vec![]) };
    let error = world.ingest(2, chain()).unwrap_err();
    assert_eq!(play(&world.net, world.net.principal, &error), ["set_config"]);
    assert_eq!(world.ingest(2, chain()), Ok(()));
}
