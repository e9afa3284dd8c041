//! Models share no code with what they check, because shared code would share faults.

use std::path::Path;

#[test]
fn the_models_depend_on_the_interface_only() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/model/Cargo.toml");
    let manifest = std::fs::read_to_string(path).unwrap();
    let (_, dependencies) = manifest.split_once("[dependencies]").unwrap();
    let own: Vec<&str> = dependencies.lines().filter(|line| line.contains("coppice")).collect();
    assert_eq!(own, ["ic-coppice-interface.workspace = true"]);
}
