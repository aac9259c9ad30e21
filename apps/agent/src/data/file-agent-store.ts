import { open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { definedFields, CloudlessError } from '@cloudless/base';
import {
  isPhase,
  type AgentIdentity,
  type AgentStore,
  type StoredAgent,
  type StoredCoordinator,
  type StoredReplica,
} from '@cloudless/agent-core';
import { makeDirectory } from '@cloudless/app-kit';
import { errorCodeOf } from '../error-code.js';
import { syncFolder } from './sync-folder.js';

/** Format version of the files; incremented by incompatible changes. */
const FORMAT = 1;
const IDENTITY = 'identity.json';
const REPLICAS = 'replicas';
/** Suffix of a file that is being written. */
const DRAFT = '.draft';

/**
 * Stores the identity and each replica in one JSON file. Each save is atomic and flushed before its
 * promise resolves.
 */
export class FileAgentStore implements AgentStore {
  /** @param directory - Existing directory that only this agent uses. */
  constructor(private readonly directory: string) {}

  async load(): Promise<StoredAgent> {
    const folder = join(this.directory, REPLICAS);
    await makeDirectory(folder, 0o700);
    const identity = await this.loadIdentity();
    const replicas: StoredReplica[] = [];
    for (const name of (await readdir(folder)).sort()) {
      if (name.endsWith(DRAFT))
        await rm(join(folder, name), { force: true }); // left by an interrupted write
      else {
        const replica = await readJson(join(folder, name), toReplica);
        if (replica !== undefined) replicas.push(replica);
      }
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
    return writeAtomically(this.directory, IDENTITY, {
      format: FORMAT,
      ...identity,
      highestEpoch: String(identity.highestEpoch),
    });
  }

  saveReplica(replica: StoredReplica): Promise<void> {
    const { start, end, heldRevision, ...rest } = replica;
    return writeAtomically(join(this.directory, REPLICAS), toFileName(replica.replicaId), {
      format: FORMAT,
      ...rest,
      heldRevision: String(heldRevision),
      ...(start === undefined ? {} : { start: Buffer.from(start).toString('base64') }),
      ...(end === undefined ? {} : { end: Buffer.from(end).toString('base64') }),
    });
  }

  async removeReplica(replicaId: string): Promise<void> {
    const folder = join(this.directory, REPLICAS);
    await rm(join(folder, toFileName(replicaId)), { force: true });
    await syncFolder(folder);
  }
}

/**
 * Returns the file name of a replica. A leading dot is escaped, so that no id leaves the folder.
 */
function toFileName(replicaId: string): string {
  return `${encodeURIComponent(replicaId).replace(/^\./, '%2E')}.json`;
}

/**
 * Writes and flushes a draft, then renames the draft: a crash leaves the old or the new content.
 */
async function writeAtomically(folder: string, name: string, content: object): Promise<void> {
  const draft = join(folder, `${name}${DRAFT}`);
  const file = await open(draft, 'w', 0o600);
  try {
    await file.writeFile(JSON.stringify(content));
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(draft, join(folder, name));
  await syncFolder(folder);
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
    heldRevision: BigInt(readText(raw, 'heldRevision')),
    ...(start === undefined ? {} : { start: readBytes(raw, 'start') }),
    ...(end === undefined ? {} : { end: readBytes(raw, 'end') }),
    progress: {
      phase,
      reason: readText(rawProgress, 'reason'),
      restarts: readCount(rawProgress, 'restarts'),
      failures: readCount(rawProgress, 'failures'),
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
