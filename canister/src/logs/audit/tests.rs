//! Unit tests of the audit log on its own.

use super::entry::Entry;
use super::*;
use crate::memory;
use crate::platform::native;
use candid::Principal;
use entry::MOST;
use ic_coppice_interface::AuditEntry;
use ring::HOUR;

const NOON: u64 = 100 * HOUR;

fn log() -> AuditLog {
    let cells = ic_coppice_storage::testing::cells();
    AuditLog::open(cells).unwrap()
}

fn fresh() -> AuditLog {
    native::reset();
    memory::forget();
    log()
}

fn of(byte: u8) -> Principal {
    Principal::from_slice(&[byte; 29])
}

fn change(name: &str, before: &str, after: &str) -> Change {
    Change { name: name.into(), before: Some(before.into()), after: Some(after.into()) }
}

/// A call that changes a field.
fn call<'a>(caller: u8, method: &'a str, time: u64) -> Call<'a> {
    Call { time, caller: of(caller), method, argument: "7", result: "Ok" }
}

fn all(audit: &AuditLog) -> Vec<AuditEntry> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = audit.page(cursor, 77);
        assert!(page.entries.len() <= 77);
        found.extend(page.entries);
        cursor = page.cursor;
        if cursor.is_none() {
            return found;
        }
    }
}

fn numbers(audit: &AuditLog) -> Vec<u64> {
    all(audit).iter().map(|entry| entry.number).collect()
}

#[test]
fn rings_keep_their_last_entries_over_upgrades_and_page_in_one_order() {
    let mut audit = fresh();
    assert_eq!(audit.page(None, 0), AuditPage { entries: vec![], cursor: None });
    // In turn an admin's, an operator's and an unchanged call, each in an hour of its own.
    for number in 0..6_000u64 {
        let changes = if number % 3 == 2 { vec![] } else { vec![change("a", "1", "2")] };
        audit.note(number % 3 == 0, &call((number % 3) as u8, "set", number * HOUR), changes);
        if number % 700 == 0 {
            memory::forget();
            audit = log();
        }
    }
    let kept = |number: &u64| *number >= if number % 3 == 2 { 4_500 } else { 3_000 };
    assert_eq!(numbers(&audit), (0..6_000).rev().filter(kept).collect::<Vec<_>>());
    // A limit of 0 means the default, a huge limit the maximum; a cursor may be any number.
    let page = |cursor, limit| audit.page(cursor, limit);
    assert_eq!((page(None, 0).entries.len(), page(None, u32::MAX).entries.len()), (100, 250));
    assert_eq!((page(None, 1).entries[0].number, page(None, 1).cursor), (5_999, Some(5_999)));
    assert_eq!(page(Some(u64::MAX), 1), page(None, 1));
    assert_eq!((page(Some(3_001), 5).entries[0].number, page(Some(3_001), 5).cursor), (3_000, None));
    for cursor in [0, 5, 3_000] {
        assert_eq!(page(Some(cursor), 5), AuditPage { entries: vec![], cursor: None });
    }
}

#[test]
fn calls_within_an_hour_share_an_entry_with_the_first_and_last_state() {
    let mut audit = fresh();
    audit.note(false, &call(1, "set", NOON), vec![change("a", "1", "2")]);
    audit.note(false, &Call { argument: "8", ..call(1, "set", NOON + 9) }, vec![change("b", "5", "6")]);
    memory::forget();
    audit = log();
    audit.note(false, &call(1, "set", NOON + HOUR - 1), vec![change("a", "2", "3")]);
    let entry = all(&audit).remove(0);
    assert_eq!((entry.first_time_ns, entry.last_time_ns, entry.calls), (NOON, NOON + HOUR - 1, 3));
    assert_eq!([entry.before.as_str(), &entry.after, &entry.argument], ["a = 1; b = 5", "a = 3; b = 6", "7"]);
    // Calls of another method, another caller or another ring, and calls an hour later, get entries of their own.
    audit.note(false, &call(1, "put", NOON), vec![change("a", "3", "4")]);
    audit.note(false, &call(2, "set", NOON), vec![change("a", "4", "5")]);
    audit.note(true, &call(1, "set", NOON), vec![change("a", "5", "6")]);
    audit.note(false, &Call { result: "Denied", ..call(1, "set", NOON) }, vec![]);
    audit.note(false, &call(1, "set", NOON + HOUR), vec![change("a", "6", "7")]);
    audit.note(false, &call(1, "set", NOON + HOUR + 1), vec![change("a", "7", "6")]);
    let entries = all(&audit);
    assert_eq!(entries.iter().map(|entry| entry.calls).collect::<Vec<_>>(), [2, 1, 1, 1, 1, 3]);
    assert_eq!([entries[0].before.as_str(), &entries[0].after], ["a = 6", "a = 6"], "there and back is a change");
    assert_eq!([entries[1].result.as_str(), &entries[1].before, &entries[1].after], ["Denied", "", ""]);
}

#[test]
fn clock_jump_of_an_hour_starts_a_new_entry() {
    let mut audit = fresh();
    let mut at = |time| {
        audit.note(false, &call(1, "set", time), vec![change("a", "1", "2")]);
        all(&audit).iter().map(|entry| (entry.first_time_ns, entry.last_time_ns, entry.calls)).collect::<Vec<_>>()
    };
    assert_eq!(at(NOON), [(NOON, NOON, 1)]);
    assert_eq!(at(NOON - HOUR + 1), [(NOON, NOON - HOUR + 1, 2)], "less than an hour away");
    let back = NOON - 9 * HOUR;
    assert_eq!(at(back), [(back, back, 1), (NOON, NOON - HOUR + 1, 2)]);
    assert_eq!(at(back + 5)[0], (back, back + 5, 2));
    assert_eq!(at(NOON + 5)[0], (NOON + 5, NOON + 5, 1), "an entry is never added to across another one's hour");
    assert_eq!(at(u64::MAX)[0], (u64::MAX, u64::MAX, 1));
    assert_eq!(at(0)[0], (0, 0, 1));
}

/// However many calls one caller makes, entries of others stay, and finding an entry reads at most an hour's heads.
#[test]
fn a_flood_of_calls_overwrites_no_entry_of_others() {
    let mut audit = fresh();
    let methods: Vec<String> = (0..30).map(|method| format!("method_{method}")).collect();
    for number in 0..100 {
        audit.note(number % 2 == 0, &call(9, "set", number * HOUR), vec![change("a", "1", "2")]);
    }
    let before = numbers(&audit);
    for round in 0..10_000u64 {
        let (method, time) = (&methods[round as usize % 30], 100 * HOUR + round * (HOUR / 10_000));
        let changes = [vec![], vec![change("a", "1", "2")], vec![change("a", "2", "1")]];
        audit.note(false, &call(1, method, time), changes[(round / 30 % 3) as usize].clone());
    }
    let after = all(&audit);
    assert_eq!(after.len(), 160);
    assert_eq!(after[60..].iter().map(|entry| entry.number).collect::<Vec<_>>(), before);
    assert_eq!(after[..60].iter().map(|entry| entry.calls).sum::<u64>(), 10_000);
    let flood = call(1, "method_0", 101 * HOUR - 1);
    let (_, touched) = native::touching(|| audit.note(false, &flood, vec![change("a", "1", "2")]));
    assert!(touched.accessed.len() <= 33, "{} pages", touched.accessed.len());
}

#[test]
fn long_text_is_cut_between_characters_and_excess_changes_are_left_out() {
    let mut audit = fresh();
    let [long, wide] = ["x".repeat(5_000), "ß".repeat(5_000)];
    for (caller, text) in [&long, &wide].into_iter().enumerate() {
        let call = Call { time: NOON, caller: of(caller as u8), method: text, argument: text, result: text };
        for digit in 0..8 {
            audit.note(false, &call, vec![change(&format!("{digit}{text}"), text, &text[2..])]);
        }
        let mut entries = all(&audit);
        let entry = entries.remove(0);
        assert_eq!((entry.calls, entries[0].calls), (4, 4), "a cut method is found again; four changes fill an entry");
        for (found, most) in [(&entry.method, 48), (&entry.argument, 512), (&entry.result, 384)] {
            assert!(found.len() <= most && found.len() + 4 > most, "{} of {most}", found.len());
            assert!(found.strip_suffix('…').is_some_and(|begin| text.starts_with(begin)), "{found}");
        }
        for found in [entry.before, entry.after] {
            let fields: Vec<&str> = found.split("; ").collect();
            assert_eq!(fields.len(), 4);
            assert!(fields[0].starts_with('4') && fields[3].starts_with('7'), "{fields:?}");
        }
    }
    let mut entry = Entry::new(&call(1, "set", 0));
    entry.add(&call(1, "set", 0), (0..1_000).map(|name| change(&name.to_string(), "a", "b")).collect());
    assert!(entry.encode().len() <= MOST);
}

/// Forty grants by a stolen key hide no grant: full entries are followed by others, and the last one keeps the newest changes.
#[test]
fn full_entry_starts_another_up_to_four_in_an_hour() {
    let mut audit = fresh();
    let name = |grant: usize| format!("{grant:03}{}", "x".repeat(100));
    for grant in 0..400 {
        audit.note(true, &call(1, "grant_role", NOON + grant as u64), vec![change(&name(grant), "none", "Admin")]);
    }
    let entries = all(&audit);
    assert_eq!((entries.len(), entries.iter().map(|entry| entry.calls).sum::<u64>()), (4, 400));
    let shown = |entry: &AuditEntry, grant: usize| entry.after.contains(&name(grant));
    let whole: usize = entries[1..].iter().map(|entry| entry.calls as usize).sum();
    assert!(whole > 60, "{whole}");
    assert!((0..whole).all(|grant| entries[1..].iter().any(|entry| shown(entry, grant))), "the first ones");
    assert!(shown(&entries[0], 399) && shown(&entries[0], 390) && entries[0].after.ends_with('…'), "the last ones");
    assert!(entries[1..].iter().all(|entry| !entry.after.contains('…')));
    audit.note(true, &call(1, "grant_role", NOON + HOUR), vec![change(&name(0), "Admin", "none")]);
    assert_eq!(all(&audit).len(), 5, "another hour begins anew");
}

/// A ring that got no memory has gone round, and gets memory while an older entry is joined: every entry stays where it is found.
#[test]
fn call_that_joins_an_older_entry_does_not_move_the_others() {
    let mut audit = fresh();
    let arena = memory::arena().unwrap();
    memory::set_max_pages(memory::billed_pages());
    let taken: Vec<u64> =
        std::iter::from_fn(|| arena.take_granules(ic_coppice_chain::owners::KEY_INDEX, 1).ok()).collect();
    let note = |audit: &mut AuditLog, caller: u8| {
        audit.note(true, &call(caller, "set", NOON), vec![change("a", "1", "2")]);
    };
    (0..20).for_each(|caller| note(&mut audit, caller));
    let kept: Vec<u64> = (5..20).rev().collect();
    assert_eq!(numbers(&audit), kept, "a leaf has 15 entries");
    taken.into_iter().for_each(|granule| arena.give_granules(ic_coppice_chain::owners::KEY_INDEX, granule, 1));
    note(&mut audit, 15);
    assert_eq!(numbers(&audit), kept);
    assert_eq!(all(&audit).into_iter().find(|entry| entry.number == 15).unwrap().calls, 2);
    // The ring grows after its round.
    (20..45).for_each(|caller| note(&mut audit, caller));
    assert_eq!(numbers(&audit), (15..45).rev().collect::<Vec<_>>());
}

#[test]
fn damaged_entry_is_left_out_and_another_version_is_refused() {
    let mut audit = fresh();
    (0..5).for_each(|hour| audit.note(true, &call(1, "set", hour * HOUR), vec![change("a", "1", "2")]));
    let (cells, entries) =
        (ic_coppice_storage::testing::cells(), ic_coppice_storage::testing::space(places::AUDIT_RINGS[ADMINS]));
    let slot = audit.rings[ADMINS].slots.slot(2);
    // Damage to the number, the length and the entry.
    for (byte, wrong) in [(0, 9), (34, 1), (36, 0xFF)] {
        let [right] = entries.read(slot + byte);
        entries.write(slot + byte, &[wrong]);
        assert_eq!(numbers(&audit), [4, 3, 1, 0], "byte {byte}");
        audit.note(true, &call(1, "set", 4 * HOUR), vec![change("a", "1", "2")]);
        entries.write(slot + byte, &[right]);
    }
    assert_eq!(numbers(&audit).len(), 5);
    for (byte, wrong) in [(0, b'X'), (4, 0), (4, 1), (5, 1)] {
        let [right] = cells.read(places::AUDIT + byte);
        cells.write(places::AUDIT + byte, &[wrong]);
        assert!(AuditLog::open(ic_coppice_storage::testing::cells()).is_err(), "byte {byte}");
        cells.write(places::AUDIT + byte, &[right]);
    }
}

/// The layout, byte by byte.
#[test]
fn the_layout_is_what_it_was() {
    let mut audit = fresh();
    audit.note(true, &call(1, "set", 0x0102), vec![change("a", "1", "2")]);
    audit.note(false, &call(1, "set", 0x0102), vec![change("a", "1", "2")]);
    audit.note(false, &call(1, "set", 0x0102), vec![]);
    let cells = ic_coppice_storage::testing::cells();
    assert_eq!((places::AUDIT, places::HISTORY), (184_320, 188_416));
    let header: [u8; HEADER] = cells.read(places::AUDIT);
    assert_eq!(header[..16], *b"CPAU\x03\0\0\0\x03\0\0\0\0\0\0\0");
    assert_eq!(header[16..].chunks(8).map(|written| written[0]).collect::<Vec<_>>(), [1, 1, 1]);
    for (number, space) in places::AUDIT_RINGS.into_iter().enumerate() {
        let (entries, slot) = (ic_coppice_storage::testing::space(space), 4_096);
        let head: [u8; 36] = entries.read(slot);
        assert_eq!((head[..8].to_vec(), head[8], head[16], head[17]), (vec![0; 8], number as u8, 2, 1));
        assert_eq!(head[24..32], call(1, "set", 0).key().to_le_bytes());
        let entry: [u8; 256] = entries.read(slot + 36);
        let len = usize::from(u16::from_le_bytes([head[32], head[33]]));
        let entry: ciborium::Value = ciborium::from_reader(&entry[..len]).unwrap();
        let names: Vec<&str> = entry.as_map().unwrap().iter().map(|(name, _)| name.as_text().unwrap()).collect();
        assert_eq!(names, ["caller", "method", "calls", "last", "argument", "result", "changes", "more"]);
    }
}
