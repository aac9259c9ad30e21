import type { HeldBytes } from './byte-budget.js';

/**
 * Reads a body before its call is admitted: a client that sends slowly then holds some bytes, but
 * no turn.
 * @param maxBytes - What is read ahead at most. Of a larger body the rest stays where it is, for
 *   who refuses the call.
 * @returns The whole body, what was read ahead first.
 */
export async function readAhead(
  source: AsyncIterable<Uint8Array>,
  maxBytes: number,
  held: HeldBytes,
): Promise<AsyncIterable<Uint8Array>> {
  const rest = source[Symbol.asyncIterator]();
  const chunks: Uint8Array[] = [];
  let length = 0;
  let ended = false;
  while (!ended && length <= maxBytes) {
    const next = await rest.next();
    if (next.done === true) {
      ended = true;
    } else {
      chunks.push(next.value);
      length += next.value.byteLength;
      held.add(next.value.byteLength);
    }
  }
  return (async function* () {
    yield* chunks;
    if (!ended) yield* { [Symbol.asyncIterator]: () => rest };
  })();
}
