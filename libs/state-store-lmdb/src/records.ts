import { crc32 } from 'node:zlib';
import { CloudlessError } from '@cloudless/base';
import type {
  HistorySegment,
  LeaseId,
  LoggedChange,
  LoggedTransaction,
  StoredEntry,
  StoreHead,
} from '@cloudless/state-store';
import { ByteReader } from './byte-reader.js';
import { ByteWriter } from './byte-writer.js';

/** Version of everything in this file. A store of another version is refused. */
export const FORMAT_VERSION = 2;

const CHECKSUM_BYTES = 4;
const HAS_BEFORE = 1;
const HAS_AFTER = 2;

/** Reused for every record: what it returned is copied by LMDB before the next record is made. */
const scratch = new ByteWriter(64 * 1024);

/** Starts a record, with room for its checksum. */
export function startRecord(writer: ByteWriter): ByteWriter {
  return writer.clear().uint32(0);
}

/** The record with its checksum. Valid until the writer's next use. */
export function sealRecord(writer: ByteWriter): Buffer {
  const record = writer.view();
  record.writeUInt32BE(crc32(record.subarray(CHECKSUM_BYTES)), 0);
  return record;
}

/** Reads a record behind its checksum. @throws kind `internal` when the checksum does not fit. */
export function openRecord(record: Buffer): ByteReader {
  const content = record.subarray(CHECKSUM_BYTES);
  if (record.length < CHECKSUM_BYTES || crc32(content) !== record.readUInt32BE(0)) {
    throw new CloudlessError(
      'internal',
      'data file is damaged: the checksum of a record does not fit',
    );
  }
  return new ByteReader(content);
}

/** `modRevision lease value`; the key is LMDB's. Valid until the next record is made. */
export function encodeEntry(entry: StoredEntry): Buffer {
  return sealRecord(
    startRecord(scratch)
      .uint64(entry.modRevision)
      .text(entry.lease ?? '')
      .bytes(entry.value),
  );
}

export function decodeEntry(key: string, record: Buffer): StoredEntry {
  const reader = openRecord(record);
  return { key, modRevision: reader.uint64(), lease: leaseOf(reader.text()), value: reader.rest() };
}

/**
 * The counters, with the {@link proofOf} all entries and leases together: so one that is missing,
 * old or twice there is noticed.
 */
export interface HeadRecord extends StoreHead {
  /** Sum of the proofs, modulo 2^32. */
  readonly proof: number;
}

/** `revision compactedRevision leaseCount proof`. Valid until the next record is made. */
export function encodeHead({ revision, compactedRevision, leaseCount, proof }: HeadRecord): Buffer {
  const writer = startRecord(scratch)
    .uint64(revision)
    .uint64(compactedRevision)
    .uint64(BigInt(leaseCount));
  return sealRecord(writer.uint32(proof));
}

export function decodeHead(record: Buffer): HeadRecord {
  const reader = openRecord(record);
  return {
    revision: reader.uint64(),
    compactedRevision: reader.uint64(),
    leaseCount: Number(reader.uint64()),
    proof: reader.uint32(),
  };
}

/** Sums of proofs do not depend on their order. */
export function addProofs(a: number, b: number): number {
  return (a + b) >>> 0;
}

/**
 * A number for a record under its key; another for every other record, and for the same one under
 * another key.
 */
export function proofOf(key: Buffer, record: Buffer): number {
  return crc32(key, record.readUInt32BE(0));
}

/** Keys of the history are `first last changes`, so that they sort by revision. */
export function encodeSegmentKey({ first, last, changes }: Omit<HistorySegment, 'bytes'>): Buffer {
  return Buffer.from(new ByteWriter(20).uint64(first).uint64(last).uint32(changes).view());
}

export function decodeSegmentKey(key: Buffer): Omit<HistorySegment, 'bytes'> {
  const reader = new ByteReader(key);
  return { first: reader.uint64(), last: reader.uint64(), changes: reader.uint32() };
}

/**
 * Room that a record of the history takes in the data file: with its key in a page of many, or in
 * pages of its own.
 */
export function roomOf(recordBytes: number): number {
  const withKey = recordBytes + SEGMENT_KEY_BYTES;
  return withKey <= PAGE_BYTES / 2
    ? withKey
    : Math.ceil((withKey + PAGE_HEADER_BYTES) / PAGE_BYTES) * PAGE_BYTES;
}

/** Size of LMDB's pages on common machines. A record above half a page has pages of its own. */
const PAGE_BYTES = 4_096;
const PAGE_HEADER_BYTES = 24;
const SEGMENT_KEY_BYTES = 28;

/** Adds `revision count (flags key [before] [after])*` to a segment. */
export function encodeTransaction(
  writer: ByteWriter,
  { revision, changes }: LoggedTransaction,
): void {
  writer.uint64(revision).uint32(changes.length);
  for (const { key, before, after } of changes) {
    writer
      .uint8((before === undefined ? 0 : HAS_BEFORE) | (after === undefined ? 0 : HAS_AFTER))
      .text(key);
    if (before !== undefined) encodeInline(writer, before);
    if (after !== undefined) encodeInline(writer, after);
  }
}

/** The transactions of a segment after `after`. */
export function* decodeSegment(record: Buffer, after: bigint): Iterable<LoggedTransaction> {
  const reader = openRecord(record);
  while (!reader.atEnd) {
    const revision = reader.uint64();
    const changes = Array.from({ length: reader.uint32() }, () => decodeChange(reader));
    if (revision > after) yield { revision, changes };
  }
}

function decodeChange(reader: ByteReader): LoggedChange {
  const flags = reader.uint8();
  const key = reader.text();
  return {
    key,
    before: flags & HAS_BEFORE ? decodeInline(reader, key) : undefined,
    after: flags & HAS_AFTER ? decodeInline(reader, key) : undefined,
  };
}

function encodeInline(writer: ByteWriter, entry: StoredEntry): void {
  writer
    .uint64(entry.modRevision)
    .text(entry.lease ?? '')
    .uint32(entry.value.byteLength)
    .bytes(entry.value);
}

function decodeInline(reader: ByteReader, key: string): StoredEntry {
  return {
    key,
    modRevision: reader.uint64(),
    lease: leaseOf(reader.text()),
    value: reader.bytes(reader.uint32()),
  };
}

/** The time of a lease. Valid until the next record is made. */
export function encodeLease(ttlMs: number): Buffer {
  return sealRecord(startRecord(scratch).float64(ttlMs));
}

export function decodeLease(record: Buffer): number {
  return openRecord(record).float64();
}

function leaseOf(text: string): LeaseId | undefined {
  return text === '' ? undefined : text;
}
