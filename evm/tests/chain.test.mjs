// A whole chain: a node, the follower, a canister that prunes, an indexer, and two endpoints, read by real programs.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { compareAll, compareLogs, logs } from "./same.mjs";
import { Sender, account, reader, topic } from "./senders.mjs";
import { CHAIN, Canister, Node, batch, call, cast, endAll, endpoint, headOf, hex, until } from "./world.mjs";

let node, canister, ours, sender, follower;

before(async () => {
  [node, canister] = await Promise.all([new Node().start(), new Canister().start()]);
  ours = (await endpoint(...canister.network)).url;
  sender = await new Sender().start(node.url);
});
after(endAll);

/// Waits until an endpoint has the node's head.
async function caughtUp(url = ours) {
  const { hash } = await call(node.url, "eth_getBlockByNumber", "latest", false);
  await until("the canister has the node's head", async () => {
    return (await call(url, "eth_getBlockByNumber", "latest", false))?.hash === hash;
  });
}

const refused = async (url, method, ...params) => (await batch(url, [[method, params]]))[0].error;

test("an empty canister answers that there is no block", async () => {
  assert.deepEqual(await refused(ours, "eth_blockNumber"), { code: -32000, message: "there is no block yet" });
  assert.equal(await call(ours, "eth_chainId"), hex(CHAIN));
});

test("all types of transactions, creations and logs are answered as the node answers", async () => {
  await sender.deploy(node);
  const sent = await sender.allTypes(100);
  await node.mine(1);
  await node.mine(3);
  const newest = await call(node.url, "eth_getBlockByNumber", hex((await headOf(node.url)) - 3), true);
  assert.equal(newest.transactions.length, sent);
  assert.deepEqual([...new Set(newest.transactions.map(({ type }) => type))].sort(), ["0x0", "0x1", "0x2", "0x4"]);
  follower = canister.follow(node, "--from", "0", "--index", "senders,receivers,created,topics");
  await caughtUp();
  assert.match(follower.err, /senders: one more key for each transaction/);
  const calls = await compareAll(node.url, ours, 0);
  assert.ok(calls > 60, `${calls}`);
  const range = { fromBlock: "0x0", toBlock: "latest" };
  const found = await compareLogs(node.url, ours, [
    range,
    { ...range, address: sender.contract },
    { ...range, address: account.address },
    { ...range, topics: [topic(100)] },
    { ...range, topics: [[topic(100), topic(102)], null] },
    { ...range, topics: [null, `0x${"00".repeat(12)}${account.address.slice(2).toLowerCase()}`] },
    { fromBlock: "0x1", toBlock: "0x1" },
  ]);
  assert.deepEqual(found.slice(0, 5), [4, 3, 1, 1, 2]);
});

test("viem and cast read blocks, receipts and logs", async () => {
  const [theirs, own] = [reader(node.url), reader(ours)];
  const drop = ({ size, totalDifficulty, ...rest }) => rest;
  const asked = { blockNumber: 2n, includeTransactions: true };
  assert.deepEqual(drop(await own.getBlock(asked)), drop(await theirs.getBlock(asked)));
  const found = { address: sender.contract, fromBlock: 0n, toBlock: "latest" };
  assert.deepEqual(await own.getLogs(found), await theirs.getLogs(found));
  const [{ transactionHash: hash }] = await own.getLogs(found);
  assert.equal((await own.getTransactionReceipt({ hash })).status, "success");
  const logsOf = (url) => cast("logs", "--rpc-url", url, "--from-block", "0", "--address", sender.contract, "--json");
  assert.deepEqual(logs(JSON.parse(await logsOf(ours))), logs(JSON.parse(await logsOf(node.url))));
  const transactionOf = (url) => cast("tx", "--rpc-url", url, hash, "--json");
  assert.deepEqual(JSON.parse(await transactionOf(ours)), JSON.parse(await transactionOf(node.url)));
  assert.equal((await cast("block-number", "--rpc-url", ours)).trim(), String(await headOf(node.url)));
});

test("reorgs of 1, 7 and 60 blocks are followed", async () => {
  for (const depth of [1, 7, 60]) {
    for (let number = 0; number < 65; number += 5) {
      await sender.emit(1_000 + number);
      await node.mine(5);
    }
    await caughtUp();
    await node.reorg(depth);
    await sender.renew();
    await caughtUp();
    const head = await headOf(node.url);
    await compareAll(node.url, ours, head - 70);
    await follower.says("a reorg replaced");
  }
  const range = { fromBlock: "0x0", toBlock: "latest" };
  assert.ok((await compareLogs(node.url, ours, [{ ...range, address: sender.contract }]))[0] > 20);
});

test("node and follower may end and begin again at any time", async () => {
  await node.end();
  await follower.says("does not answer");
  await node.start();
  await sender.emit(2_000);
  await node.mine(30);
  await follower.end("SIGKILL");
  await node.mine(30);
  follower = canister.follow(node);
  await node.mine(30);
  await caughtUp();
  await follower.end();
  await node.mine(1);
  follower = canister.follow(node);
  await caughtUp();
  await compareAll(node.url, ours, (await headOf(node.url)) - 95);
});

test("3,000 blocks are followed, and logs of all of them are found by address or topic only", async () => {
  for (let round = 0; round < 3; round++) {
    await sender.emit(3_000 + round);
    await node.mine(1_000);
  }
  await caughtUp();
  const range = { fromBlock: "0x0", toBlock: "latest" };
  const found = await compareLogs(node.url, ours, [
    { ...range, address: sender.contract },
    { ...range, topics: [[topic(3_000), topic(3_002)]] },
    { ...range, address: sender.contract, topics: [topic(3_001)] },
    { ...range, address: `0x${"77".repeat(20)}` },
    { fromBlock: hex(2_000), toBlock: hex(2_999) },
  ]);
  assert.ok(found[0] > 20);
  assert.deepEqual(found.slice(1, 4), [2, 1, 0]);
  const error = await refused(ours, "eth_getLogs", { ...range });
  assert.equal(error.code, -32005);
  assert.deepEqual(error.data, { fromBlock: "0x0", toBlock: "0x3e7" });
  assert.equal((await refused(ours, "eth_getLogs", { fromBlock: "0x2", toBlock: "0x1" })).code, -32602);
  assert.equal((await refused(ours, "eth_getLogs", { fromBlock: "0x0", toBlock: "0xffffff" })).code, -32602);
});

test("pruned blocks answer 4444, and the database answers for them", async () => {
  const head = await headOf(node.url);
  const database = await canister.index();
  const archive = (await endpoint("--database", database)).url;
  const oldHash = (await call(ours, "eth_getBlockByNumber", "0x2", false)).hash;
  const [old] = (await call(ours, "eth_getBlockByNumber", "0x2", false)).transactions;
  await canister.call("set_prune_policy", "(record { retain_blocks = opt 200; timer_interval_secs = opt 60 })");
  const pruned = await until("block 2 is pruned", () => refused(ours, "eth_getBlockByNumber", "0x2", false));
  const first = await until("pruning ends", async () => {
    const error = await refused(ours, "eth_getBlockReceipts", "earliest");
    return Number(error.data.firstAvailableBlock) > head - 260 && Number(error.data.firstAvailableBlock);
  });
  assert.deepEqual([pruned.code, pruned.message], [4444, "pruned history unavailable"]);
  const earliest = await refused(ours, "eth_getBlockByNumber", "earliest", false);
  assert.deepEqual([earliest.code, Number(earliest.data.firstAvailableBlock)], [4444, first]);
  const tooOld = { fromBlock: "0x0", toBlock: "latest", address: sender.contract };
  assert.equal((await refused(ours, "eth_getLogs", tooOld)).code, 4444);
  assert.equal((await refused(ours, "eth_getTransactionByBlockNumberAndIndex", "0x2", "0x0")).code, 4444);
  for (const [method, id] of [["eth_getBlockByHash", oldHash], ["eth_getTransactionByHash", old], ["eth_getTransactionReceipt", old]]) {
    assert.equal(await call(ours, method, id, ...(method === "eth_getBlockByHash" ? [true] : [])), null);
  }
  await compareAll(node.url, ours, first);
  await compareAll(node.url, archive, 0, 100);
  await compareAll(node.url, archive, first - 50);
  const range = { fromBlock: "0x0", toBlock: "latest" };
  await compareLogs(node.url, archive, [{ ...range, address: sender.contract }, { ...range, topics: [topic(3_000)] }]);
  // After a reorg the database has the new branch, too.
  await sender.renew();
  await sender.emit(4_000);
  await node.mine(10);
  await node.reorg(7);
  await caughtUp();
  await canister.index();
  await caughtUp(archive);
  await compareAll(node.url, archive, head - 10);
});

test("tags, batches and arguments that are not served are refused", async () => {
  for (const tag of ["safe", "finalized"]) {
    assert.equal((await refused(ours, "eth_getBlockByNumber", tag, false)).code, -32602);
  }
  assert.equal((await refused(ours, "eth_getBlockByNumber", "newest", false)).code, -32602);
  assert.equal((await refused(ours, "eth_getBalance", account.address, "latest")).code, -32601);
  const of = (count) => Array.from({ length: count }, () => ["eth_chainId", []]);
  assert.equal((await batch(ours, of(20))).length, 20);
  assert.ok((await batch(ours, of(21), 21)).error);
  assert.match(await call(ours, "web3_clientVersion"), /^coppice-evm\//);
});

test("a block that does not prove itself is refused by name, and not sent", async () => {
  const head = await headOf(ours);
  await sender.renew();
  await sender.blob();
  await node.mine(1);
  assert.equal(await follower.ended, 1, follower.err);
  assert.match(follower.err, new RegExp(`block ${head + 1}: transactionsRoot is 0x[0-9a-f]{64}, and the header has 0x`));
  assert.equal(await headOf(ours), head);
});

test("another chain is refused with a remedy", async () => {
  const [small, other] = await Promise.all([new Canister().start(), new Node("--timestamp", "1700000000").start()]);
  await small.follow(node, "--from", "0", "--until", "3").succeeds();
  await other.mine(5);
  const follower = await small.follow(other).succeeds(5);
  assert.match(follower.err, /keeps none of the chain's blocks.*check --rpc and --canister/);
  await other.end();
  const wrong = await canister.follow(node, "--chain-id", "1").succeeds(2);
  assert.match(wrong.err, /the node has the chain id 31337, and --chain-id is 1/);
});
