import { findFirst } from '@cloudless/base';

/** Most numbers of one chunk: a change moves at most as many numbers, and as many chunks. */
const MAX_CHUNK = 1_024;

/**
 * A set of numbers with its lowest and its highest number, for very many records: adding and
 * deleting search two lists and move the numbers of one chunk. Numbers that arrive in order are
 * appended.
 */
export class SortedNumbers {
  /** Ascending chunks of ascending numbers. No chunk is empty. */
  private readonly chunks: number[][] = [];

  get first(): number | undefined {
    return this.chunks[0]?.[0];
  }

  get last(): number | undefined {
    return this.chunks.at(-1)?.at(-1);
  }

  /** Adds a number; does nothing when the set contains the number. */
  add(value: number): void {
    const { chunks } = this;
    const last = chunks.at(-1);
    if (last === undefined || (last.at(-1) as number) < value) {
      if (last === undefined || last.length >= MAX_CHUNK) chunks.push([value]);
      else last.push(value);
      return;
    }
    const at = this.findChunk(value);
    const chunk = chunks[at] as number[];
    const index = findFirst(chunk, (candidate) => candidate >= value);
    if (chunk[index] === value) return;
    chunk.splice(index, 0, value);
    if (chunk.length > MAX_CHUNK) chunks.splice(at + 1, 0, chunk.splice(MAX_CHUNK / 2));
  }

  /** Removes a number; does nothing when the set does not contain the number. */
  delete(value: number): void {
    const at = this.findChunk(value);
    const chunk = this.chunks[at];
    if (chunk === undefined) return;
    const index = findFirst(chunk, (candidate) => candidate >= value);
    if (chunk[index] !== value) return;
    if (chunk.length === 1) this.chunks.splice(at, 1);
    else chunk.splice(index, 1);
  }

  /** Returns the index of the first chunk whose last number is not below `value`. */
  private findChunk(value: number): number {
    return findFirst(this.chunks, (chunk) => (chunk.at(-1) as number) >= value);
  }
}
