//! Writes the interface of the canister: `cargo run -p coppice_rollup --example did > examples/rollup/rollup.did`.

fn main() -> anyhow::Result<()> {
    print!("{}", coppice_did::host(&coppice_rollup::own_interface(), coppice_rollup::exported())?);
    Ok(())
}
