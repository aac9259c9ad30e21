import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { chmod, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { errorFields, type Log } from '@cloudless/base';
import type { ReplicaValues } from '@cloudless/agent-core';
import { ReplicaFilesVersionSchema, type ReplicaFilesVersion } from '@cloudless/api';
import { makeDirectory } from '@cloudless/app-kit';
import { syncFolder } from '../data/sync-folder.js';

/** Folder in the data directory with the copies, and the file with their key. */
export const COPIES_FOLDER = 'replica-files-copies';
export const COPIES_KEY = 'replica-files.key';
const KEY_BYTES = 32;
/** As NIST SP 800-38D recommends for AES-GCM. A random nonce is used for each encryption. */
const NONCE_BYTES = 12;
const ALGORITHM = 'aes-256-gcm';
const FORMAT = 1;
const DRAFT = '.draft';

/** One encrypted entry of a copy. */
interface CopyEntry {
  readonly kind: number;
  readonly name: string;
  readonly uid: string;
  readonly version: number;
  readonly signalPending: boolean;
  /** In base64, like the other two. */
  readonly nonce: string;
  readonly tag: string;
  readonly data: string;
}

/**
 * Copies of the values of replicas, encrypted with a key of this node (AES-256-GCM), so that a
 * backup or a leaked file of the folder shows no value. Whoever can read the key and the folder, as
 * root can, can read the values.
 */
export class LocalCopies {
  private readonly folder: string;
  private readonly keyFile: string;
  private key: Promise<Buffer> | undefined;

  constructor(
    dataDir: string,
    private readonly log: Log,
  ) {
    this.folder = join(dataDir, COPIES_FOLDER);
    this.keyFile = join(dataDir, COPIES_KEY);
  }

  /** Reads a copy; empty when there is none, or it is damaged or of another node. */
  async read(replicaId: string): Promise<readonly ReplicaValues[]> {
    let text: string;
    try {
      text = await readFile(join(this.folder, replicaId), 'utf8');
    } catch {
      return [];
    }
    try {
      const { format, entries } = JSON.parse(text) as {
        readonly format: number;
        readonly entries: readonly CopyEntry[];
      };
      if (format !== FORMAT) return [];
      const key = await this.getKey();
      return entries.map((entry) => decrypt(key, replicaId, entry));
    } catch (reason) {
      this.log.warn('local copy of the values is damaged', { replicaId, ...errorFields(reason) });
      return [];
    }
  }

  /** Replaces a copy, flushed to disk. */
  async save(replicaId: string, values: readonly ReplicaValues[]): Promise<void> {
    const key = await this.getKey();
    await makeDirectory(this.folder, 0o700);
    const entries = values.map((each) => encrypt(key, replicaId, each));
    await writePrivately(this.folder, replicaId, JSON.stringify({ format: FORMAT, entries }));
  }

  async remove(replicaId: string): Promise<void> {
    await rm(join(this.folder, replicaId), { force: true });
    await rm(join(this.folder, `${replicaId}${DRAFT}`), { force: true });
  }

  /** Lists the replicas that have a copy. */
  async list(): Promise<readonly string[]> {
    const names = await readdir(this.folder).catch(() => []);
    return names.map((name) => (name.endsWith(DRAFT) ? name.slice(0, -DRAFT.length) : name));
  }

  private getKey(): Promise<Buffer> {
    this.key ??= this.openKey();
    this.key.catch(() => (this.key = undefined));
    return this.key;
  }

  /** Reads the key, or creates one. Copies under a lost key are worthless, and fetched again. */
  private async openKey(): Promise<Buffer> {
    const stored = await readFile(this.keyFile).catch(() => undefined);
    if (stored?.length === KEY_BYTES) return stored;
    const key = randomBytes(KEY_BYTES);
    await writePrivately(join(this.keyFile, '..'), COPIES_KEY, key);
    return key;
  }
}

/** Binds the values to their replica, secret and version. */
function toAad(replicaId: string, entry: Omit<CopyEntry, 'nonce' | 'tag' | 'data'>): Buffer {
  const { kind, name, uid, version, signalPending } = entry;
  return Buffer.from(JSON.stringify([FORMAT, replicaId, kind, name, uid, version, signalPending]));
}

function encrypt(
  key: Buffer,
  replicaId: string,
  { version: { kind, name, uid, version }, data, signalPending }: ReplicaValues,
): CopyEntry {
  const nonce = randomBytes(NONCE_BYTES);
  const open = { kind, name, uid, version, signalPending };
  const cipher = createCipheriv(ALGORITHM, key, nonce).setAAD(toAad(replicaId, open));
  const values = [...data].map(([name, value]) => [name, Buffer.from(value).toString('base64')]);
  const encrypted = Buffer.concat([cipher.update(JSON.stringify(values), 'utf8'), cipher.final()]);
  return {
    ...open,
    nonce: nonce.toString('base64'),
    tag: cipher.getAuthTag().toString('base64'),
    data: encrypted.toString('base64'),
  };
}

function decrypt(key: Buffer, replicaId: string, entry: CopyEntry): ReplicaValues {
  const [nonce, tag, data] = [entry.nonce, entry.tag, entry.data].map((text) =>
    Buffer.from(text, 'base64'),
  ) as [Buffer, Buffer, Buffer];
  const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: 16 })
    .setAAD(toAad(replicaId, entry))
    .setAuthTag(tag);
  const text = Buffer.concat([decipher.update(data), decipher.final()]).toString();
  const values = JSON.parse(text) as readonly (readonly [string, string])[];
  const { kind, name, uid, version, signalPending } = entry;
  return {
    version: create(ReplicaFilesVersionSchema, {
      ...{ kind: kind as ReplicaFilesVersion['kind'], name, uid, version },
    }),
    data: new Map(
      values.map(([key, value]) => [key, new Uint8Array(Buffer.from(value, 'base64'))]),
    ),
    signalPending,
  };
}

/** Writes a file that only this user can read, atomically, and flushes it to disk. */
async function writePrivately(
  folder: string,
  name: string,
  content: string | Uint8Array,
): Promise<void> {
  const draft = join(folder, `${name}${DRAFT}`);
  const file = await open(draft, 'w', 0o600);
  try {
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
  await chmod(draft, 0o600);
  await rename(draft, join(folder, name));
  await syncFolder(folder);
}
