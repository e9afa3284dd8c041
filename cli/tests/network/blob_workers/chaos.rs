//! Chaos test: workers are killed and paused, the canister is upgraded, a gateway and a store fail, answers are lost, and blobs are
//! rescheduled and cancelled; at the end every blob is accounted for. `COPPICE_CHAOS_SECS` sets the duration, and `COPPICE_CHAOS_SEED`
//! repeats a run.

use super::bucket::{Bucket, NAME};
use super::*;
use coppice_testkit::wasm;
use std::path::PathBuf;

/// A height that the chain does not reach before the end of the test.
const LATER: u32 = 5_000;
const WORKERS: usize = 4;

/// The expected state of a blob at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The blob and its row are gone.
    Due,
    /// The row was cancelled while no worker had it, so the blob is there.
    Cancelled,
    /// The blob was rescheduled for later while no worker had its row, so the blob is there and the row waits.
    Later,
    /// The blob was rescheduled for later while a worker may have been deleting it: the row waits, the blob may be gone.
    Either,
}

/// A generator of pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

struct Chaos<'a> {
    net: &'a Net,
    dir: PathBuf,
    bucket: Bucket,
    dice: Dice,
    workers: Vec<Child>,
    /// By blob: even blobs are files, odd ones objects.
    fates: Vec<Fate>,
    /// Counts of the events that happened.
    happened: BTreeMap<&'static str, u32>,
}

impl Chaos<'_> {
    fn name(blob: u64) -> BlobName {
        let store_type = if blob.is_multiple_of(2) { StoreType::Tx } else { StoreType::Temp };
        BlobName { blob_key: ByteBuf::from(key(blob)), file_type: "tx".into(), store_type }
    }

    fn schedule(&self, blob: u64, delete_at_height: u32) -> ScheduledBlobDeletion {
        let arg = ScheduleBlobDeletion { name: Self::name(blob), delete_at_height };
        let scheduled: Result<ScheduledBlobDeletion, BlobDeletionError> = call(self.net, "schedule_blob_deletion", arg);
        scheduled.unwrap()
    }

    fn add(&mut self, many: u64) {
        for blob in self.fates.len() as u64..self.fates.len() as u64 + many {
            if blob.is_multiple_of(2) {
                std::fs::write(self.dir.join(file(blob)), "a blob").unwrap();
            } else {
                self.bucket.put(file(blob));
            }
            self.schedule(blob, 1 + (blob % u64::from(HEIGHT - 10)) as u32);
            self.fates.push(Fate::Due);
        }
    }

    /// Returns a blob that is due, mostly one of the latest.
    fn some_due(&mut self) -> Option<u64> {
        let all = self.fates.len() as u64;
        let from = if self.dice.roll(4) == 0 { 0 } else { all.saturating_sub(200) };
        let blob = from + self.dice.roll(all - from);
        (self.fates[blob as usize] == Fate::Due).then_some(blob)
    }

    fn worker(&self, args: &[&str]) -> Command {
        let stores = [format!("tx/tx=file://{}", self.dir.display()), format!("temp/*=s3://{NAME}")];
        let own = ["--store", &stores[0], "--store", &stores[1], "--lease-secs", "30", "--max-wait-secs", "1"];
        // The worker's output is discarded, because a full pipe would block the worker.
        let mut command = command(self.net, "worker", &[&own[..], args].concat());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.bucket.of(command)
    }

    fn start(&mut self) {
        let worker = self.worker(&["--batch", "20", "--poll-secs", "1"]).spawn().unwrap();
        self.workers.push(worker);
    }

    fn upgrade(&self) {
        let arg = candid::encode_one(None::<CanisterArg>).unwrap();
        let controller = Principal::self_authenticating(b"controller");
        let wasm = wasm::of_tests();
        self.net.host.upgrade_canister(self.net.canister, wasm, arg, Some(controller)).unwrap();
    }

    fn happens(&mut self) {
        let what = match self.dice.roll(20) {
            0..=4 => {
                let many = 10 + self.dice.roll(60);
                self.add(many);
                "added"
            }
            5..=7 => {
                let Some(blob) = self.some_due() else { return };
                let scheduled = self.schedule(blob, LATER);
                // If the blob was deleted already, this is a new row, and the blob is gone.
                let is_safe = !scheduled.was_leased && self.is_there(blob);
                self.fates[blob as usize] = if is_safe { Fate::Later } else { Fate::Either };
                if is_safe { "rescheduled" } else { "rescheduled during its deletion" }
            }
            8..=10 => {
                let Some(blob) = self.some_due() else { return };
                let name = Self::name(blob);
                let cancelled: Result<Option<CancelledBlobDeletion>, BlobDeletionError> =
                    call(self.net, "cancel_blob_deletion", name);
                match cancelled {
                    Ok(Some(_)) if self.is_there(blob) => {
                        self.fates[blob as usize] = Fate::Cancelled;
                        "cancelled"
                    }
                    // A worker deleted the blob and could not report it.
                    Ok(Some(_)) => "cancelled after its deletion, unreported",
                    Ok(None) => "cancelled after its deletion",
                    Err(BlobDeletionError::Leased) => "cancelled during its deletion",
                    Err(error) => panic!("{error:?}"),
                }
            }
            11 | 12 => {
                let at = self.dice.roll(self.workers.len() as u64) as usize;
                let mut killed = self.workers.swap_remove(at);
                killed.kill().unwrap();
                killed.wait().unwrap();
                self.start();
                "killed"
            }
            13 | 14 => {
                let at = self.dice.roll(self.workers.len() as u64) as usize;
                signal(&self.workers[at], "-STOP");
                std::thread::sleep(Duration::from_millis(100 + self.dice.roll(900)));
                signal(&self.workers[at], "-CONT");
                "stopped"
            }
            15 => {
                self.upgrade();
                "upgraded"
            }
            16 => {
                self.net.gateway.fail(3);
                "gateway"
            }
            17 => {
                self.bucket.fail();
                std::thread::sleep(Duration::from_millis(self.dice.roll(500)));
                self.bucket.shake();
                "store"
            }
            18 => {
                let marker = ic_coppice_cli::blob_worker::MARKER;
                let bytes = std::fs::read(self.dir.join(marker)).unwrap();
                std::fs::write(self.dir.join(marker), &bytes[..bytes.len() / 2]).unwrap();
                std::thread::sleep(Duration::from_millis(self.dice.roll(500)));
                std::fs::write(self.dir.join(marker), bytes).unwrap();
                "half a marker"
            }
            _ => {
                std::thread::sleep(Duration::from_millis(300));
                "nothing"
            }
        };
        *self.happened.entry(what).or_default() += 1;
    }

    fn is_there(&self, blob: u64) -> bool {
        match blob.is_multiple_of(2) {
            true => self.dir.join(file(blob)).exists(),
            false => self.bucket.has(&file(blob)),
        }
    }

    /// Returns the listed rows by the key of their blob.
    fn rows(&self) -> BTreeMap<Vec<u8>, ListedBlobDeletion> {
        let (mut rows, mut cursor) = (BTreeMap::new(), None);
        loop {
            let arg = ListBlobDeletions { cursor, limit: 1_000, ..Default::default() };
            let list: BlobDeletionList = query(self.net, "list_blob_deletions", arg);
            rows.extend(list.rows.into_iter().map(|listed| (listed.row.blob_key.to_vec(), listed)));
            cursor = list.cursor;
            if cursor.is_none() {
                return rows;
            }
        }
    }

    /// Runs undisturbed workers, one after the other, until no due row is left.
    fn drain(&self) {
        self.net.gateway.fail(0);
        self.bucket.delete();
        // A call of a killed worker may arrive after its death, and lease rows once more: the second worker finds them.
        for _ in 0..2 {
            self.net.host.advance_time(Duration::from_secs(31));
            self.net.host.tick();
            let mut command = self.worker(&["--until-empty"]);
            let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
            let report = json(&output, 0);
            assert_eq!((&report["failed"], &report["undone"]), (&0.into(), &0.into()), "{report}");
        }
    }

    fn check(&self) {
        let rows = self.rows();
        for (blob, fate) in (0..).zip(&self.fates) {
            let (is_there, row) = (self.is_there(blob), rows.get(&key(blob)[..]));
            let waits = row.is_some_and(|listed| {
                listed.state == BlobDeletionState::Waiting
                    && (listed.row.delete_at_height, listed.row.retry_count) == (LATER, 0)
            });
            let is_right = match fate {
                Fate::Due => !is_there && row.is_none(),
                Fate::Cancelled => is_there && row.is_none(),
                Fate::Later => is_there && waits,
                Fate::Either => waits,
            };
            assert!(is_right, "blob {blob}, {fate:?}: there {is_there}, {row:?}; {:?}", self.happened);
        }
        let known = self.fates.iter().filter(|fate| matches!(fate, Fate::Later | Fate::Either)).count();
        assert_eq!(rows.len(), known, "no unknown row");
        assert_eq!((metric(self.net, "errors_total"), metric(self.net, "dead")), (0.0, 0.0));
        assert!(status(self.net).leases.is_empty());
    }
}

impl Drop for Chaos<'_> {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            drop(worker.kill());
            drop(worker.wait());
        }
    }
}

#[test]
fn every_blob_is_accounted_for_after_chaos() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let time = Duration::from_secs(number("COPPICE_CHAOS_SECS").unwrap_or(30));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = number("COPPICE_CHAOS_SEED").unwrap_or(now.as_millis() as u64) | 1;
    eprintln!("COPPICE_CHAOS_SEED={seed}");
    let net = world(0, SystemTime::now());
    let dir = net.dir.path().join("blobs");
    std::fs::create_dir(&dir).unwrap();
    identity(&net, "worker");
    let mut chaos = Chaos {
        net: &net,
        dir,
        bucket: Bucket::start([]),
        dice: Dice(seed),
        workers: Vec::new(),
        fates: Vec::new(),
        happened: BTreeMap::new(),
    };
    let stores = [format!("tx/tx=file://{}", chaos.dir.display()), format!("temp/*=s3://{NAME}")];
    let init = command(&net, "worker", &["init", "--store", &stores[0], "--store", &stores[1]]);
    json(&chaos.bucket.of(init).output().unwrap(), 0);
    net.gateway.lose_first_answers(&[ACQUIRE, COMPLETE]);
    chaos.bucket.shake();
    chaos.add(400);
    (0..WORKERS).for_each(|_| chaos.start());
    let began = Instant::now();
    while began.elapsed() < time {
        chaos.happens();
        std::thread::sleep(Duration::from_millis(20 + chaos.dice.roll(60)));
        for worker in &mut chaos.workers {
            assert_eq!(worker.try_wait().unwrap(), None, "a worker ended: {:?}", chaos.happened);
        }
    }
    wait_for("a worker deletes blobs", || metric(&net, "processed_total") > 0.0);
    let gone = metric(&net, "processed_total");
    for worker in &mut chaos.workers {
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    chaos.workers.clear();
    chaos.drain();
    chaos.check();
    // The chain reaches the later height, and the rescheduled blobs are deleted, too.
    let arg = candid::encode_args((LATER + 10, true)).unwrap();
    net.host.update_call(net.canister, net.principal, "utxo_notify_block", arg).unwrap();
    chaos.drain();
    chaos.fates.iter_mut().filter(|fate| **fate != Fate::Cancelled).for_each(|fate| *fate = Fate::Due);
    chaos.check();
    eprintln!("{} blobs, {gone} of them deleted in time: {:?}", chaos.fates.len(), chaos.happened);
}
