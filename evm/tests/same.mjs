// Compares answers with the node's, in all fields of the execution API's schemas.
import assert from "node:assert/strict";
import { batch, headOf, hex } from "./world.mjs";

const of = (text) => text.trim().split(/\s+/);
/// Without `size` and `totalDifficulty`.
const BLOCK = of(`hash parentHash sha3Uncles miner stateRoot transactionsRoot receiptsRoot logsBloom difficulty number gasLimit
  gasUsed timestamp extraData mixHash nonce baseFeePerGas withdrawalsRoot blobGasUsed excessBlobGas parentBeaconBlockRoot requestsHash
  withdrawals uncles`);
const TRANSACTION = of(`type nonce to gas value input maxPriorityFeePerGas maxFeePerGas maxFeePerBlobGas gasPrice accessList
  blobVersionedHashes chainId yParity v r s authorizationList blockHash blockNumber from hash transactionIndex blockTimestamp`);
/// Of the OP stack's deposits. Anvil writes the signature that they do not have as 64 digits, their nonce as 0, and no price.
const DEPOSIT = of("type to gas value input blockHash blockNumber from hash transactionIndex blockTimestamp sourceHash mint isSystemTx");
/// Without `blobGasPrice`.
const RECEIPT = of(`type transactionHash transactionIndex blockHash blockNumber from to cumulativeGasUsed gasUsed blobGasUsed
  contractAddress logsBloom root status effectiveGasPrice`);
const LOG = of(`removed logIndex transactionIndex transactionHash blockHash blockNumber blockTimestamp address data topics`);

const fields = (object, names) => object && Object.fromEntries(names.map((name) => [name, object[name]]));
const list = (items, of) => items?.map((item) => (typeof item === "string" ? item : of(item)));
export const log = (object) => fields(object, LOG);
export const logs = (items) => list(items, log);
export const transaction = (object) => fields(object, object?.type === "0x7e" ? DEPOSIT : TRANSACTION);
export const receipt = (object) =>
  object && { ...fields(object, RECEIPT), type: object.type.toLowerCase(), logs: logs(object.logs) };
export const receipts = (items) => list(items, receipt);
export const block = (object) =>
  object && { ...fields(object, BLOCK), transactions: list(object.transactions, transaction) };

/// Checks that the answers of two servers to calls are equal, by the schema of each call, and returns the number of calls.
async function compare(node, ours, calls) {
  const plain = calls.map(([method, params]) => [method, params]);
  const [theirs, own] = [await batch(node, plain), await batch(ours, plain)];
  calls.forEach(([method, params, schema], at) => {
    const what = `${method} ${JSON.stringify(params)}`;
    assert.equal(own[at].error, undefined, `${what}: ${JSON.stringify(own[at].error)}`);
    assert.deepEqual(schema(own[at].result), schema(theirs[at].result), what);
  });
  return calls.length;
}

/// Compares each method over the blocks of a range, and returns the number of calls.
export async function compareAll(node, ours, from, to = undefined) {
  const head = await headOf(node);
  assert.equal(await headOf(ours), head);
  to ??= head;
  const numbers = Array.from({ length: to - from + 1 }, (_, at) => from + at);
  const blocks = (await batch(node, numbers.map((number) => ["eth_getBlockByNumber", [hex(number), true]]))).map(
    ({ result }) => result,
  );
  const same = (value) => value;
  const calls = [
    ["eth_chainId", [], same],
    ["net_version", [], same],
    ["eth_blockNumber", [], same],
    ["eth_getBlockByNumber", ["latest", false], block],
    ["eth_getBlockByNumber", ["pending", false], (found) => found && "number" in found],
    ["eth_getBlockByNumber", [hex(head + 1_000), false], block],
    ["eth_getBlockByHash", [`0x${"12".repeat(32)}`, false], block],
    ["eth_getTransactionByHash", [`0x${"12".repeat(32)}`], transaction],
    ["eth_getTransactionReceipt", [`0x${"12".repeat(32)}`], receipt],
  ];
  for (const { number, hash, transactions } of blocks) {
    for (const whole of [true, false]) {
      calls.push(["eth_getBlockByNumber", [number, whole], block], ["eth_getBlockByHash", [hash, whole], block]);
    }
    calls.push(["eth_getBlockReceipts", [number], receipts], ["eth_getBlockReceipts", [hash], receipts]);
    calls.push(["eth_getLogs", [{ blockHash: hash }], logs]);
    // The block's own hash is an id in the canister, and no transaction.
    calls.push(["eth_getTransactionByHash", [hash], transaction], ["eth_getTransactionReceipt", [hash], receipt]);
    transactions.forEach((found, at) => {
      calls.push(
        ["eth_getTransactionByHash", [found.hash], transaction],
        ["eth_getTransactionReceipt", [found.hash], receipt],
        ["eth_getTransactionByBlockNumberAndIndex", [number, hex(at)], transaction],
        ["eth_getTransactionByBlockHashAndIndex", [hash, hex(at)], transaction],
      );
    });
    calls.push(["eth_getTransactionByBlockNumberAndIndex", [number, hex(transactions.length)], transaction]);
  }
  return compare(node, ours, calls);
}

/// Compares `eth_getLogs` of several filters, and returns the number of logs.
export async function compareLogs(node, ours, filters) {
  await compare(node, ours, filters.map((filter) => ["eth_getLogs", [filter], logs]));
  const found = await batch(ours, filters.map((filter) => ["eth_getLogs", [filter]]));
  return found.map(({ result }) => result.length);
}
