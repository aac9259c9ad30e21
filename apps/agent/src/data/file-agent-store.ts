import { readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { definedFields, CloudlessError, errorCodeOf } from '@cloudless/base';
import {
  isPhase,
  type AgentIdentity,
  type AgentStore,
  type SaveOptions,
  type StoredAgent,
  type StoredCoordinator,
  type StoredReplica,
} from '@cloudless/agent-core';
import { makeDirectory } from '@cloudless/app-kit';
import { DiskReserve, isNoSpace, writeFlushed } from './disk-reserve.js';
import { syncFolder } from './sync-folder.js';
import { replaceFile, writeFromReserve } from './write-from-reserve.js';

/** Format version of the files; incremented by incompatible changes. */
const FORMAT = 1;
const IDENTITY = 'identity.json';
const REPLICAS = 'replicas';
/** Suffix of a file that is being written. */
const DRAFT = '.draft';
/** Suffix of the file of a replica. */
const REPLICA = '.json';
/**
 * Suffix instead of {@link REPLICA} of a replica that was marked as stopped. As long as the other
 * suffix, so that the rename finds room in the folder.
 */
const MARKED = '.stop';

export interface FileAgentStoreOptions {
  /** Space for saves that a stop needs. Default: files in the directory of the store. */
  readonly reserve?: DiskReserve;
  /** Writes and flushes a file. Default: {@link writeFlushed}. */
  readonly writeFile?: typeof writeFlushed;
}

/**
 * Stores the identity and each replica in one JSON file. Each save is atomic and flushed before its
 * promise resolves.
 */
export class FileAgentStore implements AgentStore {
  private readonly reserve: DiskReserve;
  private readonly writeFile: typeof writeFlushed;
  /** Ids of the replicas that have a file with the suffix {@link MARKED}. */
  private readonly marked = new Set<string>();

  /** @param directory - Existing directory that only this agent uses. */
  constructor(
    private readonly directory: string,
    options: FileAgentStoreOptions = {},
  ) {
    this.reserve = options.reserve ?? new DiskReserve(directory);
    this.writeFile = options.writeFile ?? writeFlushed;
  }

  async load(): Promise<StoredAgent> {
    const folder = join(this.directory, REPLICAS);
    await makeDirectory(folder, 0o700);
    const identity = await this.loadIdentity();
    const replicas: StoredReplica[] = [];
    const names = (await readdir(folder)).sort();
    for (const name of names) {
      if (name.endsWith(DRAFT)) {
        await rm(join(folder, name), { force: true }); // left by an interrupted write
        continue;
      }
      const replica = await readJson(join(folder, name), toReplica);
      if (replica === undefined) continue;
      const stem = name.slice(0, name.lastIndexOf('.'));
      const isMarked = names.includes(`${stem}${MARKED}`);
      if (isMarked) this.marked.add(replica.replicaId);
      // Both files exist when a save after the mark was interrupted: the other file is newer.
      if (name.endsWith(MARKED) && names.includes(`${stem}${REPLICA}`)) continue;
      replicas.push(isMarked ? { ...replica, stopped: true } : replica);
    }
    return { ...definedFields({ identity }), replicas };
  }

  /**
   * Loads the identity only; undefined without one.
   * @throws as {@link load}.
   */
  loadIdentity(): Promise<AgentIdentity | undefined> {
    return readJson(join(this.directory, IDENTITY), toIdentity);
  }

  /** Returns true when a replica is stored, in whatever phase. Does not read the replicas. */
  async hasReplicas(): Promise<boolean> {
    try {
      return (await readdir(join(this.directory, REPLICAS))).length > 0;
    } catch (reason) {
      if (errorCodeOf(reason) === 'ENOENT') return false;
      throw reason;
    }
  }

  saveIdentity(identity: AgentIdentity): Promise<void> {
    const content = { format: FORMAT, ...identity, highestEpoch: String(identity.highestEpoch) };
    return this.writeAtomically(this.directory, IDENTITY, content, { mayUseReserve: true });
  }

  async saveReplica(replica: StoredReplica, options: SaveOptions = {}): Promise<void> {
    const { replicaId, start, end, heldRevision, stopped, ...rest } = replica;
    const folder = join(this.directory, REPLICAS);
    const content = {
      format: FORMAT,
      replicaId,
      ...rest,
      heldRevision: String(heldRevision),
      ...(start === undefined ? {} : { start: Buffer.from(start).toString('base64') }),
      ...(end === undefined ? {} : { end: Buffer.from(end).toString('base64') }),
      ...definedFields({ stopped }),
    };
    await this.writeAtomically(folder, toFileName(replicaId, REPLICA), content, options);
    // The saved file says the same as the mark from now on.
    const saysStop = end !== undefined || stopped === true;
    if (saysStop && this.marked.delete(replicaId))
      await rm(join(folder, toFileName(replicaId, MARKED)), { force: true });
  }

  async markStopped(replicaId: string): Promise<void> {
    const folder = join(this.directory, REPLICAS);
    const path = join(folder, toFileName(replicaId, REPLICA));
    try {
      // A rename keeps the content and needs no space.
      await rename(path, join(folder, toFileName(replicaId, MARKED)));
    } catch (reason) {
      // Nothing is stored, or the mark is there: an earlier call may not have flushed the folder.
      if (errorCodeOf(reason) !== 'ENOENT') throw reason;
      return syncFolder(folder);
    }
    this.marked.add(replicaId);
    await syncFolder(folder);
  }

  async removeReplica(replicaId: string): Promise<void> {
    const folder = join(this.directory, REPLICAS);
    await rm(join(folder, toFileName(replicaId, REPLICA)), { force: true });
    await rm(join(folder, toFileName(replicaId, MARKED)), { force: true });
    this.marked.delete(replicaId);
    await syncFolder(folder);
    await this.reserve.refill();
  }

  /**
   * Writes and flushes a draft, then renames the draft: a crash leaves the old or the new content. A
   * failed write leaves no draft.
   * @throws kind `exhausted` when no space is left.
   */
  private async writeAtomically(
    folder: string,
    name: string,
    content: object,
    { mayUseReserve = false }: SaveOptions,
  ): Promise<void> {
    const bytes = Buffer.from(JSON.stringify(content));
    const path = join(folder, name);
    const { reserve, writeFile } = this;
    try {
      await replaceFile(path, DRAFT, (draft) => writeFile(draft, bytes, 'w'));
      await reserve.refill();
    } catch (cause) {
      if (!isNoSpace(cause)) throw cause;
      const options = { reserve, writeFile, draftSuffix: DRAFT };
      if (mayUseReserve && (await writeFromReserve(path, bytes, options))) return;
      throw new CloudlessError('exhausted', `no space left for ${path}`, { cause });
    }
  }
}

/**
 * Returns the file name of a replica. A leading dot is escaped, so that no id leaves the folder.
 */
function toFileName(replicaId: string, suffix: typeof REPLICA | typeof MARKED): string {
  return `${encodeURIComponent(replicaId).replace(/^\./, '%2E')}${suffix}`;
}

/**
 * Reads and parses a file; undefined when the file does not exist.
 * @throws kind `internal` when the file is damaged or has another format version.
 */
async function readJson<Value>(
  path: string,
  parse: (raw: Raw) => Value,
): Promise<Value | undefined> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (reason) {
    if (errorCodeOf(reason) === 'ENOENT') return undefined;
    throw reason;
  }
  try {
    const raw: unknown = JSON.parse(text);
    if (typeof raw !== 'object' || raw === null) throw new Error('no object');
    if ((raw as Raw)['format'] !== FORMAT)
      throw new Error(`format ${String((raw as Raw)['format'])} is not known`);
    return parse(raw as Raw);
  } catch (cause) {
    throw new CloudlessError(
      'internal',
      `${path} is damaged or has another format version; restore it, or run cloudless-agent reset`,
      {
        cause,
      },
    );
  }
}

type Raw = Readonly<Record<string, unknown>>;

function toIdentity(raw: Raw): AgentIdentity {
  const { clusterId, coordinators } = raw;
  return {
    nodeId: readText(raw, 'nodeId'),
    instanceId: readText(raw, 'instanceId'),
    highestEpoch: BigInt(readText(raw, 'highestEpoch')),
    ...(clusterId === undefined ? {} : { clusterId: readText(raw, 'clusterId') }),
    ...(coordinators === undefined ? {} : { coordinators: readCoordinators(coordinators) }),
  };
}

function readCoordinators(raw: unknown): readonly StoredCoordinator[] {
  if (!Array.isArray(raw)) throw new Error('coordinators is no list');
  return raw.map((item: unknown) => {
    if (typeof item !== 'object' || item === null) throw new Error('a coordinator is no object');
    return { id: readText(item as Raw, 'id'), address: readText(item as Raw, 'address') };
  });
}

function toReplica(raw: Raw): StoredReplica {
  const progress = raw['progress'];
  if (typeof progress !== 'object' || progress === null) throw new Error('progress is missing');
  const rawProgress = progress as Raw;
  const phase = rawProgress['phase'];
  if (!isPhase(phase)) throw new Error(`phase ${String(phase)} is not known`);
  const { start, end } = raw;
  return {
    replicaId: readText(raw, 'replicaId'),
    workloadUid: readText(raw, 'workloadUid'),
    bootId: readText(raw, 'bootId'),
    ...(raw['stopped'] === true ? { stopped: true } : {}),
    heldRevision: BigInt(readText(raw, 'heldRevision')),
    ...(start === undefined ? {} : { start: readBytes(raw, 'start') }),
    ...(end === undefined ? {} : { end: readBytes(raw, 'end') }),
    progress: {
      phase,
      reason: readText(rawProgress, 'reason'),
      restarts: readCount(rawProgress, 'restarts'),
      failures: readCount(rawProgress, 'failures'),
      ...(rawProgress['failedStarts'] === undefined
        ? {}
        : { failedStarts: readCount(rawProgress, 'failedStarts') }),
      containerEnded: rawProgress['containerEnded'] === true,
      ready: rawProgress['ready'] === true,
      ...(rawProgress['lastExitCode'] === undefined
        ? {}
        : { lastExitCode: readNumber(rawProgress, 'lastExitCode') }),
      ...(rawProgress['lastEndReason'] === undefined
        ? {}
        : { lastEndReason: readText(rawProgress, 'lastEndReason') }),
      ...(rawProgress['lastLines'] === undefined
        ? {}
        : { lastLines: readTexts(rawProgress, 'lastLines') }),
      ...(rawProgress['killing'] === undefined
        ? {}
        : { killing: readText(rawProgress, 'killing') }),
      ...(rawProgress['containerId'] === undefined
        ? {}
        : { containerId: readText(rawProgress, 'containerId') }),
    },
  };
}

function readText(raw: Raw, key: string): string {
  const value = raw[key];
  if (typeof value !== 'string') throw new Error(`${key} is no text`);
  return value;
}

function readTexts(raw: Raw, key: string): readonly string[] {
  const value = raw[key];
  if (!Array.isArray(value) || value.some((item) => typeof item !== 'string'))
    throw new Error(`${key} is no list of texts`);
  return value as readonly string[];
}

function readBytes(raw: Raw, key: string): Uint8Array {
  return new Uint8Array(Buffer.from(readText(raw, key), 'base64'));
}

function readNumber(raw: Raw, key: string): number {
  const value = raw[key];
  if (typeof value !== 'number' || !Number.isInteger(value))
    throw new Error(`${key} is no whole number`);
  return value;
}

function readCount(raw: Raw, key: string): number {
  const value = readNumber(raw, key);
  if (value < 0) throw new Error(`${key} is below 0`);
  return value;
}
