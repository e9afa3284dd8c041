// Shows an EVM chain in a canister: a node that mines, the follower, pruning, the endpoint, and one query.
import { Sender } from "./senders.mjs";
import { Canister, Node, batch, call, cast, endAll, endpoint, headOf, hex, until } from "./world.mjs";

const say = (text) => console.log(text);
const BLOCKS = 300;
const RETAINED = 100;

try {
  const [node, canister] = await Promise.all([new Node().start(), new Canister().start()]);
  say(`node         anvil at ${node.url}`);
  say(`canister     ${canister.id} at ${canister.url}`);
  await canister.call("set_prune_policy", `(record { retain_blocks = opt ${RETAINED} })`);
  say(`policy       the newest ${RETAINED} blocks below the head are kept`);
  const follower = canister.follow(node, "--from", "0");
  const { url } = await endpoint(...canister.network);
  say(`endpoint     ${url}`);
  const sender = await new Sender().start(node.url);
  await sender.deploy(node);
  for (let block = 0; block < BLOCKS; block += 10) {
    await sender.emit(block);
    await node.mine(10);
  }
  const head = await headOf(node.url);
  await until("the canister has the node's head", async () => (await headOf(url)) === head);
  say(`followed     blocks 0 to ${head}, each verified by its hash and its roots`);
  const first = await until("blocks are pruned", async () => {
    const [{ error }] = await batch(url, [["eth_getBlockByNumber", ["earliest", false]]]);
    return error?.code === 4444 && Number(error.data.firstAvailableBlock) > head - RETAINED - 20 && error.data.firstAvailableBlock;
  });
  say(`pruned       the oldest block is ${Number(first)}: "earliest" answers 4444, pruned history unavailable`);
  const latest = await call(url, "eth_getBlockByNumber", hex(head), false);
  say(`newest       ${latest.hash}`);
  const args = ["logs", "--from-block", String(Number(first)), "--address", sender.contract, "--json"];
  const found = JSON.parse(await cast(...args, "--rpc-url", url));
  say(`query        cast ${args.join(" ")}: ${found.length} logs`);
  await follower.end();
} finally {
  await endAll();
}
