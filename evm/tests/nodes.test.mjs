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

/// A server between the follower and a node. `answer` gets the calls of a request, and a function that asks the node for their answers; it
/// returns the answers, or one error instead of them.
async function between(node, answer) {
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const some of request) body += some;
    const sent = JSON.parse(body);
    const ask = async () => {
      const answered = await fetch(node.url, { method: "POST", headers: { "content-type": "application/json" }, body });
      return [await answered.json()].flat();
    };
    const answers = await answer([sent].flat(), ask);
    response.end(JSON.stringify(Array.isArray(sent) || !Array.isArray(answers) ? answers : answers[0]));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  // An open port would keep a failed test's process alive.
  server.unref();
  return { url: `http://127.0.0.1:${server.address().port}`, server };
}

test("a node that refuses large batches is followed", async () => {
  const { node, canister, url, caughtUp } = await started();
  await node.mine(50);
  let refused = 0;
  const proxy = await between(node, async (calls, ask) => {
    if (calls.length <= 4) return ask();
    refused++;
    // As geth answers the calls behind its limit of bytes.
    const error = { code: -32003, message: "response too large" };
    return calls.map(({ id }) => ({ jsonrpc: "2.0", id, error }));
  });
  const follower = canister.follow(proxy, "--from", "0");
  await caughtUp();
  // 10 and 5 blocks, and then 2.
  assert.equal(refused, 2);
  await compareAll(node.url, url, 0);
  await follower.end();
  proxy.server.close();
});

test("a node that takes no batches is followed, one that is none is left, and a wait for the first block is told", async () => {
  const { node, canister, url, caughtUp } = await started();
  await node.mine(5);
  let refused = 0;
  const proxy = await between(node, async (calls, ask) => {
    if (calls.length === 1) return ask();
    refused++;
    return { jsonrpc: "2.0", id: null, error: { code: -32600, message: "batches are not supported" } };
  });
  const waits = canister.follow(proxy, "--confirmations", "9");
  await waits.says("nothing to send yet: the node's newest block is 5, --confirmations 9");
  await waits.end();
  const early = canister.follow(node, "--from", "9");
  await early.says("nothing to send yet: the newest block to send is 5, the first 9 (--from)");
  await early.end();
  const follower = canister.follow(proxy, "--from", "0");
  await caughtUp();
  assert.equal(refused, 1);
  await compareAll(node.url, url, 0);
  await follower.end();
  proxy.server.close();

  const none = createServer((_, response) => response.writeHead(404).end("no page"));
  await new Promise((done) => none.listen(0, "127.0.0.1", done));
  none.unref();
  const left = await canister.follow({ url: `http://127.0.0.1:${none.address().port}` }).succeeds(1);
  assert.match(left.err, /answers 404 Not Found without JSON-RPC/);
  none.close();
  const empty = await canister.follow(node, "--from", "4", "--until", "3").succeeds(2);
  assert.match(empty.err, /no block lies between --from 4 and --until 3/);
});

test("a node that answers from two heads is followed", async () => {
  const { node, canister, caughtUp } = await started();
  let asked = 0;
  let late = 0;
  // Every second request meets a server that lacks the newest three blocks.
  const proxy = await between(node, async (calls, ask) => {
    const answers = await ask();
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
    return answers;
  });
  const follower = canister.follow(proxy, "--from", "0");
  for (let round = 0; round < 5; round++) {
    await node.mine(4);
    await caughtUp();
  }
  assert.ok(late > 0);
  assert.doesNotMatch(follower.err, /a reorg replaced/);
  await follower.end();
  proxy.server.close();
});
