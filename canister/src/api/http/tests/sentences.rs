//! Grammar of every sentence of the page and of `health`, with counts of zero, one and many. `cargo test -- --nocapture sentence` prints
//! them.

use super::*;
use candid::Principal;

/// Returns the visible text of a page, one line per element.
fn text(page: &str) -> Vec<String> {
    let body = page.split_once("<body").unwrap().1;
    let mut lines = vec![String::new()];
    // Elements within a sentence.
    let within = ["data", "b", "code", "span", "time", "i", "a"];
    let mut rest = body.split_once('>').unwrap().1;
    while let Some((before, after)) = rest.split_once('<') {
        lines.last_mut().unwrap().push_str(before);
        let (tag, next) = after.split_once('>').unwrap();
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if !within.contains(&name) {
            lines.push(String::new());
        }
        rest = next;
    }
    let unescaped =
        |line: &String| line.replace("&quot;", "\"").replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
    lines.iter().map(|line| unescaped(line).trim().to_string()).filter(|line| !line.is_empty()).collect()
}

/// Returns the part of a sentence with faulty grammar, or `None`.
fn fault(sentence: &str) -> Option<String> {
    let words: Vec<&str> = sentence.split_whitespace().collect();
    for pair in words.windows(2) {
        let noun = pair[1].trim_end_matches(['.', ',', ';', ':', ')']);
        let plural = noun.len() > 2 && noun.ends_with('s') && !["is", "was", "has"].contains(&noun);
        if pair[0] == "1" && (plural || ["are", "were", "have"].contains(&noun)) {
            return Some(pair.join(" "));
        }
    }
    let odd = ["0 warnings", "prune 0 ", "below block 0 ", "  ", " ,", " .", "..", "{", "None("];
    odd.into_iter().find(|odd| sentence.contains(odd) && !sentence.contains("icp canister")).map(String::from)
}

fn append(range: std::ops::Range<u64>, body: usize) {
    for number in range {
        mutate(|state| {
            let (block, admission) = (
                ic_coppice_chain::testing::block(number, &[ic_coppice_chain::testing::id(number)], body),
                state.admission(),
            );
            state.chain.append(&mut state.blobs, &block, &admission, platform::time_secs()).unwrap();
        });
    }
}

fn register(number: u8) {
    let exporter = Exporter { name: format!("archive-{number}"), principal: Principal::from_slice(&[100 + number]) };
    mutate(|state| state.register_exporter(&exporter)).unwrap();
}

fn set_policy(change: PrunePolicyArg) {
    mutate(|state| state.set_prune_policy(&PrunePolicyArg { min_kept_blocks: Some(0), ..change })).unwrap();
}

fn pass(secs: u64) {
    native::with(|world| world.time_ns += secs * 1_000_000_000);
    mutate(|state| state.tick(false));
    mutate(crate::operation::sampling::note);
}

/// Reads page and `health`, prints the sentences, and adds grammatical faults to `faults`.
fn read_all(what: &str, faults: &mut Vec<String>) -> String {
    let page = get("/").1;
    let mut sentences = text(&page);
    let problems = read(seen).problems;
    sentences.extend(problems.iter().flat_map(|problem| [problem.message.clone(), problem.action.clone()]));
    println!("== {what}\n{}\n", sentences.join("\n"));
    faults.extend(sentences.iter().filter_map(|said| fault(said).map(|odd| format!("{what}: \"{odd}\" in: {said}"))));
    sentences.join("\n")
}

#[test]
fn sentences_are_grammatical_with_zero_one_and_many() {
    let mut faults = Vec::new();
    new();
    read_all("new", &mut faults);
    for many in [0u64, 1, 2, 30] {
        fresh();
        mutate(|state| {
            state.set_config("set_config", &ConfigChange { public_logs: Some(many == 1), ..Default::default() })
        })
        .unwrap();
        append(0..1 + many, 10);
        read_all(&format!("{many} blocks behind the head, no policy"), &mut faults);
        set_policy(PrunePolicyArg {
            retain_blocks: Some(1.max(many / 3)),
            retain_days: Some(many),
            target_bytes: Some((many % 2) << 30),
            max_ops_per_tick: Some(1 + many),
            max_instructions_per_tick: Some(1 + many * 1_000),
            timer_interval_secs: Some(1 + many),
            ..Default::default()
        });
        read_all(&format!("{many} blocks behind the head are due, or some of them"), &mut faults);
        (0..many.min(25)).for_each(|number| register(number as u8));
        let held = read_all(&format!("{many} exporters that have acknowledged nothing"), &mut faults);
        if many > 1 {
            assert!(
                held.contains("None of them may be pruned: they are held by exporter archive-0.")
                    && held.contains("nothing more may be pruned"),
                "{held}"
            );
            assert!(held.contains("The next tick prunes nothing."), "{held}");
        }
        pass(90_000);
        read_all("the same for a day", &mut faults);
        for number in 0..many.min(25) {
            let grant = Grant { principal: Principal::from_slice(&[100 + number as u8]), role: Role::Exporter };
            mutate(|state| state.revoke_role(&grant));
            if number < 3 {
                read_all(&format!("{} of them without a key", number + 1), &mut faults);
            }
        }
        mutate(|state| state.pruner.freed_outside_runs(&state.chain, &state.blobs, many));
        read_all(&format!("{many} faults"), &mut faults);
        mutate(|state| state.acknowledge_faults(many));
        let off = PrunePolicyArg { pruning_enabled: Some(false), ..PrunePolicyArg::default() };
        mutate(|state| state.set_prune_policy(&off)).unwrap();
        read_all("the same acknowledged, and pruning is off", &mut faults);
        mutate(|state| state.set_deletions_stopped(true)).unwrap();
        read_all("deletions are stopped", &mut faults);
        mutate(|state| state.utxo_pruner().0.notify_block(10 + many as u32, false, false)).unwrap();
        for number in 0..many {
            let name =
                BlobName { blob_key: vec![number as u8].into(), file_type: "tx".into(), store_type: StoreType::Block };
            let row =
                mutate(|state| state.records.deletions.schedule(&(&name).into(), 1, platform::time_ns())).unwrap();
            mutate(|state| state.records.deletions.increment(row.id, 1, platform::time_ns())).unwrap();
        }
        read_all(&format!("{many} external blobs were given up"), &mut faults);
        native::with(|world| world.liquid_cycles = 500_000_000_000);
        read_all("few cycles", &mut faults);
        native::with(|world| world.liquid_cycles = 5);
        read_all("no cycles", &mut faults);
    }
    // An upload of one chunk, and of many.
    for chunks in [1u64, 7] {
        fresh();
        append(0..1, 10);
        let hash = |number: u64| ic_coppice_chain::testing::block(number, &[], 10).hash;
        let digest = || ByteBuf::from([0; 32]);
        let begin = BeginBlock {
            number: 1,
            hash: hash(1),
            parent_hash: hash(0),
            timestamp_secs: 1,
            lengths: BySegment { body: 100 * chunks, receipts: 0, index: 0 },
            sha256: BySegment { body: digest(), receipts: digest(), index: digest() },
            chunk_size: 100,
        };
        let admission = read(State::admission);
        mutate(|state| {
            state.chain.begin(&mut state.blobs, &begin, platform::caller(), &admission, platform::time_secs())
        })
        .unwrap();
        read_all(&format!("an upload of {chunks} chunks"), &mut faults);
    }
    // Emergency water, because one exporter holds blocks back.
    fresh();
    register(0);
    set_policy(PrunePolicyArg { target_bytes: Some(40 << 20), retain_blocks: Some(100), ..Default::default() });
    let status = || read(|state| state.pruner.status(&state.chain, &state.blobs, &state.constraints()));
    let marks = status().water_marks.unwrap();
    let mut number = 0;
    while status().capacity_bytes < marks.emergency {
        append(number..number + 1, 200_000);
        number += 1;
    }
    let said = read_all("emergency water", &mut faults);
    assert!(said.contains("no room is left") && !said.contains("not coming nearer"), "{said}");
    assert!(said.contains("Start or repair exporter archive-0"), "{said}");
    // A head whose header cannot be read.
    mutate(|state| state.chain.poison_header(number - 1));
    read_all("a head that cannot be read", &mut faults);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn singular_count_with_plural_noun_is_found() {
    for odd in ["1 blocks behind", "and 1 warnings.", "1 are left", "The next tick would prune 0 blocks", "a  gap"] {
        assert!(fault(odd).is_some(), "{odd}");
    }
    for good in ["1 block is", "11 blocks", "1 is to be deleted", "1 was given up", "0 s ago", "of 1 chunk"] {
        assert_eq!(fault(good), None);
    }
}
