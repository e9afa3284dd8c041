// The programs of the tests: a node, a canister on a network of this machine, the follower, the indexer and the endpoints.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { createHash, generateKeyPairSync } from "node:crypto";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const tools = process.env.COPPICE_EVM_TOOLS ?? join(root, "target/evm");
const built = process.env.COPPICE_EVM_BUILT ?? join(root, "target/debug");
const icp = process.env.COPPICE_ICP ?? join(root, "target/icp");
const wasm = process.env.COPPICE_WASM ?? join(root, "target/coppice-blocks.wasm");
const evm = process.env.COPPICE_EVM ?? join(root, "target/debug/coppice-evm");
const candid = join(root, "candid/coppice.did");
const tool = (name) => join(tools, `node_modules/@foundry-rs/${name}-linux-amd64/bin/${name}`);

/// A private key of anvil's own accounts, which are public.
export const KEY = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";
/// Another of anvil's own accounts.
const OTHER = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8";
export const CHAIN = 31337;
export const dir = mkdtempSync(join(tmpdir(), "coppice-evm-"));

export const sleep = (millis) => new Promise((done) => setTimeout(done, millis));

/// Waits until `probe` returns something, at most ten minutes, which only detects a hang.
export async function until(what, probe) {
  const end = Date.now() + 600_000;
  let last;
  while (Date.now() < end) {
    try {
      const found = await probe();
      if (found) return found;
    } catch (error) {
      last = error;
    }
    await sleep(100);
  }
  throw new Error(`not within ten minutes: ${what}${last ? ` (${last.message})` : ""}`);
}

async function freePort() {
  return new Promise((done) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}

const running = new Set();

/// A program, with the text that it has written so far.
export class Program {
  constructor(name, file, args, env = {}) {
    this.name = name;
    this.out = "";
    this.err = "";
    this.child = spawn(file, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    this.child.stdout.on("data", (data) => (this.out += data));
    this.child.stderr.on("data", (data) => (this.err += data));
    this.ended = new Promise((done) => this.child.on("close", (code, signal) => done(code ?? signal)));
    this.ended.then(() => running.delete(this));
    running.add(this);
  }

  /// Ends the program, and waits for its end.
  async end(signal = "SIGTERM") {
    this.child.kill(signal);
    return this.ended;
  }

  /// Waits for the program's own end, and checks its code.
  async succeeds(code = 0) {
    assert.equal(await this.ended, code, `${this.name}: ${this.err}`);
    return this;
  }

  says(text) {
    return until(`${this.name}: ${text}`, () => this.err.includes(text));
  }
}

/// Ends everything that still runs.
export async function endAll() {
  await Promise.all([...running].map((program) => program.end("SIGKILL")));
  rmSync(dir, { recursive: true, force: true });
}

let next = 1;

/// Calls several methods in batches, and returns what each answers: `{ result }` or `{ error }`.
export async function batch(url, calls, size = 20) {
  const answers = [];
  for (let at = 0; at < calls.length; at += size) {
    const first = next;
    const body = calls.slice(at, at + size).map(([method, params]) => ({ jsonrpc: "2.0", id: next++, method, params }));
    const response = await fetch(url, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    const some = await response.json();
    if (!Array.isArray(some)) return some;
    assert.equal(some.length, body.length);
    for (const { id, result, error } of some) answers[at + id - first] = error ? { error } : { result };
  }
  return answers;
}

export async function call(url, method, ...params) {
  const [answer] = await batch(url, [[method, params]]);
  if (answer.error) throw Object.assign(new Error(`${method}: ${answer.error.message}`), answer.error);
  return answer.result;
}

export const hex = (number) => `0x${number.toString(16)}`;
export const headOf = async (url) => Number(await call(url, "eth_blockNumber"));

/// A node of anvil, which can end and begin again with its state.
export class Node {
  constructor(...options) {
    this.options = options;
    this.state = join(dir, `state-${next++}.json`);
  }

  async start() {
    this.port ??= await freePort();
    this.url = `http://127.0.0.1:${this.port}`;
    const args = ["--silent", "--port", String(this.port), "--state", this.state, "--preserve-historical-states", "--no-mining"];
    this.program = new Program("anvil", tool("anvil"), [...args, ...this.options]);
    await until("the node answers", () => call(this.url, "eth_chainId"));
    return this;
  }

  async end() {
    await this.program.end("SIGTERM");
  }

  mine(blocks) {
    return call(this.url, "anvil_mine", hex(blocks));
  }

  /// Replaces the newest blocks by as many, the first of them with another transaction.
  async reorg(depth) {
    const before = await call(this.url, "eth_getBlockByNumber", "latest", false);
    const other = { from: OTHER, to: OTHER, value: hex(depth) };
    await call(this.url, "anvil_reorg", depth, [[other, 0]]);
    const after = await call(this.url, "eth_getBlockByNumber", "latest", false);
    assert.notEqual(before.hash, after.hash);
  }
}

export async function cast(...args) {
  const { stdout } = await promisify(execFile)(tool("cast"), args, { maxBuffer: 64 << 20 });
  return stdout;
}

/// The textual form of the principal of a public key.
function principal(der) {
  const bytes = Buffer.concat([createHash("sha224").update(der).digest(), Buffer.from([2])]);
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  const checked = Buffer.alloc(4);
  checked.writeUInt32BE((crc ^ 0xffffffff) >>> 0);
  let bits = "";
  for (const byte of Buffer.concat([checked, bytes])) bits += byte.toString(2).padStart(8, "0");
  const digits = bits.match(/.{1,5}/g).map((five) => "abcdefghijklmnopqrstuvwxyz234567"[parseInt(five.padEnd(5, "0"), 2)]);
  return digits.join("").match(/.{1,5}/g).join("-");
}

/// An empty canister on a network of this machine, whose clock passes a minute every second.
export class Canister {
  async start() {
    const { publicKey, privateKey } = generateKeyPairSync("ed25519");
    this.identity = join(dir, `me-${next++}.pem`);
    writeFileSync(this.identity, privateKey.export({ type: "pkcs8", format: "pem" }), { mode: 0o600 });
    this.me = principal(publicKey.export({ type: "spki", format: "der" }));
    // A canister that does nothing: the follower is the producer.
    const idle = join(dir, "idle.wasm");
    writeFileSync(idle, Buffer.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]));
    const args = ["serve", "--port", "0", "--api", "--producer", idle, "--allow", this.me, "--wasm", wasm, "--json"];
    this.program = new Program("coppice-lab", join(built, "coppice-lab"), args);
    const line = await until("the canister is installed", () => this.program.out.includes("\n") && this.program.out);
    const { url, canister } = JSON.parse(line);
    Object.assign(this, { url: new URL(url).origin, id: canister });
    this.network = ["--network", this.url, "--canister", this.id, "--fetch-root-key"];
    return this;
  }

  /// Calls a method as the operator, by icp-cli.
  async call(method, argument) {
    const home = join(dir, "icp");
    const env = { ...process.env, HOME: home, XDG_DATA_HOME: join(home, "data"), DO_NOT_TRACK: "1" };
    const run = (...args) => promisify(execFile)(icp, args, { env, cwd: dir });
    if (!this.imported) {
      this.imported = `me-${next++}`;
      const how = ["--from-pem", this.identity, "--storage", "plaintext"];
      await run("identity", "import", this.imported, ...how);
    }
    const network = ["--network", this.url, "--root-key", "fetch", "--identity", this.imported, "--candid", candid];
    const { stdout } = await run("canister", "call", ...network, this.id, method, argument);
    assert.doesNotMatch(stdout, /Err/, stdout);
    return stdout;
  }

  follow(node, ...options) {
    const args = ["follow", "--rpc", node.url, ...this.network, "--identity", this.identity];
    if (!options.includes("--chain-id")) args.push("--chain-id", String(CHAIN));
    return new Program("coppice-evm follow", evm, [...args, "--poll-secs", "0.1", ...options]);
  }

  /// Copies the chain into a database until the head, acknowledges it, and returns the database.
  async index() {
    if (!this.database) {
      this.database = `sqlite://${join(dir, `chain-${next++}.db`)}`;
      await this.call("register_exporter", `(record { name = "archive"; "principal" = principal "${this.me}" })`);
    }
    const args = ["index", ...this.network, "--identity", this.identity, "--database", this.database, "--volatile-database"];
    await new Program("coppice index", join(built, "coppice"), [...args, "--until-caught-up"]).succeeds();
    return this.database;
  }
}

/// Starts an endpoint, and returns its URL.
export async function endpoint(...options) {
  const args = ["rpc", "--listen", "127.0.0.1:0", "--chain-id", String(CHAIN), ...options];
  const program = new Program("coppice-evm rpc", evm, args);
  const url = await until("the endpoint listens", () => {
    if (program.child.exitCode !== null) throw new Error(program.err);
    return program.out.includes("\n") && program.out.trim();
  });
  return { url, program };
}

for (const file of [tool("anvil"), tool("cast"), icp, wasm, evm, join(built, "coppice-lab"), join(built, "coppice")]) {
  assert.ok(existsSync(file), `${file} is missing: scripts/test-evm builds and installs it`);
}
