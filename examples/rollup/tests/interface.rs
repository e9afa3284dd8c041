//! The file of the interface is the one that the program writes.

#[test]
fn rollup_did_has_the_methods_of_the_canister_and_of_coppice() {
    let text = coppice_did::host(&coppice_rollup::own_interface(), coppice_rollup::exported()).unwrap();
    let is_new = text == include_str!("../rollup.did");
    assert!(
        is_new,
        "rollup.did is stale: run `cargo run -p coppice_rollup --example did > examples/rollup/rollup.did`"
    );
    for method in ["  pay : (Transfer) -> ", "  get_receipt : (", "  set_prune_policy : ("] {
        assert!(text.contains(method), "{method}");
    }
    assert!(!text.contains("append_block :"), "the canister exports no such method");
}
