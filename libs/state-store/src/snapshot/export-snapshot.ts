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

/** Bytes of a chunk: large enough for few calls of the reader, small enough for little memory. */
const CHUNK_BYTES = 128 * 1024;
/** Target bytes of a page. Reading a page blocks the event loop for some milliseconds. */
const PAGE_BYTES = 1024 * 1024;
/** Entries of the first page. Small, because the sizes of the entries are not known yet. */
const FIRST_PAGE_ENTRIES = 32;
/** Entries of a page at most, because each entry costs time even when it is small. */
const MAX_PAGE_ENTRIES = 1_000;

/**
 * Exports the newest revision of a store as one self-describing stream with a SHA-256 at the end.
 * Reads page by page while writes continue; holds one page and one chunk in memory. Omits entries
 * on a lease, because their holders do not exist after a restore.
 * @param cluster - Cluster id and layout version for the header.
 * @returns A summary, as the return value of the generator after its last chunk.
 * @throws kind `unavailable` when the store changed so much during the export that the revision is
 *   no longer retained. Start a new export.
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
 * Returns the number of entries that fill a page if they have the mean size of the last page; at
 * most four times the entries of the last page, because the next entries may be larger.
 */
function nextPageLimit(entries: number, bytes: number): number {
  const fittingEntries = Math.floor((PAGE_BYTES * entries) / Math.max(1, bytes));
  return Math.max(1, Math.min(fittingEntries, 4 * entries, MAX_PAGE_ENTRIES));
}

/** Divides the added bytes into chunks, and computes their digest. */
class ChunkWriter {
  /** Bytes added so far. */
  bytes = 0;
  private readonly hash = createHash('sha256');
  private parts: Uint8Array[] = [];
  /** Bytes of `parts`. */
  private partBytes = 0;

  add(part: Uint8Array): void {
    this.hash.update(part);
    this.push(part);
  }

  addSection(kind: number, body: Buffer): void {
    this.add(encodeSectionHead(kind, body.length));
    this.add(body);
  }

  /**
   * Adds the end section.
   * @returns The SHA-256 of all bytes before the digest, in hexadecimal.
   */
  addEnd(entries: number): string {
    const count = Buffer.alloc(COUNT_BYTES);
    count.writeBigUInt64BE(BigInt(entries));
    this.add(encodeSectionHead(SectionKind.end, COUNT_BYTES + DIGEST_BYTES));
    this.add(count);
    const digest = this.hash.digest();
    this.push(digest);
    return digest.toString('hex');
  }

  /** Removes and returns the full chunks. */
  *takeFullChunks(): Iterable<Uint8Array> {
    if (this.partBytes < CHUNK_BYTES) return;
    const all = Buffer.concat(this.parts);
    let from = 0;
    for (; all.length - from >= CHUNK_BYTES; from += CHUNK_BYTES)
      yield all.subarray(from, from + CHUNK_BYTES);
    this.parts = [all.subarray(from)];
    this.partBytes = all.length - from;
  }

  /** Removes and returns all remaining bytes; the last chunk may be short. */
  *takeRemaining(): Iterable<Uint8Array> {
    yield* this.takeFullChunks();
    if (this.partBytes > 0) yield Buffer.concat(this.parts.splice(0));
  }

  private push(part: Uint8Array): void {
    this.parts.push(part);
    this.partBytes += part.byteLength;
    this.bytes += part.byteLength;
  }
}
