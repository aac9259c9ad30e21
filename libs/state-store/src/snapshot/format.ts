import { CloudlessError } from '@cloudless/base';
import { MAX_KEY_BYTES, MAX_TXN_BYTES, type Revision, type StoreEntry } from '../state-store.js';

// A snapshot consists of magic, format and sections of `kind, length, body`: one header, the
// entries in the order of their keys, one end. Numbers are big-endian. The end has the digest of
// all bytes before the digest.

/** First bytes of every snapshot. */
export const MAGIC = Buffer.from('cloudless-backup');
/** Version of the format in this file. */
export const SNAPSHOT_FORMAT = 1;
export const PREAMBLE_BYTES = MAGIC.length + 4;
export const SECTION_HEAD_BYTES = 5;
export const DIGEST_BYTES = 32;
/** Number of entries, before the digest. */
export const COUNT_BYTES = 8;
export const SectionKind = { header: 1, entry: 2, end: 3 } as const;

const ENTRY_FIXED_BYTES = 10;
const HEADER_FIXED_BYTES = 12;
/** Size of the largest valid entry. A reader refuses larger sections without reading them. */
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
  readonly entries: number;
  readonly bytes: number;
  /** Digest of all bytes before the digest, in hexadecimal. */
  readonly sha256: string;
}

/** Magic and format. */
export function encodePreamble(): Buffer {
  const format = Buffer.alloc(4);
  format.writeUInt32BE(SNAPSHOT_FORMAT);
  return Buffer.concat([MAGIC, format]);
}

/** Kind and length. */
export function encodeSectionHead(kind: number, bytes: number): Buffer {
  const head = Buffer.allocUnsafe(SECTION_HEAD_BYTES);
  head.writeUInt8(kind, 0);
  head.writeUInt32BE(bytes, 1);
  return head;
}

/** `revision schemaVersion clusterId`. */
export function encodeHeader({ clusterId, schemaVersion, revision }: SnapshotHeader): Buffer {
  const fixed = Buffer.allocUnsafe(HEADER_FIXED_BYTES);
  fixed.writeBigUInt64BE(revision, 0);
  fixed.writeUInt32BE(schemaVersion, 8);
  return Buffer.concat([fixed, Buffer.from(clusterId)]);
}

export function decodeHeader(body: Buffer): SnapshotHeader {
  if (body.length < HEADER_FIXED_BYTES) throw createDamageError('its header is too short');
  return {
    revision: body.readBigUInt64BE(0),
    schemaVersion: body.readUInt32BE(8),
    clusterId: decodeText(body.subarray(HEADER_FIXED_BYTES), 'its header'),
  };
}

/** `modRevision keyBytes key value`. */
export function encodeEntry({ key, value, modRevision }: StoreEntry): Buffer {
  const name = Buffer.from(key);
  const fixed = Buffer.allocUnsafe(ENTRY_FIXED_BYTES);
  fixed.writeBigUInt64BE(modRevision, 0);
  fixed.writeUInt16BE(name.length, 8);
  return Buffer.concat([fixed, name, value]);
}

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

/** Creates the error about an untrustworthy snapshot. */
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
