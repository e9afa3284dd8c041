//! The index and its peers: a `StableBTreeMap`, and maps on the heap in eight generations. Measures single operations, and whole look-ups
//! including Candid.

use super::figure::{Figure, Row, Whole};
use super::subject::{Bench, Each, IDS, Subject};
use anyhow::{Result, anyhow, ensure};
use candid::Encode;
use ic_coppice_host::{Checkpoint, Execution};
use ic_coppice_interface::{ReadError, TransactionLocation};
use serde_bytes::ByteBuf;

const NUMBERS: [u64; 3] = [10_000, 100_000, 1_000_000];
const OPS: [&str; 3] = ["insert", "get", "remove"];
const KEY_OPS: [&str; 3] = ["key_insert", "key_find", "key_remove"];
/// Look-ups averaged.
const LOOK_UPS: u64 = 50;
/// Generations of the heap index that the blocks before the newest one fill.
const FULL_GENERATIONS: u64 = 7;
/// Instructions that the platform charges for each 4 KiB page of the heap that a message changed.
const HEAP_PAGE: u64 = 1_000;

/// Measures the index, its secondary keys, and the peers.
pub fn index(subject: &Subject, each: Each) -> Result<()> {
    for n in NUMBERS {
        for what in ["index", "btree", "heap"] {
            let bench = Bench::start(subject, &format!("{what}: {n} entries"))?;
            bench.fill("bench_fill_index", (n,))?;
            match what {
                "btree" => bench.fill("bench_fill_btree", (n,))?,
                "heap" => bench.rows(|bench| Ok(vec![bench.rebuild(n)?]))?.into_iter().try_for_each(&mut *each)?,
                _ => {}
            }
            let bytes = bench.call::<u64>("bench_index_bytes", (what,))? as f64 / n as f64;
            let from = bench.host.checkpoint();
            for op in OPS {
                each(bench.of_index(&from, what, op, n, (op == "insert").then_some(bytes))?)?;
            }
            bench.host.restore(&from);
            bench.rows(|bench| Ok(vec![bench.look_up(what, n)?]))?.into_iter().try_for_each(&mut *each)?;
        }
        let bench = Bench::start(subject, &format!("index: {n} secondary keys"))?;
        bench.fill("bench_fill_keys", (n,))?;
        let from = bench.host.checkpoint();
        for op in KEY_OPS {
            each(bench.of_index(&from, "index", op, n, None)?)?;
        }
    }
    Ok(())
}

/// Returns the id that the bench wasm entered as number `i`.
fn id(i: u64) -> Vec<u8> {
    let mut x = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let words = [(); 4].map(|()| {
        x ^= x >> 29;
        x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x.to_be_bytes()
    });
    words.concat()
}

/// Returns the average cost of an operation whose message changes heap pages: a structure on the heap pays for its memory with those pages.
fn with_heap_pages(instructions: u64, rounds: u64, run: &Execution) -> Whole {
    let pages = run.heap_pages_written;
    Whole { heap_pages: pages / rounds, charged: instructions + HEAP_PAGE * pages / rounds }
}

impl Bench {
    fn of_index(
        &self,
        from: &Checkpoint,
        what: &'static str,
        op: &'static str,
        n: u64,
        bytes: Option<f64>,
    ) -> Result<Row> {
        let rounds = match (what, op) {
            ("btree", _) | ("heap", "get") => 1_000,
            // Removes whole generations.
            ("heap", "remove") => (n / IDS).div_ceil(FULL_GENERATIONS) * IDS,
            _ => IDS,
        };
        let both = self.measure(from, ("index", what, op), 32, rounds, n)?;
        let [today, tomorrow] = both.map(|(figure, run)| {
            let pays_for_heap = (what, op) == ("heap", "insert");
            let whole = pays_for_heap.then(|| with_heap_pages(figure.instructions, rounds, &run));
            Figure { whole: whole.or(figure.whole), bytes, ..figure }
        });
        Row::of(today, &tomorrow)
    }

    /// Measures an upgrade's instructions per id of the heap index.
    fn rebuild(&self, n: u64) -> Result<Figure> {
        let (figure, run) = self.run(("bench_rebuild_heap", (n,)), ("index", "rebuild"), 32, n, n)?;
        let whole = Some(with_heap_pages(figure.instructions, n, &run));
        Ok(Figure { peer: Some("heap"), whole, ..figure })
    }

    /// Measures a query for a transaction's location.
    fn look_up(&self, what: &'static str, n: u64) -> Result<Figure> {
        let method = match what {
            "btree" => "bench_locate_btree",
            "heap" => "bench_locate_heap",
            _ => "get_transaction_location",
        };
        let mut runs: Vec<Execution> = Vec::new();
        for i in (0..n).step_by((n / LOOK_UPS) as usize) {
            let arg = Encode!(&ByteBuf::from(id(i)))?;
            let (location, run) = self.query::<Result<TransactionLocation, ReadError>>(method, arg)?;
            runs.push(run);
            let location = location.map_err(|error| anyhow!("{method}: {error}"))?;
            let place = location.block_number * IDS + u64::from(location.position);
            ensure!(place == i, "{method}: transaction {i} is at {location:?}");
        }
        let average = |of: fn(&Execution) -> u64| runs.iter().map(of).sum::<u64>() / LOOK_UPS;
        let run = Execution {
            instructions: average(|run| run.instructions),
            heap_pages_written: average(|run| run.heap_pages_written),
            instructions_charged: average(|run| run.instructions_charged),
            stable_pages_read: average(|run| run.stable_pages_read),
            stable_pages_written: 0,
            ..runs.swap_remove(0)
        };
        Ok(Figure { peer: (what != "index").then_some(what), ..self.of_message("index", "look-up", 32, n, &run) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_32_bytes_and_differ() {
        assert_eq!(id(7).len(), 32);
        assert_ne!(id(7), id(8));
        assert_eq!(id(0), [0; 32]);
    }
}
