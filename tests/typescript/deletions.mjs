// The deletion queue's three ways, through a Candid library that has read the .did. A test of the command runs it (`--test network`) with
// the gateway's address, the canister, the seed of a worker's key in hexadecimal, and a height. Prints the answers as JSON.
import { Actor, HttpAgent } from "@icp-sdk/core/agent";
import { Ed25519KeyIdentity } from "@icp-sdk/core/identity";
import { idlFactory } from "./out/declarations/coppice.did.js";

const [host, canisterId, seed, height] = process.argv.slice(2);
const identity = Ed25519KeyIdentity.generate(Uint8Array.from(Buffer.from(seed, "hex")));
const agent = await HttpAgent.create({ host, identity, shouldFetchRootKey: true });
const queue = Actor.createActor(idlFactory, { agent, canisterId });
const due = Number(height);

const ids = (rows) => rows.map((row) => row.id);
const ok = (answer) => {
  if ("Err" in answer) throw new Error(JSON.stringify(answer));
  return answer.Ok;
};
const pending = (limit) => queue.get_pending_blob_deletions(due, limit, [[{ store_type: { Tx: null }, file_type: ["tx"] }]]);

// Individual calls: the first row is removed, one fails and is given up, one was scheduled above the reported height.
const [first, second, third] = ids(await pending(3));
const individual = {
  removed: ok(await queue.remove_blob_deletion(first, [due])),
  again: ok(await queue.remove_blob_deletion(first, [])),
  above: ok(await queue.remove_blob_deletion(third, [0])),
  retry: ok(await queue.increment_blob_deletion_retry(second, 1)),
  third: ok(await queue.remove_blob_deletion(third, [])),
};

// Batches without a lease.
const [failed, ...completed] = ids(await pending(5));
const batch = ok(
  await queue.complete_blob_deletions({
    completed_ids: [...completed, first],
    failed_ids: [failed],
    max_retries: 3,
    up_to_height: [due],
  }),
);

// Leases: one row is unknown, the others are removed; the repeated call has the same answer.
const wanted = {
  height: 0,
  limit: 6,
  lock_timeout_secs: 60n,
  store_types: [],
  request: [Uint8Array.from([1, 2, 3])],
  selectors: [[{ store_type: { Tx: null }, file_type: [] }]],
  safety_window: [10],
};
const [lease] = ok(await queue.acquire_blob_deletion_batch(wanted));
const [same] = ok(await queue.acquire_blob_deletion_batch(wanted));
const until = ok(await queue.extend_blob_deletion_batch(lease.token, 600n));
const done = {
  token: lease.token,
  completed_ids: [],
  failed_ids: [],
  max_retries: 3,
  unknown_ids: [[lease.rows[0].id]],
  rest: [{ Completed: null }],
};
const answers = [ok(await queue.complete_blob_deletion_batch(done)), ok(await queue.complete_blob_deletion_batch(done))];
const over = await queue.acquire_blob_deletion_batch(wanted);

const output = {
  individual,
  batch,
  leased: ids(lease.rows),
  same: ids(same.rows),
  extended: until > lease.expires_at_ns,
  unknown: lease.rows[0].id,
  answers,
  over: Object.keys(over.Err ?? over)[0],
};
const plain = (_, value) => {
  if (ArrayBuffer.isView(value)) return Array.from(value);
  return typeof value === "bigint" ? Number(value) : value;
};
console.log(JSON.stringify(output, plain));
