//! The example canister that contains Coppice: `examples/rollup`.

mod limits;

use candid::utils::ArgumentEncoder;
use candid::{CandidType, Principal, decode_one, encode_args, encode_one};
use coppice_ic::{Ic, Reject};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, Who, default_arg};
use coppice_tests::wasm;
use ic_certification::{HashTree, LookupResult};
use ic_coppice_host::{Host, Kind, TrapPoint};
use ic_coppice_interface::methods::TABLE;
use ic_coppice_interface::{
    CanisterArg, ConfigChange, InitArg, ProblemCode, PrunePolicyArg, ReadError, Role, StorageStatus, TipCertificate,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;

/// Payments of a full block.
const PER_BLOCK: u64 = 100;

#[derive(Clone, Debug, PartialEq, Eq, CandidType, Deserialize)]
enum PayError {
    Balance(u64),
    Nothing,
    Bytes,
    Busy(String),
}

#[derive(Clone, Debug, CandidType)]
struct Account {
    owner: Principal,
    subaccount: Option<ByteBuf>,
}

#[derive(Clone, Debug, CandidType)]
struct Transfer {
    from_subaccount: Option<ByteBuf>,
    to: Account,
    amount: u64,
    memo: Option<ByteBuf>,
}

fn account(who: Who) -> Account {
    Account { owner: who.principal(), subaccount: None }
}

/// The key of an account without a subaccount.
fn key(who: Who) -> String {
    who.principal().to_text()
}

fn subaccount(byte: u8) -> Option<ByteBuf> {
    Some(ByteBuf::from([byte; 32]))
}

#[derive(Clone, Debug, CandidType, Deserialize)]
struct Balance {
    amount: u64,
    proof: Option<TipCertificate>,
}

fn transfer(amount: u64) -> Transfer {
    Transfer { from_subaccount: None, to: account(Who::Rival), amount, memo: None }
}

/// A rollup, and the client of the Coppice in it.
struct Rollup(Coppice);

impl Rollup {
    /// A rollup in which the stranger has a million.
    fn new() -> Self {
        Self::on(coppice_ic::ic())
    }

    fn on(ic: Box<dyn Ic>) -> Self {
        let id = ic.create_canister(Who::Controller.principal());
        let arg = InitArg {
            log_class: Some(LOG_CLASS),
            operators: vec![Who::Operator.principal()],
            admins: Some(vec![Who::Controller.principal()]),
            ..InitArg::default()
        };
        ic.install(
            id,
            wasm::example("coppice_rollup"),
            encode_one(Some(CanisterArg::Init(arg))).unwrap(),
            Who::Controller.principal(),
        );
        let rollup = Self(Coppice { ic, id });
        rollup.0.await_ready();
        let sum: Result<u64, String> =
            rollup.update(Who::Controller, "mint", (account(Who::Stranger), 1_000_000u64)).unwrap();
        assert_eq!(sum, Ok(1_000_000));
        rollup
    }

    fn update<R: CandidType + DeserializeOwned>(
        &self,
        who: Who,
        method: &str,
        args: impl ArgumentEncoder,
    ) -> Result<R, Reject> {
        let Coppice { ic, id } = &self.0;
        Ok(decode_one(&ic.update(*id, who.principal(), method, encode_args(args).unwrap())?).unwrap())
    }

    fn query<R: CandidType + DeserializeOwned>(&self, method: &str, args: impl ArgumentEncoder) -> R {
        let Coppice { ic, id } = &self.0;
        let arg = encode_args(args).unwrap();
        decode_one(&ic.query(*id, Who::Anonymous.principal(), method, arg).unwrap()).unwrap()
    }

    /// Pays from the stranger to the rival.
    fn pay(&self, amount: u64) -> Result<u64, PayError> {
        self.transfer(transfer(amount))
    }

    fn transfer(&self, transfer: Transfer) -> Result<u64, PayError> {
        self.update(Who::Stranger, "pay", (transfer,)).unwrap()
    }

    fn pay_each(&self, payments: u64) {
        (0..payments).for_each(|_| assert!(self.pay(1).is_ok()));
    }

    fn balance(&self, of: Who) -> Balance {
        self.query("balance", (account(of),))
    }

    /// Balances of the payer and the payee.
    fn balances(&self) -> [u64; 2] {
        [Who::Stranger, Who::Rival].map(|who| self.balance(who).amount)
    }

    fn waiting(&self) -> u64 {
        self.query("waiting", ())
    }

    fn upgrade(&self) {
        self.0.upgrade_to(wasm::example("coppice_rollup"), None).unwrap();
    }

    fn storage(&self) -> StorageStatus {
        self.0.storage()
    }
}

#[test]
fn payments_become_blocks_with_receipts_and_keys() {
    let rollup = Rollup::new();
    assert_eq!(rollup.pay(1_000_001), Err(PayError::Balance(1_000_000)));
    assert_eq!(rollup.pay(0), Err(PayError::Nothing));
    rollup.pay_each(PER_BLOCK + 1);
    assert_eq!((rollup.0.head(), rollup.waiting(), rollup.balances()), (Some(1), 1, [999_899, 101]));
    // The rest gets its block by the timer.
    rollup.0.pass(6);
    assert_eq!(rollup.pay(1), Ok(PER_BLOCK + 1), "a number is used once, also after the queue was empty");
    rollup.0.pass(6);
    assert_eq!(rollup.0.head(), Some(3));
    assert_eq!(rollup.waiting(), 0);
    let headers = rollup.0.anyone().get_block_headers(1, 2).answer().unwrap().headers;
    assert_eq!(headers[1].parent_hash.as_ref(), Some(&headers[0].hash));
    let found = rollup.0.find_all(key(Who::Rival).as_bytes(), 200);
    assert_eq!((found.len(), found[0], found[1], found[101]), (102, (3, 0), (2, 0), (1, 0)));
}

#[test]
fn account_with_a_subaccount_is_another_one_and_has_a_key_of_its_own() {
    let rollup = Rollup::new();
    let sub = Account { subaccount: subaccount(7), ..account(Who::Stranger) };
    let zeros = Account { subaccount: subaccount(0), ..account(Who::Stranger) };
    assert_eq!(rollup.transfer(Transfer { to: sub.clone(), ..transfer(10) }), Ok(0));
    // Money of the subaccount, to the payer's default account, which has two forms.
    let back = Transfer { from_subaccount: subaccount(7), to: zeros, ..transfer(4) };
    assert_eq!(rollup.transfer(back.clone()), Ok(1));
    assert_eq!(rollup.transfer(Transfer { amount: 7, ..back }), Err(PayError::Balance(6)));
    let of_sub: Balance = rollup.query("balance", (sub,));
    assert_eq!((of_sub.amount, rollup.balances()), (6, [999_994, 0]));
    rollup.0.pass(6);
    let bytes = [&[0], Who::Stranger.principal().as_slice(), &[7; 32]].concat();
    assert_eq!(rollup.0.find_all(&bytes, 10), [(1, 1), (1, 0)]);
    assert_eq!(rollup.0.find_all(key(Who::Stranger).as_bytes(), 10), [(1, 1), (1, 0)]);
}

/// The longest operations that are taken fill a block that can be sealed; longer ones are refused.
#[test]
fn payment_that_could_not_be_sealed_is_refused_when_it_comes() {
    let rollup = Rollup::new();
    let long = |bytes: usize| Some(ByteBuf::from(vec![9; bytes]));
    for wrong in [
        Transfer { memo: long(33), ..transfer(1) },
        Transfer { from_subaccount: long(31), ..transfer(1) },
        Transfer { to: Account { subaccount: long(33), ..account(Who::Rival) }, ..transfer(1) },
    ] {
        assert_eq!(rollup.transfer(wrong.clone()), Err(PayError::Bytes), "{wrong:?}");
    }
    let to = Account { subaccount: subaccount(9), ..account(Who::Rival) };
    assert_eq!(
        rollup.transfer(Transfer {
            to: Account { subaccount: subaccount(8), ..account(Who::Stranger) },
            ..transfer(PER_BLOCK)
        }),
        Ok(0)
    );
    for _ in 1..PER_BLOCK {
        let longest = Transfer { from_subaccount: subaccount(8), to: to.clone(), memo: long(32), amount: 1 };
        assert!(rollup.transfer(longest).is_ok());
    }
    assert_eq!((rollup.0.head(), rollup.waiting()), (Some(1), 0));
}

#[test]
fn canister_has_the_methods_of_its_sets_only() {
    let rollup = Rollup::new();
    let Coppice { ic, id } = &rollup.0;
    Role::ALL.into_iter().filter(|role| *role != Role::Exporter).for_each(|role| rollup.0.grant(Who::Operator, role));
    rollup.0.register(Who::Exporter);
    for method in TABLE {
        let caller = if method.roles == [Role::Exporter] { Who::Exporter } else { Who::Operator }.principal();
        let argument = encode_args(()).unwrap();
        let answer = match method.is_query {
            true => ic.query(*id, caller, method.name, argument).map(drop),
            false => ic.update(*id, caller, method.name, argument).map(drop),
        };
        let is_missing =
            answer.is_err_and(|reject| reject.message.contains("no method") || reject.error_code == "IC0536");
        let brings_blocks = method.area == "blocks" && !method.is_query;
        assert_eq!(is_missing, method.is_of_records() || brings_blocks, "{}", method.name);
    }
}

#[test]
fn filter_decides_on_methods_of_coppice_and_the_canister_on_its_own() {
    let rollup = Rollup::new();
    let change = ConfigChange { open_queries: Some(true), ..ConfigChange::default() };
    let denied = rollup.0.by(Who::Stranger).set_config(&change).try_answer().unwrap_err();
    assert!(denied.message.contains("access denied") && denied.message.contains("Admin"), "{denied:?}");
    assert_eq!(rollup.pay(1), Ok(0));
    let sum: Result<u64, String> = rollup.update(Who::Stranger, "mint", (account(Who::Stranger), 1u64)).unwrap();
    assert_eq!(sum, Err("only a controller may make money".into()));
    let sum: Result<u64, String> = rollup.update(Who::Controller, "mint", (account(Who::Rival), u64::MAX)).unwrap();
    assert_eq!(sum, Err("the sum of all balances is too large".into()));
    let long = vec![0u8; 1_000];
    let refused = rollup.update::<Result<u64, String>>(Who::Stranger, "mint", (long,)).unwrap_err();
    assert!(refused.message.contains("more than 512 bytes"), "{refused:?}");
}

#[test]
fn balances_are_certified_with_the_chain_also_after_an_upgrade() {
    let rollup = Rollup::new();
    rollup.pay_each(PER_BLOCK);
    for _ in 0..2 {
        let account = key(Who::Rival);
        let proof = rollup.balance(Who::Rival).proof.unwrap();
        let tree: HashTree = tree_of(&proof);
        let path = [&b"host"[..], b"balances", account.as_bytes()];
        assert_eq!(tree.lookup_path(path), LookupResult::Found(&100u64.to_be_bytes()[..]));
        let head = rollup.0.anyone().get_tip_certificate().answer().unwrap();
        assert_eq!(tree_of(&head).digest(), tree.digest(), "one certified tree");
        rollup.upgrade();
    }
}

fn tree_of(proof: &TipCertificate) -> HashTree {
    ic_coppice_storage::cbor::read(&proof.hash_tree).unwrap()
}

#[test]
fn upgrade_keeps_balances_waiting_payments_and_blocks() {
    let rollup = Rollup::new();
    rollup.pay_each(PER_BLOCK + 30);
    let before = (rollup.0.chain(), rollup.balances(), rollup.waiting());
    assert_eq!((before.1, before.2), ([999_870, 130], 30));
    rollup.upgrade();
    assert_eq!((rollup.0.chain(), rollup.balances(), rollup.waiting()), before);
    // Timers run again.
    rollup.0.pass(6);
    assert_eq!((rollup.0.head(), rollup.waiting()), (Some(2), 0));
}

/// The product's hooks do nothing else, so their cost is that of the library.
#[test]
fn installation_and_upgrade_cost_at_most_a_million_instructions_each() {
    let cost = |host: &Host, kind: Kind| {
        let runs = host.take_executions();
        let costs: Vec<u64> = runs.iter().filter(|run| run.kind == kind).map(|run| run.instructions).collect();
        println!("{kind:?}: {costs:?}");
        assert!(costs.len() == 1 && costs[0] <= 1_000_000, "{kind:?}: {costs:?}");
    };
    let (ic, host) = coppice_ic::embedded();
    let (id, controller) = (ic.create_canister(Who::Controller.principal()), Who::Controller.principal());
    // Without an argument, which the canister decodes before it calls the library.
    ic.install(id, wasm::canister(), Vec::new(), controller);
    cost(&host, Kind::Init);
    let (coppice, host) = Coppice::embedded(default_arg());
    coppice.append_plain(0..100, 1_000);
    host.take_executions();
    coppice.upgrade();
    cost(&host, Kind::PostUpgrade);
}

/// A trap at a system call or after a number of instructions of the message that pays and makes a block undoes both.
#[test]
fn trap_in_the_message_that_makes_a_block_changes_nothing() {
    let (ic, host) = coppice_ic::embedded();
    let rollup = Rollup::on(ic);
    rollup.pay_each(PER_BLOCK - 1);
    let state = || (rollup.0.chain(), rollup.balances(), rollup.waiting(), rollup.balance(Who::Rival).proof.is_some());
    let (before, checkpoint) = (state(), host.checkpoint());
    host.take_executions();
    rollup.pay_each(1);
    let after = state();
    assert_eq!((after.0.len(), after.1, after.2), (1, [999_900, 100], 0));
    let paid = host.take_executions().into_iter().find(|run| run.kind == Kind::Update).unwrap();
    let calls = (1..=paid.system_calls).step_by((paid.system_calls / 10).max(1) as usize).map(TrapPoint::SystemCall);
    let instructions = (1..5).map(|fifth| TrapPoint::Instructions(paid.instructions / 5 * fifth));
    let points: Vec<TrapPoint> = calls.chain(instructions).chain([TrapPoint::End]).collect();
    assert!(points.len() > 14, "{points:?}");
    for point in points {
        host.restore(&checkpoint);
        host.faults().clear();
        host.faults().trap_message(1, point);
        let trapped: Result<Result<u64, PayError>, Reject> = rollup.update(Who::Stranger, "pay", (transfer(1),));
        assert!(trapped.is_err(), "{point:?}: {trapped:?}");
        assert_eq!(state(), before, "{point:?}");
        rollup.pay_each(1);
        assert_eq!(state(), after, "{point:?}");
    }
}

/// Payments wait while an exporter holds blocks back at the emergency mark, and get their blocks when it acknowledges.
#[test]
fn exporter_that_lags_makes_payments_wait_and_loses_none() {
    let rollup = Rollup::new();
    let coppice = &rollup.0;
    coppice.register(Who::Exporter);
    let small = PrunePolicyArg {
        target_bytes: Some(6 << 16),
        headroom_ratio_bps: Some(9_000),
        retain_days: Some(0),
        ..PrunePolicyArg::default()
    };
    coppice.by(Who::Operator).set_prune_policy(&small).answer().unwrap();
    let mut paid = 0;
    let why = loop {
        match rollup.pay(1) {
            Ok(_) => paid += 1,
            Err(PayError::Busy(why)) => break why,
            Err(other) => panic!("{other:?}"),
        }
        assert!(paid < 40_000, "{:?}", rollup.storage());
    };
    assert!(why.contains("emergency"), "{why}");
    assert_eq!((rollup.waiting(), rollup.balances()), (1_000, [1_000_000 - paid, paid]));
    let head = coppice.anyone().get_head().answer().unwrap();
    coppice.ack(Who::Exporter, head.number, &head.hash).unwrap();
    let passes = (0..60).find(|_| {
        // The exporter goes on.
        let head = coppice.anyone().get_head().answer().unwrap();
        coppice.ack(Who::Exporter, head.number, &head.hash).unwrap();
        coppice.pass(60);
        rollup.waiting() == 0
    });
    assert!(passes.is_some(), "{} payments wait", rollup.waiting());
    let last = coppice.head().unwrap();
    assert_eq!(last, head.number + 10);
    assert!(matches!(coppice.block(1), Err(ReadError::Pruned { .. })));
    assert!(!coppice.health().problems.iter().any(|problem| problem.code == ProblemCode::Damaged));
    let found = |who: Who| coppice.find_all(key(who).as_bytes(), 100).len() as u64;
    let kept = last + 1 - coppice.prune_status().pruned_before_block;
    assert_eq!([Who::Rival, Who::Stranger].map(found), [kept * PER_BLOCK; 2], "{kept} blocks are kept");
}
