// Checks a proof of `coppice prove` in another language, with the Internet Computer's own library. A test of the command runs it
// (`--test network`) with the file, the canister and the root key in hexadecimal. Prints the header, the block's seal and the certificate's
// time as JSON.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { Cbor, Certificate, lookupResultToBuffer, lookup_path, reconstruct } from "@icp-sdk/core/agent";
import { Principal } from "@icp-sdk/core/principal";

const [file, canister, rootKey] = process.argv.slice(2);
const proof = JSON.parse(readFileSync(file, "utf8"));
const bytes = (hex) => Uint8Array.from(Buffer.from(hex, "hex"));
const same = (a, b) => Buffer.compare(a, b) === 0;
const ensure = (holds, why) => {
  if (!holds) throw new Error(why);
};
const sha256 = (...parts) => createHash("sha256").update(Buffer.concat(parts)).digest();
const u8 = (number) => Uint8Array.of(number);
const u32 = (number) => {
  const word = Buffer.alloc(4);
  word.writeUInt32BE(number);
  return word;
};
const u64 = (number) => {
  const word = Buffer.alloc(8);
  word.writeBigUInt64BE(BigInt(number));
  return word;
};
const leb128 = (encoded) => [...encoded].reduceRight((number, byte) => (number << 7n) | BigInt(byte & 0x7f), 0n);

// The subnet's signature, and the canister's data.
ensure(proof.format === "coppice proof 1", "another format");
const canisterId = Principal.fromText(canister);
const certificate = await Certificate.create({
  certificate: bytes(proof.certificate),
  rootKey: bytes(rootKey),
  principal: { canisterId },
  disableTimeVerification: true,
});
const data = lookupResultToBuffer(certificate.lookup_path(["canister", canisterId.toUint8Array(), "certified_data"]));
const time = leb128(lookupResultToBuffer(certificate.lookup_path(["time"])));

// The tree, with the head.
const tree = Cbor.decode(bytes(proof.hash_tree));
ensure(same(await reconstruct(tree), data), "another tree");
const number = leb128(lookupResultToBuffer(lookup_path(["last_block_index"], tree)));
const head = lookupResultToBuffer(lookup_path(["last_block_hash"], tree));

// The seals.
const { header } = proof;
const segments = header.sha256.map(bytes);
const [hash, parent] = [bytes(header.hash), bytes(header.parent_hash)];
const leaf = sha256(
  Buffer.from("coppice block 1"),
  u64(header.number),
  u64(header.timestamp_secs),
  ...header.lengths.map(u32),
  u8(hash.length),
  hash,
  u8(parent.length),
  parent,
  ...segments,
);
const seal = (before, of) => sha256(Buffer.from("coppice seal 1"), before, of);
const own = seal(bytes(proof.seal_before), leaf);
ensure(BigInt(header.number) + BigInt(proof.leaves.length) === number, "a leaf is missing");
ensure(same(proof.leaves.map(bytes).reduce(seal, own), head), "another seal");
console.log(JSON.stringify({ ...header, seal: Buffer.from(own).toString("hex"), time_ns: time.toString() }));
