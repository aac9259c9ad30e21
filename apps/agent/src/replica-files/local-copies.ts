import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { errorFields, type Log } from '@cloudless/base';
import type { ReplicaValues } from '@cloudless/agent-core';
import { ReplicaFilesVersionSchema, type ReplicaFilesVersion } from '@cloudless/api';
import { SealedFiles, type SealedText } from '../data/sealed-files.js';

/** Folder in the data directory with the copies, and the file with their key. */
export const COPIES_FOLDER = 'replica-files-copies';
export const COPIES_KEY = 'replica-files.key';
const FORMAT = 1;

/** One encrypted entry of a copy. */
interface CopyEntry extends SealedText {
  readonly kind: number;
  readonly name: string;
  readonly uid: string;
  readonly version: number;
  readonly signalPending: boolean;
}

/** Copies of the values of replicas, encrypted with a key of this node. */
export class LocalCopies {
  private readonly files: SealedFiles;

  constructor(
    dataDir: string,
    private readonly log: Log,
  ) {
    this.files = new SealedFiles(join(dataDir, COPIES_FOLDER), join(dataDir, COPIES_KEY));
  }

  /** Reads a copy; empty when there is none, or it is damaged or of another node. */
  async read(replicaId: string): Promise<readonly ReplicaValues[]> {
    let text: string;
    try {
      text = await this.files.read(replicaId);
    } catch {
      return [];
    }
    try {
      const { format, entries } = JSON.parse(text) as {
        readonly format: number;
        readonly entries: readonly CopyEntry[];
      };
      if (format !== FORMAT) return [];
      return await Promise.all(entries.map((entry) => this.decrypt(replicaId, entry)));
    } catch (reason) {
      this.log.warn('local copy of the values is damaged', { replicaId, ...errorFields(reason) });
      return [];
    }
  }

  /** Replaces a copy, flushed to disk. */
  async save(replicaId: string, values: readonly ReplicaValues[]): Promise<void> {
    const entries = await Promise.all(values.map((each) => this.encrypt(replicaId, each)));
    await this.files.write(replicaId, JSON.stringify({ format: FORMAT, entries }));
  }

  remove(replicaId: string): Promise<void> {
    return this.files.remove(replicaId);
  }

  /** Lists the replicas that have a copy. */
  list(): Promise<readonly string[]> {
    return this.files.list();
  }

  private async encrypt(
    replicaId: string,
    { version: { kind, name, uid, version }, data, signalPending }: ReplicaValues,
  ): Promise<CopyEntry> {
    const open = { kind, name, uid, version, signalPending };
    const values = [...data].map(([name, value]) => [name, Buffer.from(value).toString('base64')]);
    const sealed = await this.files.seal(JSON.stringify(values), toContext(replicaId, open));
    return { ...open, ...sealed };
  }

  private async decrypt(replicaId: string, entry: CopyEntry): Promise<ReplicaValues> {
    const text = await this.files.unseal(entry, toContext(replicaId, entry));
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
}

/** Binds the values to their replica, secret and version. */
function toContext(replicaId: string, entry: Omit<CopyEntry, keyof SealedText>): string {
  const { kind, name, uid, version, signalPending } = entry;
  return JSON.stringify([FORMAT, replicaId, kind, name, uid, version, signalPending]);
}
