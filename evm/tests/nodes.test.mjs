// Nodes that are behind, that answer from two heads, and that belong to the OP stack.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { compareAll } from "./same.mjs";
import { account } from "./senders.mjs";
import { Canister, Node, call, endAll, endpoint, headOf, until } from "./world.mjs";

after(endAll);

async function started(...options) {
  const [node, canister] = await Promise.all([new Node(...options).start(), new Canister().start()]);
  const { url } = await endpoint(...canister.network);
  const caughtUp = async () => {
    const { hash } = await call(node.url, "eth_getBlockByNumber", "latest", false);
    await until("the canister has the node's head", async () => {
      return (await call(url, "eth_getBlockByNumber", "latest", false).catch(() => null))?.hash === hash;
    });
  };
  return { node, canister, url, caughtUp };
}

test("deposits of the OP stack are followed and answered", async () => {
  const { node, canister, url, caughtUp } = await started("--network", "optimism");
  for (let number = 1; number <= 3; number++) {
    await call(node.url, "eth_sendTransaction", {
      from: account.address,
      to: "0x00000000000000000000000000000000000000aa",
      type: "0x7e",
      sourceHash: `0x${String(number).repeat(64)}`,
      mint: "0x5",
      value: "0x1",
      gas: "0x30000",
      isSystemTx: false,
      nonce: "0x0",
    });
    await node.mine(1);
  }
  canister.follow(node, "--from", "0");
  await caughtUp();
  const { transactions } = await call(url, "eth_getBlockByNumber", "0x1", true);
  assert.deepEqual([transactions[0].type, transactions[0].mint, transactions[0].from], ["0x7e", "0x5", account.address.toLowerCase()]);
  await compareAll(node.url, url, 0);
});

test("a node that falls behind changes nothing until it has another branch", async () => {
  const { node, canister, url, caughtUp } = await started();
  await node.mine(20);
  const follower = canister.follow(node, "--from", "5");
  await caughtUp();
  assert.equal((await call(url, "eth_getBlockByNumber", "0x5", false)).number, "0x5");
  await call(node.url, "anvil_rollback", 3);
  await follower.says("the node is behind: its newest block is 17, and the canister has 20");
  assert.equal(await headOf(url), 20);
  await call(node.url, "evm_increaseTime", 1_000);
  await node.mine(5);
  await caughtUp();
  await follower.says("a reorg replaced 3 blocks");
  await compareAll(node.url, url, 5);
});

test("a node that refuses large batches is followed", async () => {
  const { node, canister, url, caughtUp } = await started();
  await node.mine(50);
  let refused = 0;
  const proxy = createServer(async (request, response) => {
    let text = "";
    for await (const some of request) text += some;
    const calls = JSON.parse(text);
    if (calls.length > 4) {
      refused++;
      // As geth answers the calls behind its limit of bytes.
      const error = { code: -32003, message: "response too large" };
      return response.end(JSON.stringify(calls.map(({ id }) => ({ jsonrpc: "2.0", id, error }))));
    }
    const sent = { method: "POST", headers: { "content-type": "application/json" }, body: text };
    response.end(await (await fetch(node.url, sent)).text());
  });
  await new Promise((done) => proxy.listen(0, "127.0.0.1", done));
  proxy.unref();
  const follower = canister.follow({ url: `http://127.0.0.1:${proxy.address().port}` }, "--from", "0");
  await caughtUp();
  // 10 and 5 blocks, and then 2.
  assert.equal(refused, 2);
  await compareAll(node.url, url, 0);
  await follower.end();
  proxy.close();
});

test("a node that answers from two heads is followed", async () => {
  const { node, canister, caughtUp } = await started();
  let asked = 0;
  let late = 0;
  // Every second request meets a server that lacks the newest three blocks.
  const proxy = createServer(async (request, response) => {
    let text = "";
    for await (const some of request) text += some;
    const calls = JSON.parse(text);
    const answers = await (await fetch(node.url, { method: "POST", headers: { "content-type": "application/json" }, body: text })).json();
    if (asked++ % 2) {
      const head = await headOf(node.url);
      for (const [at, { method, params }] of calls.entries()) {
        if (Number(params[0]) > head - 3) {
          answers[at].result = null;
          late++;
        }
        if (params[0] === "latest" && method === "eth_getBlockByNumber") {
          answers[at].result = await call(node.url, method, `0x${Math.max(head - 3, 0).toString(16)}`, false);
        }
      }
    }
    response.end(JSON.stringify(answers));
  });
  await new Promise((done) => proxy.listen(0, "127.0.0.1", done));
  // An open port would keep a failed test's process alive.
  proxy.unref();
  const follower = canister.follow({ url: `http://127.0.0.1:${proxy.address().port}` }, "--from", "0");
  for (let round = 0; round < 5; round++) {
    await node.mine(4);
    await caughtUp();
  }
  assert.ok(late > 0);
  assert.doesNotMatch(follower.err, /a reorg replaced/);
  await follower.end();
  proxy.close();
});
