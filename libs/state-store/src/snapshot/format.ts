import { CloudlessError } from '@cloudless/base';
import { MAX_KEY_BYTES, MAX_TXN_BYTES, type Revision, type StoreEntry } from '../state-store.js';

// A snapshot consists of a preamble (magic bytes and format version) and of sections. A section is
// kind (1 byte), length (4 bytes) and body. The sections are one header, the entries in the order
// of their keys, and one end. Numbers are big-endian. The end has the number of entries and the
// SHA-256 of all bytes before the digest.

/** First bytes of every snapshot. */
export const MAGIC = Buffer.from('cloudless-backup');
/** Version of the format that this file encodes and decodes. */
export const SNAPSHOT_FORMAT = 1;
/** Magic bytes and 4 bytes of format version. */
export const PREAMBLE_BYTES = MAGIC.length + 4;
/** 1 byte of kind and 4 bytes of length. */
export const SECTION_HEAD_BYTES = 5;
/** Bytes of a SHA-256. */
export const DIGEST_BYTES = 32;
/** Bytes of the number of entries, which precedes the digest. */
export const COUNT_BYTES = 8;
/** Kind byte of each section. */
export const SectionKind = { header: 1, entry: 2, end: 3 } as const;

/** 8 bytes of mod revision and 2 bytes of key length. */
const ENTRY_FIXED_BYTES = 10;
/** 8 bytes of revision and 4 bytes of schema version. */
const HEADER_FIXED_BYTES = 12;
/** Bytes of the largest valid entry. A reader refuses larger sections without reading them. */
export const MAX_SECTION_BYTES = ENTRY_FIXED_BYTES + MAX_KEY_BYTES + MAX_TXN_BYTES;

export interface SnapshotHeader {
  /** Id of the exported cluster. */
  readonly clusterId: string;
  /** Layout version of the records. */
  readonly schemaVersion: number;
  /** Revision of the exported state. */
  readonly revision: Revision;
}

export interface SnapshotSummary extends SnapshotHeader {
  /** Number of entries. */
  readonly entries: number;
  /** Bytes of the whole snapshot. */
  readonly bytes: number;
  /** Digest of all bytes before the digest, in hexadecimal. */
  readonly sha256: string;
}

/** Encodes magic bytes and format version. */
export function encodePreamble(): Buffer {
  const format = Buffer.alloc(4);
  format.writeUInt32BE(SNAPSHOT_FORMAT);
  return Buffer.concat([MAGIC, format]);
}

/**
 * Encodes kind and length of a section.
 * @param bytes - Length of the body.
 */
export function encodeSectionHead(kind: number, bytes: number): Buffer {
  const head = Buffer.allocUnsafe(SECTION_HEAD_BYTES);
  head.writeUInt8(kind, 0);
  head.writeUInt32BE(bytes, 1);
  return head;
}

/** Encodes the body of the header section: revision, schema version, cluster id. */
export function encodeHeader({ clusterId, schemaVersion, revision }: SnapshotHeader): Buffer {
  const fixed = Buffer.allocUnsafe(HEADER_FIXED_BYTES);
  fixed.writeBigUInt64BE(revision, 0);
  fixed.writeUInt32BE(schemaVersion, 8);
  return Buffer.concat([fixed, Buffer.from(clusterId)]);
}

/** @throws kind `precondition` when the body is not a header. */
export function decodeHeader(body: Buffer): SnapshotHeader {
  if (body.length < HEADER_FIXED_BYTES) throw createDamageError('its header is too short');
  return {
    revision: body.readBigUInt64BE(0),
    schemaVersion: body.readUInt32BE(8),
    clusterId: decodeText(body.subarray(HEADER_FIXED_BYTES), 'its header'),
  };
}

/** Encodes the body of an entry section: mod revision, key length, key, value. No lease. */
export function encodeEntry({ key, value, modRevision }: StoreEntry): Buffer {
  const encodedKey = Buffer.from(key);
  const fixed = Buffer.allocUnsafe(ENTRY_FIXED_BYTES);
  fixed.writeBigUInt64BE(modRevision, 0);
  fixed.writeUInt16BE(encodedKey.length, 8);
  return Buffer.concat([fixed, encodedKey, value]);
}

/** @throws kind `precondition` when the body is not an entry. */
export function decodeEntry(body: Buffer): StoreEntry {
  const keyBytes = body.length < ENTRY_FIXED_BYTES ? 0 : body.readUInt16BE(8);
  const end = ENTRY_FIXED_BYTES + keyBytes;
  if (keyBytes === 0 || keyBytes > MAX_KEY_BYTES || end > body.length)
    throw createDamageError('an entry in it has no readable key');
  return {
    modRevision: body.readBigUInt64BE(0),
    key: decodeText(body.subarray(ENTRY_FIXED_BYTES, end), 'a key in it'),
    value: new Uint8Array(body.subarray(end)),
  };
}

/**
 * Creates the error about a damaged snapshot.
 * @param problem - A clause about the backup, such as `its header is too short`.
 */
export function createDamageError(problem: string): CloudlessError {
  return new CloudlessError(
    'precondition',
    `the backup is damaged: ${problem}; do not trust any part of it, use another backup`,
  );
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function decodeText(bytes: Uint8Array, description: string): string {
  try {
    return utf8.decode(bytes);
  } catch {
    throw createDamageError(`${description} is not valid UTF-8`);
  }
}
