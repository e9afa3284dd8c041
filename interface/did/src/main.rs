//! Writes `candid/*.did` from the interface crate: `cargo run -p coppice_did`.

use std::path::Path;

fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (name, text) in coppice_did::files(&root)? {
        std::fs::write(root.join("candid").join(name), text)?;
        println!("candid/{name}");
    }
    Ok(())
}
