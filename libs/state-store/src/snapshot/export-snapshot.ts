import { createHash } from 'node:crypto';
import { CloudlessError, errorKindOf } from '@cloudless/base';
import type { RangePage, RangeRequest, StateStore } from '../state-store.js';
import {
  COUNT_BYTES,
  DIGEST_BYTES,
  encodeEntry,
  encodeHeader,
  encodePreamble,
  encodeSectionHead,
  SectionKind,
  type SnapshotHeader,
  type SnapshotSummary,
} from './format.js';

/** Size of a chunk: few enough calls for the reader, little enough to wait in memory. */
const CHUNK_BYTES = 128 * 1024;
/** What a page is meant to hold: reading one keeps the event loop for some milliseconds. */
const PAGE_BYTES = 1024 * 1024;
/** Nothing is known of the sizes before the first page. */
const FIRST_PAGE_ENTRIES = 32;
const MAX_PAGE_ENTRIES = 1_000;

/**
 * Reads everything in a store at its newest revision, page by page while writes go on, as one
 * self-describing stream with a SHA-256 of it all at the end. Holds a page and a chunk in memory.
 * Entries on a lease are left out: they belong to a process that is alive, and a restored store has
 * none.
 * @param about - Whose state it is; kept in the header.
 * @returns What it came to, once every chunk was taken.
 * @throws kind `unavailable` when the store changed so much meanwhile that the revision is no
 *   longer retained: begin again.
 */
export async function* exportSnapshot(
  store: Pick<StateStore, 'range'>,
  about: Omit<SnapshotHeader, 'revision'>,
): AsyncGenerator<Uint8Array, SnapshotSummary> {
  const chunks = new ChunkWriter();
  let page = await store.range({ prefix: '', limit: FIRST_PAGE_ENTRIES });
  const { revision } = page;
  let entries = 0;
  chunks.add(encodePreamble());
  chunks.addSection(SectionKind.header, encodeHeader({ ...about, revision }));
  for (;;) {
    let pageBytes = 0;
    for (const entry of page.entries) {
      pageBytes += entry.key.length + entry.value.byteLength;
      if (entry.lease !== undefined) continue;
      chunks.addSection(SectionKind.entry, encodeEntry(entry));
      entries += 1;
      yield* chunks.full();
    }
    if (page.next === undefined) break;
    const limit = limitAfter(page.entries.length, pageBytes);
    page = await readPage(store, { prefix: '', after: page.next, limit, revision });
  }
  const sha256 = chunks.addEnd(entries);
  yield* chunks.rest();
  return { ...about, revision, entries, bytes: chunks.bytes, sha256 };
}

async function readPage(
  store: Pick<StateStore, 'range'>,
  request: RangeRequest,
): Promise<RangePage> {
  try {
    return await store.range(request);
  } catch (cause) {
    if (errorKindOf(cause) !== 'compacted') throw cause;
    throw new CloudlessError(
      'unavailable',
      `the state changed so much while it was read that revision ${request.revision} is no longer retained; take the backup again`,
      { cause },
    );
  }
}

/**
 * As many as fill a page when they are like the last ones; never much more, because they may not
 * be.
 */
function limitAfter(entries: number, bytes: number): number {
  const fitting = Math.floor((PAGE_BYTES * entries) / Math.max(1, bytes));
  return Math.max(1, Math.min(fitting, 4 * entries, MAX_PAGE_ENTRIES));
}

/** Cuts what is added into chunks, and digests it. */
class ChunkWriter {
  bytes = 0;
  private readonly hash = createHash('sha256');
  private parts: Uint8Array[] = [];
  private waiting = 0;

  add(part: Uint8Array): void {
    this.hash.update(part);
    this.push(part);
  }

  addSection(kind: number, body: Buffer): void {
    this.add(encodeSectionHead(kind, body.length));
    this.add(body);
  }

  /** @returns the digest. */
  addEnd(entries: number): string {
    const count = Buffer.alloc(COUNT_BYTES);
    count.writeBigUInt64BE(BigInt(entries));
    this.add(encodeSectionHead(SectionKind.end, COUNT_BYTES + DIGEST_BYTES));
    this.add(count);
    const digest = this.hash.digest();
    this.push(digest);
    return digest.toString('hex');
  }

  /** The chunks that are full. */
  *full(): Iterable<Uint8Array> {
    if (this.waiting < CHUNK_BYTES) return;
    const all = Buffer.concat(this.parts);
    let from = 0;
    for (; all.length - from >= CHUNK_BYTES; from += CHUNK_BYTES)
      yield all.subarray(from, from + CHUNK_BYTES);
    this.parts = [all.subarray(from)];
    this.waiting = all.length - from;
  }

  /** What is left at the end. */
  *rest(): Iterable<Uint8Array> {
    yield* this.full();
    if (this.waiting > 0) yield Buffer.concat(this.parts.splice(0));
  }

  private push(part: Uint8Array): void {
    this.parts.push(part);
    this.waiting += part.byteLength;
    this.bytes += part.byteLength;
  }
}
