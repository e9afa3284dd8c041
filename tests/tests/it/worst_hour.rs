//! The worst hour of each role's key in cycles, as `SECURITY.md` states it: by the tables of the interface, the default settings of buckets
//! and the prices of the platform.

use coppice_interface::access::{FEEDERS, Required, TABLE};
use coppice_interface::arguments::LARGEST;
use coppice_interface::{Config, Role};

/// Cycles of an ingress message and of its execution, on a subnet of 13 nodes.
const MESSAGE: u64 = 1_200_000 + 5_000_000;
/// Cycles of a byte of an ingress message.
const BYTE: u64 = 2_000;
/// Bytes of an envelope beside method and argument.
const ENVELOPE: u64 = 200;
/// Messages of 2 MiB that the subnet takes in an hour: two in a block, and a block a second.
const OF_SUBNET: u64 = 2 * 3_600;

/// Instructions that a canister executes in an hour, whatever is sent: 7 G in a round, and a round a second.
const EXECUTED: u128 = 7_000_000_000 * 3_600;

/// The line of a key.
fn line(name: &str, roles: &[Role]) -> String {
    let may = |required: &Required| match required {
        Required::Nobody => true,
        Required::Role(some) | Required::Reader(some) => some.iter().any(|role| roles.contains(role)),
    };
    let methods = TABLE.iter().zip(LARGEST).filter(|((_, required), _)| may(required));
    let cost = |method: &str, bytes: u64| MESSAGE + BYTE * (ENVELOPE + method.len() as u64 + bytes);
    // Of those that cost the same, the first.
    let (cycles, method, bytes) = methods
        .map(|(_, &(method, bytes))| (cost(method, bytes), method, bytes))
        .reduce(|worst, next| if next.0 > worst.0 { next } else { worst })
        .expect("there are queries");
    let config = Config::default();
    let messages = match roles.iter().any(|role| FEEDERS.contains(role)) {
        true => OF_SUBNET,
        false => u64::from(config.message_bucket) + 60 * u64::from(config.messages_per_minute),
    };
    let tera = |cycles: u128| {
        let hundredths = cycles.div_ceil(10_000_000_000);
        format!("{}.{:02} T", hundredths / 100, hundredths % 100)
    };
    let fees = u128::from(cycles) * u128::from(messages);
    format!("| {name} | {messages} | `{method}`, {bytes} bytes | {} | {} |", tera(fees), tera(fees + EXECUTED))
}

#[test]
fn the_worst_hour_of_each_key_is_what_security_md_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../SECURITY.md");
    let text = std::fs::read_to_string(path).expect("it can be read");
    let mut lines: Vec<String> = Role::ALL.into_iter().map(|role| line(&format!("`{role:?}`"), &[role])).collect();
    lines.push(line("controllers", &[Role::Operator, Role::Admin]));
    lines.push(line("all principals without a role, with `open_queries`", &[]));
    let missing: Vec<&String> = lines.iter().filter(|line| !text.lines().any(|found| found == *line)).collect();
    assert!(missing.is_empty(), "SECURITY.md lacks\n{}", lines.join("\n"));
}
