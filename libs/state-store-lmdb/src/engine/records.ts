import { CloudlessError } from '@cloudless/base';
import {
  toStoreEntry,
  type Change,
  type HistorySegment,
  type LeaseId,
  type LoggedTransaction,
  type Revision,
  type StoreEntry,
  type StoredEntry,
  type StoreHead,
} from '@cloudless/state-store';
import { ByteReader, MAX_SAFE_HIGH } from './byte-reader.js';
import { ByteWriter } from './byte-writer.js';
import { crc32 } from './crc32.js';

/** Version of the record formats in this file. Opening a store of another version is refused. */
export const FORMAT_VERSION = 2;

const CHECKSUM_BYTES = 4;
/** Flags of a change in a history record. */
const HAS_BEFORE = 1;
const HAS_AFTER = 2;

/** Shared by all records, because LMDB copies a record before the next one is encoded. */
const sharedWriter = new ByteWriter(64 * 1024);

/** Begins a record: clears the writer and leaves space for the checksum. */
export function startRecord(writer: ByteWriter): ByteWriter {
  return writer.clear().uint32(0);
}

/** Writes the checksum and returns the record. Valid until the next use of the writer. */
export function sealRecord(writer: ByteWriter): Buffer {
  const record = writer.view();
  record.writeUInt32BE(crc32(record, CHECKSUM_BYTES, record.length), 0);
  return record;
}

/**
 * Returns a reader for the content of a record.
 * @throws kind `internal` when the checksum does not match.
 */
export function openRecord(record: Buffer): ByteReader {
  if (
    record.length < CHECKSUM_BYTES ||
    crc32(record, CHECKSUM_BYTES, record.length) !== record.readUInt32BE(0)
  )
    throw createChecksumError();
  return new ByteReader(record.subarray(CHECKSUM_BYTES));
}

function createChecksumError(): CloudlessError {
  return new CloudlessError(
    'internal',
    'data file is damaged: the checksum of a record does not match',
  );
}

/** Encodes an entry: mod revision, lease id, value. Valid until the next record is encoded. */
export function encodeEntry(entry: StoredEntry): Buffer {
  return sealRecord(
    startRecord(sharedWriter)
      .uint64(entry.modRevision)
      .text(entry.lease ?? '')
      .bytes(entry.value),
  );
}

/**
 * The value shares the memory of `record`, of which LMDB gives each reader a copy.
 * @throws kind `internal` when the checksum does not match.
 */
export function decodeEntry(key: string, record: Buffer): StoredEntry {
  const reader = openRecord(record);
  return {
    key,
    modRevision: reader.uint64(),
    lease: toLeaseId(reader.text()),
    value: reader.rest(),
  };
}

/** Bytes of checksum, mod revision and length of the lease id: the shortest record of an entry. */
const MIN_ENTRY_BYTES = CHECKSUM_BYTES + 8 + 2;
const TWO_TO_32 = 2 ** 32;

/** Reads the records of many entries, without an object for each of them. */
export class EntryHeadReader {
  /** Hash of key and record, as {@link hashRecord} returns. */
  hash = 0;
  /** Mod revision. Successive entries of one transaction share the bigint. */
  modRevision: Revision = 0n;
  lease: LeaseId | undefined;
  /** Offset of the value, which ends with the record. */
  valueStart = 0;
  private lastHigh = 0;
  private lastLow = 0;

  /**
   * Reads an entry into the properties of this object.
   * @throws kind `internal` when the checksum does not match.
   */
  read(
    keys: Buffer,
    keyStart: number,
    keyEnd: number,
    records: Buffer,
    start: number,
    end: number,
  ): void {
    if (end - start < MIN_ENTRY_BYTES) throw createChecksumError();
    const checksum = records.readUInt32BE(start);
    if (crc32(records, start + CHECKSUM_BYTES, end) !== checksum) throw createChecksumError();
    const high = records.readUInt32BE(start + 4);
    const low = records.readUInt32BE(start + 8);
    if (high !== this.lastHigh || low !== this.lastLow) {
      const isSafe = high < MAX_SAFE_HIGH;
      this.modRevision = isSafe
        ? BigInt(high * TWO_TO_32 + low)
        : records.readBigUInt64BE(start + 4);
      [this.lastHigh, this.lastLow] = [high, low];
    }
    const leaseBytes = records.readUInt16BE(start + 12);
    this.valueStart = start + MIN_ENTRY_BYTES + leaseBytes;
    if (this.valueStart > end) throw new RangeError(`record ends at byte ${end}`);
    this.lease =
      leaseBytes === 0
        ? undefined
        : records.toString('utf8', start + MIN_ENTRY_BYTES, this.valueStart);
    this.hash = crc32(keys, keyStart, keyEnd, checksum);
  }
}

/**
 * The counters of the store, and the sum of the hashes of all entries and leases. A missing,
 * outdated or duplicate record changes the sum.
 */
export interface HeadRecord extends StoreHead {
  /** Sum of the record hashes, modulo 2^32. */
  readonly hashSum: number;
}

/**
 * Encodes the counters: revision, compacted revision, lease count, hash sum. Valid until the next
 * record is encoded.
 */
export function encodeHead({
  revision,
  compactedRevision,
  leaseCount,
  hashSum,
}: HeadRecord): Buffer {
  const writer = startRecord(sharedWriter)
    .uint64(revision)
    .uint64(compactedRevision)
    .uint64(BigInt(leaseCount));
  return sealRecord(writer.uint32(hashSum));
}

/** @throws kind `internal` when the checksum does not match. */
export function decodeHead(record: Buffer): HeadRecord {
  const reader = openRecord(record);
  return {
    revision: reader.uint64(),
    compactedRevision: reader.uint64(),
    leaseCount: Number(reader.uint64()),
    hashSum: reader.uint32(),
  };
}

/** Adds hashes modulo 2^32. A negative number subtracts. */
export function addHashes(a: number, b: number): number {
  return (a + b) >>> 0;
}

/**
 * Returns the hash of a record and its key. Another record, or the same record under another key,
 * has another hash.
 */
export function hashRecord(key: Buffer, record: Buffer): number {
  return crc32(key, 0, key.length, record.readUInt32BE(0));
}

/** Encodes the key of a history record: first and last revision, changes. Keys sort by revision. */
export function encodeSegmentKey({ first, last, changes }: Omit<HistorySegment, 'bytes'>): Buffer {
  return Buffer.from(new ByteWriter(20).uint64(first).uint64(last).uint32(changes).view());
}

export function decodeSegmentKey(key: Buffer): Omit<HistorySegment, 'bytes'> {
  const reader = new ByteReader(key);
  return { first: reader.uint64(), last: reader.uint64(), changes: reader.uint32() };
}

/**
 * Returns the bytes that a history record needs in the data file: record and key in a shared page,
 * or whole overflow pages.
 * @param recordBytes - Length of the encoded record.
 */
export function getSpace(recordBytes: number): number {
  const withKey = recordBytes + SEGMENT_KEY_BYTES;
  return withKey <= PAGE_BYTES / 2
    ? withKey
    : Math.ceil((withKey + PAGE_HEADER_BYTES) / PAGE_BYTES) * PAGE_BYTES;
}

/** Page size of LMDB on common machines. A record of more than half a page has its own pages. */
const PAGE_BYTES = 4_096;
const PAGE_HEADER_BYTES = 24;
/** 20 bytes of key and 8 bytes of node header. */
const SEGMENT_KEY_BYTES = 28;

/**
 * Appends a transaction to a segment: revision, number of changes, and for each change flags, key,
 * entry before and entry after.
 */
export function encodeTransaction(
  writer: ByteWriter,
  { revision, changes, entriesBefore }: LoggedTransaction,
): void {
  writer.uint64(revision).uint32(changes.length);
  for (let index = 0; index < changes.length; index += 1) {
    const change = changes[index] as Change;
    const before = entriesBefore[index];
    const isPut = change.kind === 'put';
    writer
      .uint8((before === undefined ? 0 : HAS_BEFORE) | (isPut ? HAS_AFTER : 0))
      .text(isPut ? change.entry.key : change.key);
    if (before !== undefined) encodeInline(writer, before);
    if (isPut) encodeInline(writer, change.entry);
  }
}

/**
 * Yields the transactions of a segment with a revision above `after`.
 * @throws kind `internal` when the checksum does not match.
 */
export function* decodeSegment(record: Buffer, after: bigint): Iterable<LoggedTransaction> {
  const reader = openRecord(record);
  while (!reader.atEnd) {
    const revision = reader.uint64();
    const count = reader.uint32();
    const changes: Change[] = [];
    const entriesBefore: (StoredEntry | undefined)[] = [];
    for (let index = 0; index < count; index += 1) {
      const flags = reader.uint8();
      const key = reader.text();
      entriesBefore.push(flags & HAS_BEFORE ? decodeInline(reader, key) : undefined);
      changes.push(
        flags & HAS_AFTER
          ? { kind: 'put', entry: decodeInline(reader, key) }
          : { kind: 'delete', key, modRevision: revision },
      );
    }
    if (revision > after) yield { revision, changes, entriesBefore };
  }
}

/**
 * Reads the revisions of a segment without its changes, to check the record.
 * @returns For each transaction the revision and the number of changes.
 * @throws kind `internal` when the checksum does not match.
 */
export function decodeSegmentHeads(
  record: Buffer,
): readonly { readonly revision: bigint; readonly changes: number }[] {
  const reader = openRecord(record);
  const heads: { readonly revision: bigint; readonly changes: number }[] = [];
  while (!reader.atEnd) {
    const revision = reader.uint64();
    const changes = reader.uint32();
    for (let index = 0; index < changes; index += 1) skipChange(reader);
    heads.push({ revision, changes });
  }
  return heads;
}

function skipChange(reader: ByteReader): void {
  const flags = reader.uint8();
  reader.skipText();
  if (flags & HAS_BEFORE) skipInline(reader);
  if (flags & HAS_AFTER) skipInline(reader);
}

/** Moves past mod revision, lease id and value. */
function skipInline(reader: ByteReader): void {
  reader.skipBytes(8).skipText();
  reader.skipBytes(reader.uint32());
}

function encodeInline(writer: ByteWriter, entry: StoredEntry): void {
  writer
    .uint64(entry.modRevision)
    .text(entry.lease ?? '')
    .uint32(entry.value.byteLength)
    .bytes(entry.value);
}

function decodeInline(reader: ByteReader, key: string): StoreEntry {
  const modRevision = reader.uint64();
  const lease = toLeaseId(reader.text());
  const value = reader.bytes(reader.uint32());
  return toStoreEntry({ key, value, modRevision, lease });
}

/** Encodes a lease: the TTL in milliseconds. Valid until the next record is encoded. */
export function encodeLease(ttlMs: number): Buffer {
  return sealRecord(startRecord(sharedWriter).float64(ttlMs));
}

/**
 * Returns the TTL of a lease in milliseconds.
 * @throws kind `internal` when the checksum does not match.
 */
export function decodeLease(record: Buffer): number {
  return openRecord(record).float64();
}

function toLeaseId(text: string): LeaseId | undefined {
  return text === '' ? undefined : text;
}
