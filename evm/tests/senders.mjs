// Transactions of all types, sent by viem and cast.
import { createRequire } from "node:module";
import { join } from "node:path";
import { CHAIN, KEY, call, cast, dir } from "./world.mjs";
import { writeFileSync } from "node:fs";

const root = new URL("../../", import.meta.url).pathname;
const tools = process.env.COPPICE_EVM_TOOLS ?? join(root, "target/evm");
const require = createRequire(join(tools, "package.json"));
export const viem = require("viem");
const { privateKeyToAccount } = require("viem/accounts");

export const account = privateKeyToAccount(KEY);
const chain = viem.defineChain({
  id: CHAIN,
  name: "anvil",
  nativeCurrency: { name: "ether", symbol: "ETH", decimals: 18 },
  rpcUrls: { default: { http: [] } },
});

export const reader = (url) => viem.createPublicClient({ chain, transport: viem.http(url, { retryCount: 0 }) });
const wallet = (url) => viem.createWalletClient({ account, chain, transport: viem.http(url) });

/// Makes a contract whose calls emit one log: the first 32 bytes of the call are the first topic, the caller is the second, and the call is the
/// data.
const CONTRACT = "0x6a365f5f37335f35365fa2005f52600b6015f3";
export const topic = (number) => viem.pad(viem.toHex(number), { size: 32 });

/// A node's sender, which counts its nonces itself, because the node mines only when asked.
export class Sender {
  async start(url) {
    this.url = url;
    this.wallet = wallet(url);
    await this.renew();
    return this;
  }

  /// Reads the nonce again, for example after a reorg.
  async renew() {
    this.nonce = Number(await call(this.url, "eth_getTransactionCount", account.address, "latest"));
  }

  send(fields) {
    const fees = fields.gasPrice ? {} : { maxFeePerGas: 5_000_000_000n, maxPriorityFeePerGas: 1_000_000n };
    return this.wallet.sendTransaction({ gas: 500_000n, nonce: this.nonce++, ...fees, ...fields });
  }

  /// Creates the contract, mines it, and remembers its address.
  async deploy(node) {
    const hash = await this.send({ data: CONTRACT });
    await node.mine(1);
    this.contract = (await call(this.url, "eth_getTransactionReceipt", hash)).contractAddress;
    return hash;
  }

  /// Emits a log with a first topic.
  emit(number, fields = {}) {
    return this.send({ to: this.contract, data: viem.concat([topic(number), "0xc0ffee"]), ...fields });
  }

  /// Sends one transaction of each type that a node's own encoding takes, without mining.
  async allTypes(number) {
    const to = "0x00000000000000000000000000000000000000aa";
    const accessList = [{ address: this.contract, storageKeys: [topic(1)] }];
    const legacy = { type: "legacy", gasPrice: 6_000_000_000n };
    await this.emit(number, legacy);
    await this.emit(number + 1, { type: "eip2930", gasPrice: 6_000_000_000n, accessList });
    await this.emit(number + 2, { accessList });
    await this.send({ to, value: 7n });
    await this.send({ data: CONTRACT });
    // Fails: the bytes are no code of a creation.
    await this.send({ data: "0xfe" });
    // The last one, because the authorization of the sender itself takes another nonce.
    const authorization = await this.wallet.signAuthorization({
      contractAddress: this.contract,
      nonce: this.nonce + 1,
    });
    await this.send({ to: account.address, data: topic(number + 3), authorizationList: [authorization] });
    this.nonce++;
    return 7;
  }

  /// Sends a transaction with a blob.
  async blob() {
    const file = `${dir}/blob`;
    writeFileSync(file, "a blob");
    const args = ["send", "--async", "--rpc-url", this.url, "--private-key", KEY, "--nonce", String(this.nonce++)];
    await cast(...args, "--blob", "--path", file, "--gas-limit", "100000", "--gas-price", "5gwei", "--priority-gas-price", "1gwei",
      "--blob-gas-price", "1gwei", account.address);
  }
}
