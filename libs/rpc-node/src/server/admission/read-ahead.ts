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
  return new BufferedBody(chunks, ended ? undefined : rest);
}

/**
 * Chunks that were read ahead, then the rest of a body. For one reader. No generator function within
 * a call: V8 holds such a function until the next collection of the old generation.
 */
class BufferedBody implements AsyncIterableIterator<Uint8Array> {
  private index = 0;

  constructor(
    private readonly chunks: readonly Uint8Array[],
    private readonly rest: AsyncIterator<Uint8Array> | undefined,
  ) {}

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<Uint8Array>> {
    const chunk = this.chunks[this.index];
    this.index += 1;
    if (chunk !== undefined) return Promise.resolve({ done: false, value: chunk });
    return this.rest?.next() ?? Promise.resolve({ done: true, value: undefined });
  }

  async return(): Promise<IteratorResult<Uint8Array>> {
    this.index = this.chunks.length;
    await this.rest?.return?.();
    return { done: true, value: undefined };
  }
}
