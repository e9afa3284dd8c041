/** Connection to a canister. */
import { Actor, type ActorSubclass, HttpAgent, type Identity } from "@icp-sdk/core/agent";
import { type _SERVICE, idlFactory } from "./binding/coppice.did.js";

/** The canister's methods. A query is answered by one replica, a call by the subnet. */
export type Coppice = ActorSubclass<_SERVICE>;

/** Where a canister is, and its caller. */
export interface Place {
  /** The network's URL: `https://icp-api.io`, or that of a local network. */
  host: string;
  /** The canister's principal. */
  canisterId: string;
  /** The caller; without it calls are anonymous, so that they can only read. */
  identity?: Identity;
  /** Fetches the root key from the network itself, which vouches for nothing: for local networks only. */
  fetchRootKey?: boolean;
}

/** Connects to a canister. Throws if the network does not answer. */
export async function connect({ host, canisterId, identity, fetchRootKey = false }: Place): Promise<Coppice> {
  const caller = identity === undefined ? {} : { identity };
  const agent = await HttpAgent.create({ host, shouldFetchRootKey: fetchRootKey, ...caller });
  return Actor.createActor<_SERVICE>(idlFactory, { agent, canisterId });
}
