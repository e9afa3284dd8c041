//! False or impossible answers of the canister: nothing changes, or a gap is recorded and reported.

use super::*;

#[test]
fn late_replica_is_asked_again_and_changes_nothing() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 20, 30]));
    let url = server.fresh();
    let mut engine = engine(&client, &url, options());
    engine.settle().unwrap();
    let before = dump(&url);
    let late = {
        let mut chain = client.transport().chain();
        let late = chain.certificate();
        chain.now += 60;
        late
    };
    engine.settle().unwrap();
    client.transport().chain().append(1, &[40]);
    client.transport().chain().lie_of_certificate = Some(Box::new(move |_, _| Some(late.clone())));
    let notes = engine.settle().unwrap();
    assert!(notes.iter().all(|note| note.contains("a later one")) && notes.len() == 40, "{notes:?}");
    assert_eq!((dump(&url), engine.figures().refuted), (before, 40));
    client.transport().chain().lie_of_certificate = None;
    assert_eq!(engine.settle().unwrap(), Vec::<String>::new());
    assert_eq!((engine.tip(), engine.figures().reorgs), (Some(13), 0));
}

/// Five minutes before or after the reader's clock.
#[test]
fn certificate_far_from_the_clock_is_refused_and_named() {
    for (off, is_accepted) in [(-301_i64, false), (-300, true), (300, true), (301, false)] {
        let (mut server, client) = (Sqlite::new(), chain(&[10]));
        let url = server.fresh();
        client.transport().chain().lie_of_certificate =
            Some(Box::new(move |chain, _| Some(chain.certificate_at(chain.now.saturating_add_signed(off)))));
        let mut engine = engine(&client, &url, options());
        let notes = engine.settle().unwrap();
        assert_eq!((engine.tip().is_some(), notes.is_empty()), (is_accepted, is_accepted), "{off}: {notes:?}");
        assert!(notes.iter().all(|note| note.contains("the clock is off")), "{off}: {notes:?}");
    }
}

#[test]
fn blocks_pruned_before_indexing_are_reported_as_a_gap() {
    for corrupt in [false, true] {
        let (mut server, client) = (Sqlite::new(), chain(&[10; 5]));
        let url = server.fresh();
        let mut reader = engine(&client, &url, Options { ack_every: None, skip_damaged: true, ..options() });
        reader.settle().unwrap();
        client.transport().chain().append(1, &[20; 10]);
        client.transport().chain().prune_before(20);
        if corrupt {
            // The copy begins anew with an unreadable block.
            client.transport().chain().corrupt.insert(20);
        }
        let notes = reader.settle().unwrap();
        assert!(notes[0].contains("block 15 was pruned before it was indexed"), "{notes:?}");
        let gap = if corrupt { 6 } else { 5 };
        let held = reader.store().held().unwrap();
        assert_eq!((held.first, held.last, held.blocks, held.gap_blocks), (Some(10), Some(24), 15 - gap, gap));
        assert_eq!(reader.figures().gap_blocks, gap);
        // Stored blocks stay, although the canister has pruned them.
        assert!(reader.store().hash_of(14).unwrap().is_some());
        // A replica may claim any number, and a lie ends no run.
        assert_eq!(reader.store().hash_of(u64::MAX).unwrap(), None);
        assert_eq!(reader.store().seal_of(1 << 63).unwrap(), None);
    }
}

#[test]
fn ancestor_with_another_hash_changes_nothing() {
    let (mut server, client) = (Sqlite::new(), chain(&[10; 5]));
    let url = server.fresh();
    engine(&client, &url, options()).settle().unwrap();
    let before = dump(&url);
    // The canister was installed anew: other blocks with the same numbers, and its own rollback.
    let anew = Client::new(Fake::new());
    anew.transport().chain().append(9, &[10; 5]);
    anew.transport().chain().roll_back_to(12);
    anew.transport().chain().append(8, &[10; 5]);
    let mut engine = engine(&anew, &url, Options { ack_every: None, ..options() });
    let error = engine.settle().unwrap_err().to_string();
    assert!(error.contains("block 12") && error.contains("Nothing was changed"), "{error}");
    assert_eq!(dump(&url), before);
}

#[test]
fn invalid_pages_change_nothing() {
    type Lie = fn(&mut ExportPage);
    let lies: [(&str, Lie); 4] = [
        ("block 12 came instead", |page| drop(page.chunks.drain(..3))),
        ("segment 1 comes next", |page| page.chunks.swap(1, 2)),
        ("not of block 11", |page| page.chunks[1].timestamp_secs += 1),
        ("a parent other than", |page| page.chunks[0].parent_hash = Some([9; 32].into())),
    ];
    for (why, lie) in lies {
        let (mut server, client) = (Sqlite::new(), chain(&[10]));
        let url = server.fresh();
        engine(&client, &url, options()).settle().unwrap();
        client.transport().chain().append(1, &[20, 30]);
        let before = dump(&url);
        client.transport().chain().garble = Some(Box::new(move |answer| drop(answer.as_mut().map(lie))));
        let mut running = engine(&client, &url, options());
        let notes = running.settle().unwrap();
        assert!(notes.len() == 40 && notes.iter().any(|note| note.contains(why)), "{notes:?} is not {why}");
        assert!(running.figures().refuted > 0 && dump(&url) == before, "{why}");
        drop(running);
        client.transport().chain().garble = None;
        engine(&client, &url, options()).settle().unwrap();
    }
}

#[test]
fn wrong_byte_is_detected_in_every_segment() {
    for (body, number) in [(20, 11), (3_000, 11)] {
        for segment in 0..3 {
            let (mut server, client) = (Sqlite::new(), chain(&[10, body, 30]));
            let url = server.fresh();
            let flip = move |page: &mut ExportPage| {
                let chunks = page.chunks.iter_mut().filter(|chunk| (chunk.number, chunk.segment) == (number, segment));
                chunks.filter(|chunk| chunk.offset == 0).for_each(|chunk| chunk.bytes[0] ^= 1);
            };
            client.transport().chain().garble = Some(Box::new(move |answer| drop(answer.as_mut().map(flip))));
            let error = engine(&client, &url, options()).settle().unwrap_err().to_string();
            assert!(error.contains("block 11 has missed its proved digest 10 times"), "{error}");
            assert_eq!(client.transport().chain().bound, 0, "nothing of this run was acknowledged");
            // The block is asked for again from its start.
            client.transport().chain().garble = None;
            let mut honest = engine(&client, &url, options());
            honest.settle().unwrap();
            assert_eq!((honest.figures().blocks, honest.tip()), (2, Some(12)));
        }
    }
}

#[test]
fn damaged_blocks_are_skipped_with_skip_damaged() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 20, 3_000, 30, 5_000, 40]));
    {
        let mut chain = client.transport().chain();
        chain.corrupt.insert(11);
        chain.blocks.get_mut(&14).unwrap().segments[2] = vec![9; 40];
        let digest = crate::feed::sha256(&[9; 40]).to_vec();
        chain.blocks.get_mut(&14).unwrap().digests[2] = digest;
    }
    let url = server.fresh();
    let error = engine(&client, &url, options()).settle().unwrap_err().to_string();
    assert!(error.contains("block 11") && error.contains("--skip-damaged"), "{error}");
    let mut engine = engine(&client, &url, Options { skip_damaged: true, ..options() });
    let notes = engine.settle().unwrap();
    assert_eq!(notes.len(), 2, "{notes:?}");
    let figures = engine.figures();
    assert_eq!((figures.blocks, figures.gaps, figures.gap_blocks, figures.lag), (3, 2, 2, Some(0)));
    assert_eq!(client.transport().chain().bound, 16);
    let held = engine.store().held().unwrap();
    assert_eq!((held.blocks, held.gap_blocks), (4, 2));
    // The engine waits at a damaged head, and skips it when another block follows.
    client.transport().chain().append(1, &[10]);
    client.transport().chain().corrupt.insert(16);
    let notes = engine.settle().unwrap();
    assert!(notes.iter().any(|note| note.contains("cannot read its head, block 16")), "{notes:?}");
    client.transport().chain().append(1, &[10]);
    assert_eq!(engine.settle().unwrap().len(), 1);
    assert_eq!(engine.tip(), Some(17));
}

#[test]
fn position_that_the_subnet_does_not_know_changes_nothing() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 20]));
    let url = server.fresh();
    engine(&client, &url, options()).settle().unwrap();
    let before = dump(&url);
    let mut chain = client.transport().chain();
    chain.roll_back_to(10);
    chain.append(2, &[5; 9]);
    chain.prune_before(15);
    chain.garble = Some(Box::new(|answer| *answer = Err(ExportError::BadCursor { why: "no such block".into() })));
    drop(chain);
    let error = engine(&client, &url, options()).settle().unwrap_err().to_string();
    assert!(error.contains("no such block") && error.contains("Nothing was changed"), "{error}");
    assert_eq!(dump(&url), before);
}
