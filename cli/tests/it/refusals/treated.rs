//! Refusals that a command understands, so that it does not end with their sentence.

use coppice_testkit::refusals::Row;
use coppice_testkit::refusals::Treated::{Expected, Noted, Says};

pub const TREATED: &[Row] = &[
    // A block that no message has room for is uploaded.
    ("ingest", "append_block", "TooLarge", Expected),
    ("ingest", "append_blocks", "TooLarge", Expected),
    ("ingest", "utxo_get_transaction", "TxNotFound", Says("has no record")),
    ("ingest", "utxo_get_transaction", "NotKept", Says("has a record, but its bytes are not kept")),
    // The next certificate shows a reorg, or a later block can be acknowledged.
    ("index", "ack_exported", "NotRegistered", Says("is not a registered exporter, so it may not acknowledge")),
    ("index", "ack_exported", "", Noted),
    // An earlier block is asked for.
    (
        "index",
        "export_blocks",
        "Corrupt",
        Says("the canister cannot read block 7: because of a sample; it continues at"),
    ),
];
