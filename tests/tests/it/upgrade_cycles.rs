//! Cycles that an upgrade needs. Only the embedded host can take cycles away.

use coppice_tests::coppice::{Coppice, Who, default_arg};
use ic_coppice_interface::*;

const G: u128 = 1_000_000_000;

#[test]
fn health_warns_before_an_upgrade_is_refused_for_low_cycles() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let controller = Who::Controller.principal();
    coppice.append_plain(0..3, 100);
    coppice.pass(60);
    let codes = |liquid: u128| -> Vec<ProblemCode> {
        let frozen = host.canister_status(coppice.id, Some(controller)).unwrap().freezing_limit;
        let balance = host.cycle_balance(coppice.id);
        host.add_cycles(coppice.id, (frozen + liquid).saturating_sub(balance));
        host.faults().low_cycles(coppice.id, frozen + liquid);
        coppice.ic.tick();
        coppice.health().problems.iter().filter_map(Problem::known).collect()
    };
    assert_eq!(codes(2_000 * G), []);
    // At the least balance at which the daemon prunes, an upgrade is paid.
    assert_eq!(codes(UPGRADE_RESERVE), [ProblemCode::FeedingRefused]);
    coppice.upgrade_with(None).unwrap();
    // `health` warns while an upgrade still succeeds.
    assert!(codes(UPGRADE_RESERVE - G).contains(&ProblemCode::UpgradeUnpaid));
    let health = coppice.health();
    let problem = health.problems.iter().find(|problem| problem.known() == Some(ProblemCode::UpgradeUnpaid)).unwrap();
    assert!(problem.message.contains("below 400 G") && problem.message.contains("below 311 G"), "{problem:?}");
    coppice.upgrade_with(None).unwrap();
    assert!(codes(310 * G).contains(&ProblemCode::UpgradeUnpaid));
    let refused = coppice.upgrade_with(None).unwrap_err();
    assert!(refused.error_code == "IC0207", "{refused:?}");
    assert_eq!(coppice.head(), Some(2));
    // On a larger subnet everything costs more.
    let nodes = ConfigChange { nodes: Some(34), min_liquid_cycles: Some(1), ..ConfigChange::default() };
    coppice.configure(nodes);
    assert!(codes(UPGRADE_RESERVE * 34 / 13 - G).contains(&ProblemCode::UpgradeUnpaid));
    assert!(!codes(UPGRADE_RESERVE * 34 / 13 + G).contains(&ProblemCode::UpgradeUnpaid));
}
