// A client's code against the generated binding. `scripts/typescript` compiles it without running it.
import { Actor, HttpAgent } from "@icp-sdk/core/agent";
import type { _SERVICE, AppendBlock, AppendBlockResult, UtxoCreateBatchResult } from "./out/declarations/coppice.did.js";
import { idlFactory } from "./out/declarations/coppice.did.js";
import { createActor } from "./out/coppice.js";

const coppice = Actor.createActor<_SERVICE>(idlFactory, { agent: HttpAgent.createSync(), canisterId: "aaaaa-aa" });

export async function append(block: AppendBlock): Promise<bigint | undefined> {
  const { body, receipts, index } = block.sha256;
  const answer: AppendBlockResult = await coppice.append_block({ ...block, sha256: { body, receipts, index } });
  return "Err" in answer && "Gap" in answer.Err ? answer.Err.Gap.expected : undefined;
}

export async function create(raw: Uint8Array): Promise<number> {
  const done: UtxoCreateBatchResult = await coppice.utxo_create({
    height: 7,
    items: [{ source: { Raw: raw }, mined: [], locked: [], conflicting: false, fee: [], is_new: false }],
  });
  return done.results.filter((result) => "Ok" in result).length + done.remaining;
}

export async function isHealthy(): Promise<boolean> {
  return (await createActor("aaaaa-aa").health()).healthy;
}
