//! The access table against the Candid file and against the canister: every method, every kind of caller.

use candid::types::FuncMode;
use candid::{Principal, encode_args};
use candid_parser::utils::CandidSource;
use coppice_ic::Reject;
use coppice_tests::blocks::hash;
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg};
use coppice_tests::proxy::Proxy;
use ic_coppice_interface::access::FEEDERS;
use ic_coppice_interface::methods::{Method, TABLE};
use ic_coppice_interface::*;
use std::collections::BTreeMap;
use std::path::Path;

/// The methods of the Candid file, and whether they are queries.
fn methods() -> BTreeMap<String, bool> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../candid/coppice.did");
    let (env, actor) = CandidSource::File(&path).load().expect("the Candid file parses");
    let actor = actor.expect("it has a service");
    let service = env.as_service(&actor).expect("it is a service");
    let is_query = |method: &str| {
        let function = env.get_method(&actor, method).expect("it is a function");
        function.modes.contains(&FuncMode::Query)
    };
    service.iter().map(|(name, _)| (name.clone(), is_query(name))).collect()
}

/// The methods of the table, by name.
fn table() -> BTreeMap<&'static str, &'static Method> {
    TABLE.iter().map(|of| (of.name, of)).collect()
}

#[test]
fn the_table_names_every_method_of_the_candid_file_once() {
    let methods = methods();
    let table = table();
    assert_eq!(table.len(), TABLE.len(), "a method twice");
    assert_eq!(table.keys().copied().collect::<Vec<_>>(), methods.keys().map(String::as_str).collect::<Vec<_>>());
    for (method, query) in &methods {
        let Method { is_query, roles, .. } = table[method.as_str()];
        assert_eq!(*is_query, *query, "{method}");
        assert!(*is_query || !roles.is_empty(), "{method}: an update asks for a role");
    }
}

/// A caller and its roles.
struct Caller {
    name: String,
    roles: Vec<Role>,
    /// The principal that sends from outside.
    outside: Principal,
    /// The canister that calls with the same roles; `None` for the anonymous caller, because no canister is anonymous.
    inside: Option<Proxy>,
}

/// The anonymous caller, a stranger, each role, a controller; each of them from outside and as a canister.
fn callers(coppice: &Coppice) -> Vec<Caller> {
    let ic = coppice.ic.as_ref();
    let controller = Who::Controller.principal();
    let caller = |name: &str, roles: &[Role], outside: Principal| {
        let inside = (outside != Principal::anonymous()).then(|| Proxy::new(ic, controller));
        Caller { name: name.into(), roles: roles.into(), outside, inside }
    };
    let mut all = vec![
        caller("anonymous", &[], Principal::anonymous()),
        caller("a stranger", &[], Who::Stranger.principal()),
        caller("a controller", &[Role::Operator, Role::Admin], controller),
    ];
    for role in Role::ALL {
        let outside = Principal::self_authenticating(format!("{role:?}"));
        let caller = caller(&format!("{role:?}"), &[role], outside);
        let inside = caller.inside.as_ref().expect("it is not anonymous").principal();
        for principal in [outside, inside] {
            if role == Role::Exporter {
                let exporter = Exporter { name: format!("e{}", principal.to_text().replace('-', ".")), principal };
                let exporter = Exporter { name: exporter.name.chars().take(32).collect(), ..exporter };
                coppice.operator().register_exporter(&exporter).answer().unwrap();
            } else {
                let grant = Grant { principal, role };
                coppice.operator().grant_role(&grant).answer().unwrap();
            }
        }
        all.push(caller);
    }
    let canister = all[2].inside.as_ref().expect("it is not anonymous").principal();
    ic.set_controllers(coppice.id, controller, vec![controller, canister]).unwrap();
    all
}

/// The state that calls could have changed.
fn state(coppice: &Coppice) -> (Vec<Grant>, Config, UtxoPrunerStatus, Option<PrunePolicy>, StorageStatus) {
    let _: Health = coppice.anyone().health().answer();
    (
        coppice.anyone().list_roles().answer(),
        coppice.anyone().get_config().answer(),
        coppice.anyone().utxo_get_pruner_status().answer(),
        coppice.anyone().get_prune_status().answer().policy,
        coppice.anyone().get_storage_status(None).answer(),
    )
}

/// Calls every method of the Candid file as every caller in every way, with an argument that cannot be decoded. Callers without the role
/// are refused before the argument is decoded.
#[test]
fn every_method_admits_the_tables_roles_by_ingress_by_query_and_from_a_canister() {
    let coppice = Coppice::new();
    let callers = callers(&coppice);
    let table = table();
    let before = state(&coppice);
    let (mut outside, mut queried, mut inside, mut admitted) = (0, 0, 0, 0);
    for (method, is_query) in methods() {
        let garbage = b"not candid".to_vec();
        for caller in &callers {
            let has = |roles: &[Role]| caller.roles.iter().any(|role| roles.contains(role));
            let (may_outside, may_inside) = match table[method.as_str()].roles {
                [] => (!caller.roles.is_empty(), true),
                roles => (has(roles), has(roles)),
            };
            let check = |answer: Result<Vec<u8>, Reject>, may: bool, way: &str| {
                let what = format!("{method} by {} {way}", caller.name);
                match answer {
                    Ok(_) => assert!(may && is_query, "{what} is answered"),
                    Err(reject) => {
                        assert_eq!(reject.message.contains("access denied"), !may, "{what}: {reject:?}");
                        // A trap would undo the draw from the caller's bucket.
                        let is_feeder = caller.roles.iter().any(|role| FEEDERS.contains(role));
                        assert!(!may || is_feeder || !reject.message.contains("trap"), "{what}: {reject:?}");
                    }
                }
            };
            check(coppice.ic.update(coppice.id, caller.outside, &method, garbage.clone()), may_outside, "from outside");
            outside += 1;
            admitted += usize::from(may_outside);
            // A query passes no ingress filter; an update cannot be called as a query by any caller.
            let answer = coppice.ic.query(coppice.id, caller.outside, &method, garbage.clone());
            match is_query {
                true => check(answer, may_inside, "by query"),
                false => assert!(answer.is_err(), "{method} by {} is answered by query", caller.name),
            }
            queried += 1;
            if let Some(proxy) = &caller.inside {
                check(proxy.update(coppice.ic.as_ref(), coppice.id, &method, &garbage), may_inside, "as a canister");
                inside += 1;
            }
        }
    }
    // Nine roles, a controller, a stranger; and the anonymous principal, which no canister can have.
    assert_eq!((outside, queried, inside), (12 * TABLE.len(), 12 * TABLE.len(), 11 * TABLE.len()));
    assert!(admitted > 100, "{admitted}");
    assert_eq!(state(&coppice), before, "nothing has changed");
}

/// Each role can do what is its own: a canister that refuses everything would pass the test above.
#[test]
fn every_role_can_call_its_methods() {
    let coppice = Coppice::new();
    let callers = callers(&coppice);
    coppice.append_plain(0..3, 100);
    let by = |name: &str| callers.iter().find(|caller| caller.name == name).expect("a caller");
    let parts = |deletions: CompleteBlobDeletions| encode_args((deletions,)).unwrap();
    let none =
        CompleteBlobDeletions { completed_ids: vec![], failed_ids: vec![], max_retries: 1, ..Default::default() };
    let freeze = UtxoFreezeBatch { height: 1, items: vec![] };
    let blob = BlobName { blob_key: vec![1].into(), file_type: "tx".into(), store_type: StoreType::Tx };
    let own = [
        ("Producer", "rollback_to", encode_args((2u64,)).unwrap()),
        ("Producer", "utxo_set_block_assembly_state", encode_args((UtxoBlockAssemblyState::Running,)).unwrap()),
        ("BlockProducer", "rollback_to", encode_args((2u64,)).unwrap()),
        ("UtxoFeeder", "utxo_notify_block", encode_args((7u32, true)).unwrap()),
        ("UtxoFeeder", "cancel_blob_deletion", encode_args((blob,)).unwrap()),
        ("Alert", "utxo_freeze", encode_args((freeze,)).unwrap()),
        ("Exporter", "ack_exported", encode_args((1u64, BlockHash::from(hash(1)))).unwrap()),
        ("BlobWorker", "complete_blob_deletions", parts(none)),
        ("Operator", "set_prune_policy", encode_args((PrunePolicyArg::default(),)).unwrap()),
        ("Observer", "get_audit_log", encode_args((None::<u64>, 10u32)).unwrap()),
        ("Admin", "rollback_to", encode_args((2u64,)).unwrap()),
        ("Admin", "set_config", encode_args((ConfigChange::default(),)).unwrap()),
        ("a controller", "set_config", encode_args((ConfigChange::default(),)).unwrap()),
        ("a controller", "acknowledge_faults", encode_args((0u64,)).unwrap()),
    ];
    for (name, method, arg) in own {
        let caller = by(name);
        coppice.ic.update(coppice.id, caller.outside, method, arg.clone()).unwrap();
        let proxy = caller.inside.as_ref().expect("it is not anonymous");
        proxy.update(coppice.ic.as_ref(), coppice.id, method, &arg).unwrap();
    }
    // The audit log is also a query, and is refused to all others.
    let arg = encode_args((None::<u64>, 10u32)).unwrap();
    for caller in &callers {
        let may = caller.roles.iter().any(|role| [Role::Observer, Role::Operator, Role::Admin].contains(role));
        let answer = coppice.ic.query(coppice.id, caller.outside, "get_audit_log", arg.clone());
        assert_eq!(answer.is_ok(), may, "{}: {answer:?}", caller.name);
    }
}

#[test]
fn roles_are_granted_revoked_listed_and_survive_an_upgrade() {
    let coppice = Coppice::new();
    let stranger = Grant { principal: Who::Stranger.principal(), role: Role::Admin };
    let may = |coppice: &Coppice| coppice.by(Who::Stranger).grant_role(&stranger).try_answer().is_ok();
    assert!(!may(&coppice));
    assert_eq!(coppice.operator().grant_role(&stranger).answer(), Ok(()));
    assert!(may(&coppice));
    coppice.upgrade();
    assert!(may(&coppice), "after an upgrade too");
    let producer = Grant { principal: Who::Producer.principal(), role: Role::Producer };
    let mut expected = vec![producer, stranger];
    expected.sort();
    assert_eq!(coppice.anyone().list_roles().answer(), expected);
    assert!(coppice.operator().revoke_role(&stranger).answer());
    assert!(!coppice.operator().revoke_role(&stranger).answer());
    assert!(!may(&coppice));
    let anonymous = Grant { principal: Who::Anonymous.principal(), role: Role::Producer };
    assert_eq!(coppice.operator().grant_role(&anonymous).answer(), Err(RoleError::Anonymous));
}

#[test]
fn an_upgrade_applies_new_settings_and_ignores_an_install_argument() {
    let coppice = Coppice::new();
    let change = ConfigChange { verify_segments: Some(false), ..ConfigChange::default() };
    coppice.upgrade_with(Some(CanisterArg::Upgrade(Some(change)))).unwrap();
    let config: Config = coppice.anyone().get_config().answer();
    assert!(!config.verify_segments);
    coppice.upgrade_with(Some(CanisterArg::Init(InitArg::default()))).unwrap();
    assert_eq!(coppice.anyone().get_config().answer(), config);
    let bad = ConfigChange { upload_expiry_secs: Some(0), ..ConfigChange::default() };
    let reject = coppice.upgrade_with(Some(CanisterArg::Upgrade(Some(bad)))).unwrap_err();
    assert!(reject.message.contains("upload_expiry_secs"), "{reject:?}");
    assert_eq!(coppice.anyone().get_config().answer(), config, "a refused upgrade changes nothing");
}

#[test]
fn the_operator_and_admin_roles_are_separate() {
    let (operators, admins) = (vec![Who::Operator.principal()], Some(vec![Who::Admin.principal()]));
    let coppice = Coppice::with(InitArg { operators, admins, ..default_arg() });
    let grant = Grant { principal: Who::Operator.principal(), role: Role::Admin };
    let denied = |who: Who, method: &str| {
        let reject = coppice.call::<Result<(), RoleError>>(who, method, (grant,)).unwrap_err();
        assert!(reject.message.contains("access denied") && reject.message.contains("grant_role"), "{reject:?}");
    };
    denied(Who::Operator, "grant_role");
    denied(Who::Operator, "revoke_role");
    denied(Who::Operator, "set_config");
    denied(Who::Operator, "reset_chain");
    denied(Who::Operator, "remove_exporter");
    denied(Who::Admin, "prune_now");
    denied(Who::Admin, "set_prune_policy");
    // Both the operator and the admin register exporters.
    for (by, who) in [(Who::Operator, Who::Exporter), (Who::Admin, Who::Archive)] {
        let exporter = Exporter { name: who.name(), principal: who.principal() };
        assert_eq!(coppice.by(by).register_exporter(&exporter).answer(), Ok(()), "{by:?}");
    }
    // A role alone makes no exporter.
    let exporter = Grant { principal: Who::Exporter.principal(), role: Role::Exporter };
    let refused: Result<(), RoleError> = coppice.by(Who::Admin).grant_role(&exporter).answer();
    assert!(matches!(refused, Err(RoleError::RegisterExporter { why }) if why.contains("register_exporter")));
    assert_eq!(coppice.by(Who::Admin).grant_role(&grant).answer(), Ok(()));
    assert!(coppice.by(Who::Operator).grant_role(&grant).try_answer().is_ok(), "the operator is an admin now");
}
