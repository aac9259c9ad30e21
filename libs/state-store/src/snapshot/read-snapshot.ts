import { createHash, type Hash } from 'node:crypto';
import { CloudlessError, errorKindOf } from '@cloudless/base';
import type { StoreEntry } from '../state-store.js';
import { compareKeys } from '../utf8.js';
import {
  COUNT_BYTES,
  createDamageError,
  decodeEntry,
  decodeHeader,
  DIGEST_BYTES,
  MAGIC,
  MAX_SECTION_BYTES,
  PREAMBLE_BYTES,
  SECTION_HEAD_BYTES,
  SectionKind,
  SNAPSHOT_FORMAT,
  type SnapshotHeader,
  type SnapshotSummary,
} from './format.js';

/**
 * Yields the entries of a snapshot in the order of their keys. The digest is compared only after
 * the last entry: discard all entries when the generator throws. Holds one section and one chunk in
 * memory.
 * @returns A summary, as the return value of the generator.
 * @throws kind `precondition` when the input is not a snapshot, has another format, or is truncated
 *   or altered.
 */
export async function* readSnapshot(
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<StoreEntry, SnapshotSummary> {
  const source = new ByteSource(chunks);
  try {
    await readPreamble(source);
    const first = await readSection(source);
    if (first.kind !== SectionKind.header) throw createDamageError('it has no header');
    const header = decodeHeader(first.body);
    let previousKey = '';
    let entries = 0;
    for (;;) {
      const { kind, body } = await readSection(source);
      if (kind === SectionKind.end) return await readEnd(source, body, header, entries);
      if (kind !== SectionKind.entry)
        throw createDamageError(`there is no section of kind ${kind}`);
      const entry = decodeEntry(body);
      checkEntry(entry, previousKey, header);
      previousKey = entry.key;
      entries += 1;
      yield entry;
    }
  } finally {
    await source.close();
  }
}

/**
 * Reads and verifies a whole snapshot without keeping its entries.
 * @throws The errors of {@link readSnapshot}.
 */
export async function verifySnapshot(chunks: AsyncIterable<Uint8Array>): Promise<SnapshotSummary> {
  const entries = readSnapshot(chunks);
  for (;;) {
    const next = await entries.next();
    if (next.done === true) return next.value;
  }
}

async function readPreamble(source: ByteSource): Promise<void> {
  const preamble = await source.read(PREAMBLE_BYTES).catch((reason: unknown) => {
    if (errorKindOf(reason) !== 'precondition') throw reason; // the input could not be read at all
  });
  if (preamble === undefined || !preamble.subarray(0, MAGIC.length).equals(MAGIC)) {
    throw new CloudlessError(
      'precondition',
      'not a backup of a Cloudless cluster: the first bytes are not those of a backup',
    );
  }
  const format = preamble.readUInt32BE(MAGIC.length);
  if (format === SNAPSHOT_FORMAT) return;
  throw new CloudlessError(
    'precondition',
    `the backup has format ${format}, this program reads format ${SNAPSHOT_FORMAT}; use the version of Cloudless that made the backup`,
  );
}

/**
 * Reads one section. Leaves the digest of the end section unread, because the digest covers all
 * bytes before the digest.
 */
async function readSection(
  source: ByteSource,
): Promise<{ readonly kind: number; readonly body: Buffer }> {
  const head = await source.read(SECTION_HEAD_BYTES);
  const kind = head.readUInt8(0);
  const bytes = head.readUInt32BE(1);
  if (bytes > MAX_SECTION_BYTES)
    throw createDamageError(`a section of ${bytes} bytes is larger than any`);
  if (kind === SectionKind.end && bytes !== COUNT_BYTES + DIGEST_BYTES)
    throw createDamageError('its end section is invalid');
  return { kind, body: await source.read(kind === SectionKind.end ? COUNT_BYTES : bytes) };
}

async function readEnd(
  source: ByteSource,
  count: Buffer,
  header: SnapshotHeader,
  entries: number,
): Promise<SnapshotSummary> {
  const actualDigest = source.hash.digest('hex');
  const digest = (await source.readUnhashed(DIGEST_BYTES)).toString('hex');
  if (digest !== actualDigest) throw createDamageError('its SHA-256 does not match');
  if (count.readBigUInt64BE() !== BigInt(entries))
    throw createDamageError('its number of entries does not match');
  if (!(await source.isAtEnd())) throw createDamageError('bytes follow after its end');
  return { ...header, entries, bytes: source.bytes, sha256: digest };
}

function checkEntry(
  { key, modRevision }: StoreEntry,
  previousKey: string,
  { revision }: SnapshotHeader,
): void {
  if (previousKey !== '' && compareKeys(key, previousKey) <= 0)
    throw createDamageError('its entries are out of order');
  if (modRevision < 1n || modRevision > revision)
    throw createDamageError(`an entry is of revision ${modRevision}, after revision ${revision}`);
}

/** Reads a stream of chunks in pieces of given sizes, and computes the SHA-256 of all pieces. */
class ByteSource {
  readonly hash: Hash = createHash('sha256');
  /** Bytes read so far. */
  bytes = 0;
  private readonly iterator: AsyncIterator<Uint8Array>;
  /** Bytes of the last chunk that were not returned yet. */
  private unread = Buffer.alloc(0);

  constructor(chunks: AsyncIterable<Uint8Array>) {
    this.iterator = chunks[Symbol.asyncIterator]();
  }

  /** @throws kind `precondition` when fewer than `count` bytes remain. */
  async read(count: number): Promise<Buffer> {
    const piece = await this.readUnhashed(count);
    this.hash.update(piece);
    return piece;
  }

  /** Same as {@link ByteSource.read}, without adding the bytes to the hash. */
  async readUnhashed(count: number): Promise<Buffer> {
    const parts: Uint8Array[] = [this.unread];
    let length = this.unread.length;
    while (length < count) {
      const next = await this.iterator.next();
      if (next.done === true)
        throw createDamageError(`it is truncated after ${this.bytes + length} bytes`);
      parts.push(next.value);
      length += next.value.byteLength;
    }
    const all = parts.length === 1 ? this.unread : Buffer.concat(parts);
    this.unread = all.subarray(count);
    this.bytes += count;
    return all.subarray(0, count);
  }

  async isAtEnd(): Promise<boolean> {
    while (this.unread.length === 0) {
      const next = await this.iterator.next();
      if (next.done === true) return true;
      this.unread = Buffer.from(next.value);
    }
    return false;
  }

  async close(): Promise<void> {
    await this.iterator.return?.();
  }
}
