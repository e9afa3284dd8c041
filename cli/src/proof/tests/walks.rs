//! The walk through a database.

use super::*;
use crate::proof::rows;
use crate::proof::walk::{Newest, Walked, Wrong, walk};
use std::cell::Cell;

fn walked(archive: &Archive) -> Result<Walked> {
    let passed = Cell::new(0);
    let walked = reader::read(&archive.url, |tx, _| walk(tx, vouch(canister()), || passed.set(passed.get() + 1)))?;
    assert_eq!(walked.blocks, passed.get());
    Ok(walked)
}

fn wrong(archive: &Archive) -> Wrong {
    walked(archive).unwrap_err().downcast().unwrap()
}

fn newest(number: u64) -> Option<Newest> {
    Some(Newest { number, time_ns: time_ns(number) })
}

#[test]
fn whole_chain_is_proved_up_to_its_last_certificate() {
    let archive = Archive::new(7..=2_600, &[7, 1_006, 1_007, 2_590]);
    let expected = Walked {
        first: Some(7),
        last: Some(2_600),
        blocks: 2_594,
        proved: 2_584,
        runs: 1,
        certificates: 4,
        newest_certificate: newest(2_590),
        unreached: vec![(2_591, 2_600)],
        ..Walked::default()
    };
    assert_eq!(walked(&archive).unwrap(), expected);
    // Without the seal before it the first block relies on nothing.
    archive.sql("DELETE FROM runs");
    let expected = Walked { proved: 2_583, unprovable: vec![(7, 7)], ..expected };
    assert_eq!(walked(&archive).unwrap(), expected);
}

#[test]
fn runs_end_at_gaps_and_at_lost_parents() {
    let archive = Archive::new(7..=40, &[8, 12, 24, 35]);
    archive.sql(
        "INSERT INTO gaps VALUES (2, 6, 'pruned'), (15, 17, 'pruned'), (18, 19, 'damaged'), (41, 41, 'damaged'); \
         DELETE FROM blocks WHERE number BETWEEN 15 AND 19; \
         UPDATE blocks SET parent_hash = NULL WHERE number IN (28, 29, 38)",
    );
    let expected = Walked {
        first: Some(7),
        last: Some(40),
        blocks: 29,
        // 7 to 12, 21 to 24, 30 to 35.
        proved: 16,
        runs: 5,
        certificates: 4,
        newest_certificate: newest(35),
        unreached: vec![(13, 14), (25, 27), (28, 28), (36, 37), (38, 40)],
        unprovable: vec![(20, 20), (28, 29), (38, 38)],
        gaps: vec![(2, 6), (15, 17), (18, 19), (41, 41)],
    };
    assert_eq!(walked(&archive).unwrap(), expected);
    archive.sql("DELETE FROM gaps WHERE first = 18");
    assert_eq!(wrong(&archive), Wrong::Missing(18));
    archive.sql("DELETE FROM gaps WHERE first = 15");
    assert_eq!(wrong(&archive), Wrong::Missing(15));
}

#[test]
fn first_wrong_row_is_named() {
    let archive = Archive::new(7..=40, &[8, 12, 24, 35]);
    let bytes = "x'0101010101010101010101010101010101010101010101010101010101010101'";
    for column in ["hash", "parent_hash", "body_sha256", "receipts_sha256", "index_sha256", "seal"] {
        archive.sql(&format!(
            "CREATE TABLE saved AS SELECT * FROM blocks; UPDATE blocks SET {column} = {bytes} WHERE number = 20"
        ));
        let expected = if column == "parent_hash" { Wrong::Parent(20) } else { Wrong::Seal(20) };
        assert_eq!(wrong(&archive), expected, "{column}");
        archive.sql("DELETE FROM blocks; INSERT INTO blocks SELECT * FROM saved; DROP TABLE saved");
    }
    for column in ["timestamp_secs", "body_length", "receipts_length", "index_length"] {
        archive.sql(&format!("UPDATE blocks SET {column} = {column} + 1 WHERE number = 20"));
        assert_eq!(wrong(&archive), Wrong::Seal(20), "{column}");
        archive.sql(&format!("UPDATE blocks SET {column} = {column} - 1 WHERE number = 20"));
    }
    walked(&archive).unwrap();
    archive.sql(&format!("INSERT INTO runs VALUES (20, {bytes})"));
    assert_eq!(wrong(&archive), Wrong::Before(20));
    archive.sql(&format!("DELETE FROM runs; INSERT INTO runs VALUES (7, {bytes})"));
    assert_eq!(wrong(&archive), Wrong::Seal(7));
    archive.sql("DELETE FROM runs; UPDATE blocks SET seal = x'00' WHERE number = 9");
    let why = crate::exit::why(&walked(&archive).unwrap_err());
    assert_eq!(why, "the row of block 9 is wrong: the seal has 1 bytes instead of 32");
}

#[test]
fn wrong_certificate_is_named() {
    let archive = Archive::new(7..=40, &[12, 24, 35]);
    // Certificates are exchanged.
    archive.sql("UPDATE certificates SET certificate = (SELECT certificate FROM certificates WHERE number = 12) WHERE number = 24");
    assert!(matches!(wrong(&archive), Wrong::Certificate(24, _)));
    archive.sql(
        "UPDATE certificates SET hash_tree = (SELECT hash_tree FROM certificates WHERE number = 12) WHERE number = 24",
    );
    assert_eq!(wrong(&archive), Wrong::Certificate(24, "it is of block 12".into()));
    archive.sql("DELETE FROM certificates WHERE number = 24");
    walked(&archive).unwrap();
    archive.sql("DELETE FROM blocks WHERE number = 35; INSERT INTO gaps VALUES (35, 35, 'damaged')");
    assert_eq!(wrong(&archive), Wrong::Alone(35));
    archive.sql("DELETE FROM certificates");
    assert_eq!(wrong(&archive), Wrong::Nothing);
    archive.sql("DELETE FROM blocks; DELETE FROM gaps");
    assert_eq!(walked(&archive).unwrap(), Walked::default());
}

/// Rows that fit each other, but not the certificate.
#[test]
fn forged_chain_is_refused_at_its_certificate() {
    let (archive, forged) = (Archive::new(7..=40, &[12, 24, 35]), Archive::new(15..=40, &[]));
    // The seals after block 14 are those of a chain that begins with block 15.
    let rows = reader::read(&forged.url, |tx, _| rows::blocks(tx, 15, 40)).unwrap();
    let mut database = archive.open();
    database
        .transaction(|tx| {
            for stored in &rows {
                let values = [(stored.header.number as i64).into(), stored.seal[..].into()];
                tx.execute("UPDATE blocks SET seal = $2 WHERE number = $1", &values)?;
            }
            // The run begins there.
            tx.execute("DELETE FROM blocks WHERE number = 14", &[])?;
            tx.execute("INSERT INTO gaps (first, last, why) VALUES (14, 14, 'x')", &[]).map(drop)
        })
        .unwrap();
    drop(database);
    assert_eq!(wrong(&archive), Wrong::Certified { block: 24, since: 15 });
}
