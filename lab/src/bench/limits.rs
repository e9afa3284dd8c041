//! Limits of instructions per operation, at either price.

use super::price::Price;

/// Outputs of a measured transaction.
pub const OUTPUTS: [u32; 4] = [1, 2, 100, 20_000];

/// Returns the limit of an operation, if it has one. Tomorrow's limits are at most a twentieth above the measured costs. Today's limits of
/// operations on UTXO records are not here: they follow from the measured costs of the plain map.
pub fn limit(price: Price, family: &str, op: &str, size: u32) -> Option<u64> {
    let (today, tomorrow) = match (family, op, size) {
        ("blob", "store", 4_096) => (8_500, 17_400),
        ("blob", "store", 65_536) => (85_000, 237_000),
        ("blob", "store", 1_048_576) => (1_310_000, 3_700_000),
        ("blob", "read", 1_048_576) => (1_052_000, 2_400_000),
        // With memory that grows by a gibibyte.
        ("blob", "allocate_fresh", 1_048_576) => (3_200, 4_500),
        ("blob", "allocate_fresh" | "allocate_reuse", _) => (2_500, 3_800),
        ("blob", "release", _) => (4_000, 5_500),
        // Six splits and six joins: 8,000 for either.
        ("blob", "split_join", _) => (12_000, 12_200),
        ("blob", "open", _) => (1_450_000, 1_750_000),
        ("index", "insert", _) => (4_200, 9_000),
        ("index", "get", _) => (3_000, 10_100),
        ("index", "remove", _) => (4_000, 8_250),
        ("index", "key_insert", _) => (6_000, 9_400),
        ("index", "key_find", _) => (6_000, 15_400),
        ("index", "key_remove", _) => (4_000, 8_350),
        ("sweep", "prune", _) => (1_200, 1_710),
        ("chain", "append", 100) => (100_000, 138_000),
        ("chain", "idle firing", _) => (100_000, 105_000),
        ("chain", "refused at the door", _) => (16_000, 16_000),
        // A pruned record; and its share of a tick of a billion instructions that prunes 30,000.
        ("utxo", "prune", _) => (23_000, 37_900),
        ("utxo", "prune_scattered", _) => (25_000, 57_600),
        ("utxo", "prune_tick", _) => (1_000_000_000 / 30_000, 33_300),
        ("utxo", "nothing_new", _) => (50_000_000, 232_000),
        // The cost added to a message by counting it, and a scrape with 100 exporters.
        ("observe", "count", _) => (2_000, 2_000),
        ("observe", "scrape" | "scrape, longest names", _) => (5_000_000, 5_000_000),
        ("deletion", "lease", _) => (25_000, 34_700),
        ("deletion", "lease with records", _) => (48_000, 65_200),
        ("utxo", "create message", _) => (400_000, 260_000),
        ("utxo", "set_mined message", _) => (400_000, 180_000),
        ("utxo", "spend message", _) => (400_000, 104_000),
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
        "create" => [24_900, 25_600, 90_400, 11_000_000],
        "create_raw" => [76_800, 89_800, 1_580_000, 299_000_000],
        "spend" => [15_100, 16_700, 164_000, 28_200_000],
        "spend_one" => [12_800, 13_100, 23_200, 25_100],
        "unspend" => [16_100, 17_600, 158_000, 26_900_000],
        "set_mined" => [17_500, 18_000, 28_500, 63_900],
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
        assert_eq!(limit(Price::Tomorrow, "blob", "store", 4_096), Some(17_400));
        assert_eq!(limit(Price::Tomorrow, "utxo", "spend", 100), Some(164_000));
        assert_eq!(limit(Price::Today, "utxo", "spend", 100), None, "the plain map sets this limit");
        assert_eq!(limit(Price::Today, "utxo", "spend message", 1), Some(400_000));
        assert_eq!(limit(Price::Today, "blob", "read", 4_096), None);
    }
}
