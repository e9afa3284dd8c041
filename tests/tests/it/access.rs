//! The access table against the Candid file and against the canister: every method, every kind of caller.

use candid::types::FuncMode;
use candid_parser::utils::CandidSource;
use coppice_canister::access::{Required, TABLE};
use coppice_canister::api::{CanisterArg, ConfigChange, Grant, InitArg, Role, RoleError};
use coppice_tests::coppice::{Coppice, Who, default_arg};
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

#[test]
fn the_table_names_every_method_of_the_candid_file_once() {
    let methods = methods();
    let table: BTreeMap<&str, Required> = TABLE.iter().copied().collect();
    assert_eq!(table.len(), TABLE.len(), "a method twice");
    assert_eq!(table.keys().copied().collect::<Vec<_>>(), methods.keys().map(String::as_str).collect::<Vec<_>>());
    for (method, query) in &methods {
        let needs_nobody = table[method.as_str()] == Required::Nobody;
        assert_eq!(needs_nobody, *query, "{method}: a query needs nobody, an update needs somebody");
    }
}

/// Every update, by everybody, with an argument that cannot be decoded: who may not is refused before that is found out.
#[test]
fn access_is_checked_before_the_argument_is_decoded() {
    let coppice = Coppice::with(InitArg { operators: vec![], ..default_arg() });
    coppice.register(Who::Exporter);
    let alert = Grant { principal: Who::Alert.principal(), role: Role::Alert };
    coppice.operate::<Result<(), RoleError>>("grant_role", alert).unwrap();
    let mut checked = 0;
    for &(method, required) in TABLE {
        let either = match required {
            Required::Nobody => continue,
            Required::Role(role) => [role; 2],
            Required::Either(one, other) => [one, other],
        };
        for who in [Who::Controller, Who::Producer, Who::Exporter, Who::Alert, Who::Stranger, Who::Anonymous] {
            let may = match who {
                Who::Controller => either.contains(&Role::Operator),
                Who::Producer => either.contains(&Role::Producer),
                Who::Exporter => either.contains(&Role::Exporter),
                Who::Alert => either.contains(&Role::Alert),
                _ => false,
            };
            let garbage = b"not candid".to_vec();
            let reject = coppice.ic.update(coppice.id, who.principal(), method, garbage).expect_err(method);
            let refused = reject.message.contains("access denied");
            assert_eq!(refused, !may, "{method} by {who:?}: {reject:?}");
            assert_eq!(reject.reject_code, if may { 5 } else { 4 }, "{method} by {who:?}: {reject:?}");
            checked += 1;
        }
    }
    assert_eq!(checked, 6 * TABLE.iter().filter(|(_, required)| *required != Required::Nobody).count());
}

#[test]
fn roles_are_granted_revoked_listed_and_survive_an_upgrade() {
    let coppice = Coppice::new();
    let stranger = Grant { principal: Who::Stranger.principal(), role: Role::Operator };
    let may =
        |coppice: &Coppice| coppice.call::<Result<(), RoleError>>(Who::Stranger, "grant_role", (stranger,)).is_ok();
    assert!(!may(&coppice));
    assert_eq!(coppice.operate::<Result<(), RoleError>>("grant_role", stranger), Ok(()));
    assert!(may(&coppice));
    coppice.upgrade();
    assert!(may(&coppice), "after an upgrade too");
    let producer = Grant { principal: Who::Producer.principal(), role: Role::Producer };
    let mut expected = vec![producer, stranger];
    expected.sort();
    assert_eq!(coppice.ask::<Vec<Grant>>("list_roles", ()), expected);
    assert_eq!(coppice.operate::<Result<bool, RoleError>>("revoke_role", stranger), Ok(true));
    assert_eq!(coppice.operate::<Result<bool, RoleError>>("revoke_role", stranger), Ok(false));
    assert!(!may(&coppice));
    let anonymous = Grant { principal: Who::Anonymous.principal(), role: Role::Producer };
    assert_eq!(coppice.operate::<Result<(), RoleError>>("grant_role", anonymous), Err(RoleError::Anonymous));
}

#[test]
fn an_upgrade_takes_new_settings_and_ignores_the_argument_of_an_installation() {
    let coppice = Coppice::new();
    let change = ConfigChange { verify_segments: Some(true), ..ConfigChange::default() };
    coppice.upgrade_with(Some(CanisterArg::Upgrade(Some(change)))).unwrap();
    let config: coppice_canister::api::Config = coppice.ask("get_config", ());
    assert!(config.verify_segments);
    coppice.upgrade_with(Some(CanisterArg::Init(InitArg::default()))).unwrap();
    assert_eq!(coppice.ask::<coppice_canister::api::Config>("get_config", ()), config);
    let bad = ConfigChange { upload_expiry_secs: Some(0), ..ConfigChange::default() };
    let reject = coppice.upgrade_with(Some(CanisterArg::Upgrade(Some(bad)))).unwrap_err();
    assert!(reject.message.contains("upload_expiry_secs"), "{reject:?}");
    assert_eq!(
        coppice.ask::<coppice_canister::api::Config>("get_config", ()),
        config,
        "a refused upgrade changes nothing"
    );
}
