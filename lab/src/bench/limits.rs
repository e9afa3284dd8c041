//! Limits of instructions per operation, at either price.

use super::price::Price;

/// Outputs of a measured transaction.
pub const OUTPUTS: [u32; 4] = [1, 2, 100, 20_000];

/// Returns the limit of an operation, if it has one. Tomorrow's limits are at most a twentieth above the measured costs. Today's limits of
/// operations on UTXO records are not here: they follow from the measured costs of the plain map.
pub fn limit(price: Price, family: &str, op: &str, size: u32) -> Option<u64> {
    let (today, tomorrow) = match (family, op, size) {
        ("blob", "store", 4_096) => (8_500, 17_000),
        ("blob", "store", 65_536) => (85_000, 237_000),
        ("blob", "store", 1_048_576) => (1_312_000, 3_700_000),
        ("blob", "read", 1_048_576) => (1_052_000, 2_400_000),
        // With memory that grows by a gibibyte.
        ("blob", "allocate_fresh", 1_048_576) => (2_750, 4_000),
        ("blob", "allocate_fresh" | "allocate_reuse", _) => (2_500, 3_500),
        ("blob", "release", _) => (3_150, 4_400),
        // Six splits and six joins: 8,000 for either.
        ("blob", "split_join", _) => (9_400, 9_600),
        ("blob", "open", _) => (340_000, 740_000),
        ("index", "look-up", _) => (100_000, 140_000),
        ("index", "insert", _) => (4_200, 9_000),
        ("index", "get", _) => (3_000, 10_100),
        ("index", "remove", _) => (4_000, 8_250),
        ("index", "key_insert", _) => (6_000, 9_400),
        ("index", "key_find", _) => (6_000, 15_400),
        ("index", "key_remove", _) => (4_000, 8_350),
        ("sweep", "prune", _) => (1_200, 1_710),
        ("chain", "append", 100) => (161_000, 221_000),
        ("chain", "ack" | "ack of a hundred", _) => (60_000, 79_000),
        // Six compressions of SHA-256, and 16, at 4,928 each: what a block's seal adds to an append, and a changed head to a message.
        ("chain", "seal", _) => (45_000, 45_000),
        ("chain", "certified data", _) => (90_000, 90_000),
        ("chain", "idle firing", _) => (100_000, 105_000),
        ("chain", "refused at the door", _) => (16_000, 16_000),
        // A pruned record; and its share of a tick of a billion instructions that prunes 30,000.
        ("utxo", "prune", _) => (22_000, 32_100),
        ("utxo", "prune_scattered", _) => (24_000, 51_800),
        ("utxo", "prune_tick", _) => (1_000_000_000 / 30_000, 30_600),
        ("utxo", "nothing_new", _) => (50_000_000, 220_000),
        // The cost added to a message by counting it, and a scrape with 100 exporters.
        ("observe", "count", _) => (2_000, 2_000),
        ("observe", "scrape" | "scrape, longest names", _) => (5_130_000, 5_130_000),
        ("deletion", "lease", _) => (25_000, 29_100),
        ("deletion", "lease with records", _) => (48_000, 54_100),
        ("utxo", "create message", _) => (400_000, 214_000),
        ("utxo", "apply message", _) => (60_000_000, 64_000_000),
        ("utxo", "create batch message", _) => (47_500_000, 56_000_000),
        ("utxo", "set_mined message", _) => (400_000, 159_000),
        ("utxo", "spend message", _) => (400_000, 88_200),
        ("utxo", _, outputs) => return records_tomorrow(op, outputs).filter(|_| price == Price::Tomorrow),
        _ => return None,
    };
    Some(match price {
        Price::Today => today,
        Price::Tomorrow => tomorrow,
    })
}

/// Returns tomorrow's limit of an operation on a record of 1, 2, 100 or 20,000 outputs.
fn records_tomorrow(op: &str, outputs: u32) -> Option<u64> {
    let limits = match op {
        "create" => [27_000, 27_500, 95_000, 11_000_000],
        "create_raw" => [79_000, 91_000, 1_580_000, 299_000_000],
        "spend" => [11_700, 13_000, 124_000, 20_600_000],
        "spend_one" => [10_500, 10_800, 21_600, 23_600],
        "unspend" => [11_600, 13_000, 140_000, 23_800_000],
        "set_mined" => [12_400, 13_000, 23_800, 49_100],
        _ => return None,
    };
    OUTPUTS.into_iter().zip(limits).find(|(of, _)| *of == outputs).map(|(_, limit)| limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_price_has_its_own_limit() {
        assert_eq!(limit(Price::Today, "blob", "store", 4_096), Some(8_500));
        assert_eq!(limit(Price::Tomorrow, "blob", "store", 4_096), Some(17_000));
        assert_eq!(limit(Price::Tomorrow, "utxo", "spend", 100), Some(124_000));
        assert_eq!(limit(Price::Today, "utxo", "spend", 100), None, "the plain map sets this limit");
        assert_eq!(limit(Price::Today, "utxo", "spend message", 1), Some(400_000));
        assert_eq!(limit(Price::Today, "blob", "read", 4_096), None);
    }
}
