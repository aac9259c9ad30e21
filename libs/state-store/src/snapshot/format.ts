import { CloudlessError } from '@cloudless/base';
import { MAX_KEY_BYTES, MAX_TXN_BYTES, type Revision, type StoreEntry } from '../state-store.js';

// A snapshot is: magic, format, then sections of `kind, length, body`: one header, the entries in
// the order of their keys, one end. Numbers are big-endian. The digest in the end is that of every
// byte before it.

/** What every snapshot begins with. */
export const MAGIC = Buffer.from('cloudless-backup');
/** Version of everything in this file. */
export const SNAPSHOT_FORMAT = 1;
export const PREAMBLE_BYTES = MAGIC.length + 4;
export const SECTION_HEAD_BYTES = 5;
export const DIGEST_BYTES = 32;
/** The number of entries, in front of the digest. */
export const COUNT_BYTES = 8;
export const SectionKind = { header: 1, entry: 2, end: 3 } as const;

const ENTRY_FIXED_BYTES = 10;
const HEADER_FIXED_BYTES = 12;
/**
 * No entry is larger: a reader never holds more than this of a section, whatever its length says.
 */
export const MAX_SECTION_BYTES = ENTRY_FIXED_BYTES + MAX_KEY_BYTES + MAX_TXN_BYTES;

/** Whose state a snapshot holds, and of when. */
export interface SnapshotHeader {
  /** The cluster it was taken of. */
  readonly clusterId: string;
  /** Layout of the records in it, as its cluster knows it. */
  readonly schemaVersion: number;
  /** The revision all entries are shown at. */
  readonly revision: Revision;
}

/** What a whole snapshot came to. */
export interface SnapshotSummary extends SnapshotHeader {
  readonly entries: number;
  readonly bytes: number;
  /** Digest of all bytes before it, in hexadecimal. */
  readonly sha256: string;
}

/** The first bytes, up to the first section. */
export function encodePreamble(): Buffer {
  const format = Buffer.alloc(4);
  format.writeUInt32BE(SNAPSHOT_FORMAT);
  return Buffer.concat([MAGIC, format]);
}

/** `kind length`, in front of every section. */
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
  if (body.length < HEADER_FIXED_BYTES) throw damaged('its header is too short');
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
    throw damaged('an entry in it has no readable key');
  return {
    modRevision: body.readBigUInt64BE(0),
    key: decodeText(body.subarray(ENTRY_FIXED_BYTES, end), 'a key in it'),
    value: new Uint8Array(body.subarray(end)),
  };
}

/** @throws what a reader of a snapshot throws when it cannot be trusted. */
export function damaged(how: string): CloudlessError {
  return new CloudlessError(
    'precondition',
    `the backup is damaged: ${how}; nothing of it can be trusted, use another one`,
  );
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function decodeText(bytes: Uint8Array, what: string): string {
  try {
    return utf8.decode(bytes);
  } catch {
    throw damaged(`${what} is no text`);
  }
}
