//! The worst hour of each role's key in cycles, as `SECURITY.md` states it: computed from the tables of the interface, the default settings
//! of buckets and the prices of the platform.

use ic_coppice_interface::access::FEEDERS;
use ic_coppice_interface::methods::TABLE;
use ic_coppice_interface::{Config, Role};

/// Cycles of an ingress message and of its execution, on a subnet of 13 nodes.
const MESSAGE: u64 = 1_200_000 + 5_000_000;
/// Cycles of a byte of an ingress message.
const BYTE: u64 = 2_000;
/// Bytes of an envelope besides method and argument.
const ENVELOPE: u64 = 200;
/// Blocks of the subnet in an hour, with the most ingress messages and message bytes per block.
const BLOCKS: u64 = 3_600;
const MESSAGES_OF_BLOCK: u64 = 1_000;
const BYTES_OF_BLOCK: u64 = 4 << 20;

/// Instructions that a canister executes in an hour, whatever is sent: 7 G in a round, and a round a second.
const EXECUTED: u128 = 7_000_000_000 * 3_600;

fn tera(cycles: u128) -> String {
    let hundredths = cycles.div_ceil(10_000_000_000);
    format!("{}.{:02} T", hundredths / 100, hundredths % 100)
}

/// The line of a key's updates, or `None`.
fn line(name: &str, roles: &[Role]) -> Option<String> {
    let methods = TABLE.iter().filter(|of| !of.is_query && of.roles.iter().any(|role| roles.contains(role)));
    let cost = |method: &str, bytes: u64| MESSAGE + BYTE * (ENVELOPE + method.len() as u64 + bytes);
    // The first of several methods with the same cost.
    let (cycles, method, bytes) = methods
        .map(|of| (cost(of.name, of.largest), of.name, of.largest))
        .reduce(|worst, next| if next.0 > worst.0 { next } else { worst })?;
    let of_subnet = BLOCKS * (BYTES_OF_BLOCK / bytes).min(MESSAGES_OF_BLOCK);
    let config = Config::default();
    let messages = match roles.iter().any(|role| FEEDERS.contains(role)) {
        true => of_subnet,
        false => of_subnet.min(u64::from(config.message_bucket) + 60 * u64::from(config.messages_per_minute)),
    };
    let fees = u128::from(cycles) * u128::from(messages);
    Some(format!("| {name} | {messages} | `{method}`, {bytes} bytes | {} | {} |", tera(fees), tera(fees + EXECUTED)))
}

/// The line of queries that are called as updates: no bucket counts them, so that only the subnet bounds them.
fn of_queries() -> String {
    let fees = u128::from(BLOCKS * (MESSAGES_OF_BLOCK * MESSAGE + BYTES_OF_BLOCK * BYTE));
    let messages = BLOCKS * MESSAGES_OF_BLOCK;
    format!("| any role, by queries | {messages} | a full block | {} | {} |", tera(fees), tera(fees + EXECUTED))
}

#[test]
fn security_md_states_the_worst_hour_of_each_key() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../SECURITY.md");
    let text = std::fs::read_to_string(path).expect("it can be read");
    let mut lines: Vec<String> =
        Role::ALL.into_iter().filter_map(|role| line(&format!("`{role:?}`"), &[role])).collect();
    lines.extend(line("controllers", &[Role::Operator, Role::Admin]));
    lines.push(of_queries());
    let missing: Vec<&String> = lines.iter().filter(|line| !text.lines().any(|found| found == *line)).collect();
    assert!(missing.is_empty(), "SECURITY.md lacks\n{}", lines.join("\n"));
}
