//! Writes `candid/*.did`, and the canister's type tables, from the interface crate: `cargo run -p coppice_did`.

use coppice_did::tables;
use std::path::Path;

fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (name, text) in coppice_did::files(&root)? {
        std::fs::write(root.join("candid").join(name), text)?;
        println!("candid/{name}");
    }
    std::fs::write(root.join(tables::FILE), tables::text()?)?;
    println!("{}", tables::FILE);
    Ok(())
}
