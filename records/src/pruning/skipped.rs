//! Records that the defensive check of phase 2 keeps in a run, and one log line per reason (`pruner-service.md` 2.5).

use crate::utxo::Unstable;
use ic_coppice_interface::text::hex;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Transactions that a log line names.
const NAMED: usize = 10;

/// Records that a run keeps, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped([Kept; 3]);

/// Records kept for one reason: their number and the first ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    records: u64,
    first: Vec<ByteBuf>,
}

impl Skipped {
    /// Counts a record that is kept.
    pub fn note(&mut self, txid: &[u8; 32], why: &Unstable) {
        let reason = match why {
            Unstable::Unmined => 0,
            Unstable::Recent(_) => 1,
            Unstable::Absent => 2,
        };
        let kept = &mut self.0[reason];
        kept.records += 1;
        if kept.first.len() < NAMED {
            kept.first.push(ByteBuf::from(*txid));
        }
    }

    /// Returns a line for each reason that keeps at least one record.
    pub fn lines(&self) -> Vec<String> {
        let reasons = ["a spender is unmined", "a spender was mined too recently", "a spender has no record"];
        let there = self.0.iter().zip(reasons).filter(|(kept, _)| kept.records > 0);
        let line = |(kept, why): (&Kept, &str)| {
            let ids: Vec<String> = kept.first.iter().map(|txid| hex(txid)).collect();
            let more = kept.records - kept.first.len() as u64;
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let records = ic_coppice_interface::text::many(kept.records, "record");
            format!("Defensive skip: {records} kept because {why}: {}{more}", ids.join(", "))
        };
        there.map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_names_the_first_ten_and_counts_the_rest() {
        let mut skipped = Skipped::default();
        assert_eq!(skipped.lines(), [] as [String; 0]);
        skipped.note(&[1; 32], &Unstable::Absent);
        let one = "Defensive skip: 1 record kept because a spender has no record: ".to_string() + &"01".repeat(32);
        assert_eq!(skipped.lines(), std::slice::from_ref(&one));
        (0..10).for_each(|number| skipped.note(&[number; 32], &Unstable::Unmined));
        assert!(skipped.lines()[0].ends_with(&"09".repeat(32)), "{:?}", skipped.lines());
        (10..1_010u32).for_each(|number| skipped.note(&[number as u8; 32], &Unstable::Unmined));
        let lines = skipped.lines();
        assert!(
            lines[0].starts_with("Defensive skip: 1010 records kept because a spender is unmined: 0000"),
            "{lines:?}"
        );
        assert!(lines[0].ends_with(" and 1000 more") && lines[0].matches(", ").count() == 9, "{lines:?}");
        assert!(lines[0].len() < 1_000, "a line of the log holds it");
        assert_eq!(lines[1], one);
        skipped.note(&[3; 32], &Unstable::Recent(7));
        assert_eq!(skipped.lines().len(), 3);
    }
}
