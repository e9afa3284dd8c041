CREATE TABLE state (
    id {key} CHECK (id = 1),
    schema_version BIGINT NOT NULL,
    canister TEXT NOT NULL,
    network TEXT NOT NULL,
    payload TEXT NOT NULL,
    revision BIGINT NOT NULL,
    cursor_number BIGINT,
    cursor_hash {bytes},
    cursor_segment BIGINT,
    cursor_offset BIGINT,
    cursor_rollbacks BIGINT
);
CREATE TABLE blocks (
    number {key},
    hash {bytes} NOT NULL,
    parent_hash {bytes} NOT NULL,
    timestamp BIGINT NOT NULL,
    transactions BIGINT NOT NULL,
    body_length BIGINT NOT NULL,
    receipts_length BIGINT NOT NULL,
    index_length BIGINT NOT NULL,
    body_sha256 {bytes} NOT NULL,
    receipts_sha256 {bytes} NOT NULL,
    index_sha256 {bytes} NOT NULL,
    body {bytes},
    receipts {bytes},
    index_segment {bytes}
);
CREATE INDEX blocks_by_hash ON blocks (hash);
CREATE TABLE transactions (
    number BIGINT NOT NULL,
    position BIGINT NOT NULL,
    id {bytes} NOT NULL,
    PRIMARY KEY (number, position)
) {clustered};
CREATE INDEX transactions_by_id ON transactions (id);
CREATE TABLE parts (
    number BIGINT NOT NULL,
    segment BIGINT NOT NULL,
    starts_at BIGINT NOT NULL,
    bytes {bytes} NOT NULL,
    PRIMARY KEY (number, segment, starts_at)
);
CREATE TABLE incomplete (
    number {key},
    hash {bytes} NOT NULL,
    parent_hash {bytes} NOT NULL,
    timestamp BIGINT NOT NULL,
    segment BIGINT NOT NULL,
    received BIGINT NOT NULL,
    body_length BIGINT,
    receipts_length BIGINT,
    index_length BIGINT,
    body_sha256 {bytes},
    receipts_sha256 {bytes},
    index_sha256 {bytes}
);
CREATE TABLE gaps (
    first {key},
    last BIGINT NOT NULL,
    why TEXT NOT NULL
);
