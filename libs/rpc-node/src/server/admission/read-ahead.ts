import type { TrackedBytes } from './byte-budget.js';

/**
 * Reads a body before its call is admitted, so that a slow sender holds memory but no running call.
 * @param maxBytes - Reading ahead stops once more bytes were read. The check of the message size
 *   refuses a larger body later.
 * @param tracked - Counts the bytes that were read ahead.
 * @param onLarger - Runs when the body is larger than `maxBytes`; may throw to refuse the call.
 *   Default: nothing.
 * @returns The whole body: the bytes read ahead, then the rest.
 */
export async function readAhead(
  source: AsyncIterable<Uint8Array>,
  maxBytes: number,
  tracked: TrackedBytes,
  onLarger: () => void = () => undefined,
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
      tracked.add(next.value.byteLength);
    }
  }
  if (length > maxBytes) onLarger();
  return (async function* () {
    yield* chunks;
    if (!ended) yield* { [Symbol.asyncIterator]: () => rest };
  })();
}
