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

/** Size of a chunk: few calls for the reader, little memory. */
const CHUNK_BYTES = 128 * 1024;
/** Target size of a page. Reading a page blocks the event loop for some milliseconds. */
const PAGE_BYTES = 1024 * 1024;
/** The sizes of entries are unknown before the first page. */
const FIRST_PAGE_ENTRIES = 32;
const MAX_PAGE_ENTRIES = 1_000;

/**
 * Exports the newest revision of a store as one self-describing stream with a SHA-256 at the end.
 * Reads page by page while writes continue; holds one page and one chunk in memory. Omits entries
 * on a lease, because their holders do not exist after a restore.
 * @param cluster - Cluster and layout for the header.
 * @returns A summary, after every chunk has been read.
 * @throws kind `unavailable` when the store changed so much meanwhile that the revision is no
 *   longer retained. Start again.
 */
export async function* exportSnapshot(
  store: Pick<StateStore, 'range'>,
  cluster: Omit<SnapshotHeader, 'revision'>,
): AsyncGenerator<Uint8Array, SnapshotSummary> {
  const chunks = new ChunkWriter();
  let page = await store.range({ prefix: '', limit: FIRST_PAGE_ENTRIES });
  const { revision } = page;
  let entries = 0;
  chunks.add(encodePreamble());
  chunks.addSection(SectionKind.header, encodeHeader({ ...cluster, revision }));
  for (;;) {
    let pageBytes = 0;
    for (const entry of page.entries) {
      pageBytes += entry.key.length + entry.value.byteLength;
      if (entry.lease !== undefined) continue;
      chunks.addSection(SectionKind.entry, encodeEntry(entry));
      entries += 1;
      yield* chunks.takeFullChunks();
    }
    if (page.next === undefined) break;
    const limit = nextPageLimit(page.entries.length, pageBytes);
    page = await readPage(store, { prefix: '', after: page.next, limit, revision });
  }
  const sha256 = chunks.addEnd(entries);
  yield* chunks.takeRemaining();
  return { ...cluster, revision, entries, bytes: chunks.bytes, sha256 };
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
 * Number of entries that fill a page if they are like the last ones; at most four times as many as
 * the last page had, because they may be larger.
 */
function nextPageLimit(entries: number, bytes: number): number {
  const fitting = Math.floor((PAGE_BYTES * entries) / Math.max(1, bytes));
  return Math.max(1, Math.min(fitting, 4 * entries, MAX_PAGE_ENTRIES));
}

/** Divides the added bytes into chunks, and computes their digest. */
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

  /** Returns the full chunks. */
  *takeFullChunks(): Iterable<Uint8Array> {
    if (this.waiting < CHUNK_BYTES) return;
    const all = Buffer.concat(this.parts);
    let from = 0;
    for (; all.length - from >= CHUNK_BYTES; from += CHUNK_BYTES)
      yield all.subarray(from, from + CHUNK_BYTES);
    this.parts = [all.subarray(from)];
    this.waiting = all.length - from;
  }

  /** Returns the remaining bytes at the end. */
  *takeRemaining(): Iterable<Uint8Array> {
    yield* this.takeFullChunks();
    if (this.waiting > 0) yield Buffer.concat(this.parts.splice(0));
  }

  private push(part: Uint8Array): void {
    this.parts.push(part);
    this.waiting += part.byteLength;
    this.bytes += part.byteLength;
  }
}
