//! The interface of the code is the file of the interface.

use candid_parser::utils::{CandidSource, service_equal};
use coppice_interface::*;
use serde_bytes::ByteBuf;

candid::export_service!();

/// The interface is written by hand, and is the code's. What the code's is, this says where they differ.
#[test]
fn the_candid_file_is_the_interface() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../candid/coppice.did");
    let code = __export_service();
    let file = std::fs::read_to_string(path).unwrap();
    let compare = |file: &str| service_equal(CandidSource::Text(&code), CandidSource::Text(file));
    if let Err(why) = compare(&file) {
        panic!("{why}\n\n{code}");
    }
    // The comparison sees another type, a field that is gone, and another kind of call.
    for (from, to) in [
        ("  timestamp : nat64;", "  timestamp : nat32;"),
        ("  keys : nat32;\n", ""),
        ("  health : () -> (Health) query;", "  health : () -> (Health);"),
    ] {
        assert!(file.contains(from), "nothing to plant in: {from}");
        assert!(compare(&file.replacen(from, to, 1)).is_err(), "{from}");
    }
}
