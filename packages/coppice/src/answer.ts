/** Results of the canister. */

/** A result: a value, or the canister's error. */
export type Answer<T, E> = { Ok: T } | { Err: E };

/** The canister refused a request. */
export class Refusal<E = unknown> extends Error {
  /** The canister's error, a variant. */
  readonly error: E;

  constructor(error: E) {
    super(`the canister refuses: ${text(error)}`);
    this.name = "Refusal";
    this.error = error;
  }
}

/** Returns the value of a result; throws a `Refusal` with its error. */
export function ok<T, E>(answer: Answer<T, E>): T {
  if ("Err" in answer) throw new Refusal(answer.Err);
  return answer.Ok;
}

/** JSON with large numbers as text, and bytes as their number. */
function text(error: unknown): string {
  return JSON.stringify(error, (_, value: unknown) => {
    if (typeof value === "bigint") return value.toString();
    return value instanceof Uint8Array ? `${value.length} bytes` : value;
  });
}
