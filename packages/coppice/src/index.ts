/** Client of the Coppice canister: the generated binding, pages and cursors, and a reader of blocks. */
export { type Coppice, type Place, connect } from "./client.js";
export { type Answer, Refusal, ok } from "./answer.js";
export { blocks, exportPages, headers, pages, transactionsWithKey } from "./pages.js";
export { type NewBlock, type NewTransaction, appendBlocks, encodeBlock } from "./append.js";
export { type Block, readBlock } from "./block.js";
export { type Transaction, fromDisplay, fromHex, toDisplay, toHex, transactionsOf } from "./segments.js";
export type * from "./binding/coppice.did.js";
export { idlFactory } from "./binding/coppice.did.js";
