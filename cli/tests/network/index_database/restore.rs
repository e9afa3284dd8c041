//! A canister that is restored from a snapshot, and continues along another branch.

use super::World;
use crate::running::{json, stderr_of};
use candid::Principal;

/// Blocks of the other branch.
const OTHER: u64 = 30;

#[test]
fn restored_canister_is_followed_only_with_the_option() {
    let mut world = World::new();
    let url = format!("sqlite://{}", world.net.path("chain.db"));
    json(&world.index(&url, &["--until-caught-up"]).output().unwrap());
    let controller = Some(Principal::self_authenticating(b"controller"));
    let (host, canister) = (world.net.host.clone(), world.net.canister);
    let snapshot = host.take_canister_snapshot(canister, controller, None).unwrap();
    world.append(10);
    let report = json(&world.index(&url, &["--until-caught-up"]).output().unwrap());
    assert_eq!(report["held"]["blocks"], super::BLOCKS + 10);
    host.load_canister_snapshot(canister, controller, snapshot.id).unwrap();
    // Lower than the copy, then higher.
    let common = world.blocks[super::BLOCKS as usize - 1].number;
    let client = world.net.client();
    let mut other = world.blocks[super::BLOCKS as usize..(super::BLOCKS + OTHER) as usize].to_vec();
    let mut parent = world.blocks[super::BLOCKS as usize - 1].hash.clone();
    for block in &mut other {
        let mut hash = block.hash.to_vec();
        hash[0] ^= 1;
        (block.parent_hash, block.hash) = (parent, hash.into());
        parent = block.hash.clone();
    }
    for (blocks, held) in [(0..5, super::BLOCKS + 5), (5..OTHER as usize, super::BLOCKS + OTHER)] {
        ic_coppice_cli::feed::send(&client, &other[blocks.clone()]).unwrap();
        if blocks.start == 0 {
            for args in [&["--until-caught-up"][..], &["--until-caught-up", "--no-ack"]] {
                let output = world.index(&url, args).output().unwrap();
                let error = stderr_of(&output);
                assert_eq!(output.status.code(), Some(1), "{error}");
                assert!(error.contains("--accept-restore") && error.contains("Nothing was changed"), "{error}");
            }
        }
        let report = json(&world.index(&url, &["--until-caught-up", "--accept-restore"]).output().unwrap());
        assert_eq!(report["held"]["blocks"], held, "{report}");
        assert_eq!(report["held"]["orphaned_blocks"], 10, "{report}");
        assert_eq!(report["acknowledged_before"], common + 1 + blocks.end as u64, "{report}");
        assert_eq!(report["removed_blocks"], if blocks.start == 0 { 10 } else { 0 }, "{report}");
    }
}
