//! Tables of the index.
//!
//! Readers need `blocks` and `transactions`, which hold only whole and proved blocks, and `parts` for segments that are too long for a row.
//! From `blocks.seal` the seals of later blocks lead to a certificate of the subnet in `certificates`; `runs` has the seals before blocks that
//! follow no stored block. `keys` and `receipts` answer what the
//! canister answered by key and by transaction (`rows.rs`). `gaps` lists missing blocks and the reasons; `state` and `incomplete` hold the
//! proof of the newest block, and a block of which parts have come, in JSON. `orphaned` and its two companion tables hold the newest blocks
//! that a reorg or a reset removed, up to a bound, and with `restored` 1 the blocks that a restored canister lacks, for good.
//! `docs/reference/database.md` describes the tables for readers.

/// The version of this schema. A database with another version is refused.
pub const VERSION: i64 = 8;

/// Bytes of the longest segment in a block's row; longer segments stay in `parts`.
pub const INLINE: u64 = 8 << 20;

/// Columns of `blocks` and `orphaned` after the number.
const BLOCK: &str = "\
    hash {bytes} NOT NULL,
    parent_hash {bytes},
    timestamp_secs BIGINT NOT NULL,
    transactions BIGINT NOT NULL,
    body_length BIGINT NOT NULL,
    receipts_length BIGINT NOT NULL,
    index_length BIGINT NOT NULL,
    body_sha256 {bytes} NOT NULL,
    receipts_sha256 {bytes} NOT NULL,
    index_sha256 {bytes} NOT NULL,
    seal {bytes} NOT NULL,
    body {bytes},
    receipts {bytes},
    index_segment {bytes}";

/// Names of the tables.
pub const NAMES: [&str; 13] = [
    "state",
    "blocks",
    "transactions",
    "keys",
    "receipts",
    "parts",
    "incomplete",
    "gaps",
    "certificates",
    "runs",
    "orphaned",
    "orphaned_transactions",
    "orphaned_parts",
];

/// All tables. `{block}` stands for [`BLOCK`]; the other words in braces are those of [`Tx::define`](super::database::Tx::define). In the
/// tables of removed blocks, a later removal has a larger `removal`; the other columns, except `restored`, are those of the original table,
/// in the same order.
const TABLES: &str = "
CREATE TABLE state (
    id {key} CHECK (id = 1),
    schema_version BIGINT NOT NULL,
    canister TEXT NOT NULL,
    network TEXT NOT NULL,
    payload TEXT NOT NULL,
    revision BIGINT NOT NULL,
    proof TEXT,
    keys_through BIGINT,
    receipts_through BIGINT
);
CREATE TABLE blocks (
    number {key},
    {block}
);
CREATE INDEX blocks_by_hash ON blocks (hash);
CREATE TABLE transactions (
    number BIGINT NOT NULL,
    position BIGINT NOT NULL,
    id {bytes} NOT NULL,
    PRIMARY KEY (number, position)
) {clustered};
CREATE INDEX transactions_by_id ON transactions (id);
CREATE TABLE keys (
    key {bytes} NOT NULL,
    number BIGINT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (key, number, position)
) {clustered};
CREATE INDEX keys_by_block ON keys (number, position);
CREATE TABLE receipts (
    number BIGINT NOT NULL,
    position BIGINT NOT NULL,
    bytes {bytes},
    PRIMARY KEY (number, position)
);
CREATE TABLE parts (
    number BIGINT NOT NULL,
    segment BIGINT NOT NULL,
    starts_at BIGINT NOT NULL,
    bytes {bytes} NOT NULL,
    PRIMARY KEY (number, segment, starts_at)
);
CREATE TABLE incomplete (
    number {key},
    block TEXT NOT NULL
);
CREATE TABLE gaps (
    first {key},
    last BIGINT NOT NULL,
    why TEXT NOT NULL
);
CREATE TABLE certificates (
    number {key},
    certificate {bytes} NOT NULL,
    hash_tree {bytes} NOT NULL
);
CREATE TABLE runs (
    number {key},
    before {bytes} NOT NULL
);
CREATE TABLE orphaned (
    removal BIGINT NOT NULL,
    restored BIGINT NOT NULL,
    number BIGINT NOT NULL,
    {block},
    PRIMARY KEY (removal, number)
);
CREATE INDEX orphaned_by_hash ON orphaned (hash);
CREATE INDEX orphaned_restored ON orphaned (removal) WHERE restored = 1;
CREATE TABLE orphaned_transactions (
    removal BIGINT NOT NULL,
    number BIGINT NOT NULL,
    position BIGINT NOT NULL,
    id {bytes} NOT NULL,
    PRIMARY KEY (removal, number, position)
) {clustered};
CREATE TABLE orphaned_parts (
    removal BIGINT NOT NULL,
    number BIGINT NOT NULL,
    segment BIGINT NOT NULL,
    starts_at BIGINT NOT NULL,
    bytes {bytes} NOT NULL,
    PRIMARY KEY (removal, number, segment, starts_at)
);
";

/// Views for people: ids and hashes of Bitcoin are written in display order, the bytes reversed.
const VIEWS: &str = "
CREATE VIEW blocks_displayed AS
    SELECT number, {displayed hash} AS hash, {displayed parent_hash} AS parent_hash, timestamp_secs, transactions
    FROM blocks;
CREATE VIEW transactions_displayed AS SELECT number, position, {displayed id} AS id FROM transactions;
";

/// Returns the statements that create all tables and views.
pub fn tables() -> String {
    TABLES.replace("{block}", BLOCK) + VIEWS
}

/// Description of the tables in the command's help.
pub const HELP: &str = "\
Tables: blocks (number, hash, parent_hash, timestamp_secs, transactions, *_length, *_sha256, body, receipts, index_segment, \
seal), transactions (number, position, id), keys (key, number, position), receipts (number, position, bytes), gaps (first, last, \
why), certificates (number, certificate, hash_tree), runs (number, before), state; views blocks_displayed and transactions_displayed, with hashes and ids in display order. A segment longer than 8 MiB is not in its block's \
row but in parts (number, segment, starts_at, bytes), in the order of starts_at. A block is in blocks once it is whole and \
verified; its seal leads to a certificate of the subnet. Blocks that a reorg, a reset or a restored canister removed are in orphaned, \
orphaned_transactions and orphaned_parts, each with the column removal first; orphaned.restored is 1 for blocks that a restored canister lacks, which stay. \
docs/reference/database.md describes the tables, with queries.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_its_name_in_the_list() {
        let made: Vec<&str> =
            TABLES.split("CREATE TABLE ").skip(1).filter_map(|table| table.split(' ').next()).collect();
        assert_eq!(made, NAMES);
    }
}
