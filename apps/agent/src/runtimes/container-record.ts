import { readFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CloudlessError, definedFields, errorCodeOf } from '@cloudless/base';
import type { Owner } from '@cloudless/runtime-cri';
import { makeDirectorySync } from '@cloudless/app-kit';
import { replaceFileSync } from '../data/replace-file.js';

/** Folder in the data directory for container logs and the record of the container runtime. */
export const CONTAINERS_FOLDER = 'containers';
/** Folder in the data directory for volumes of containers. */
export const VOLUMES_FOLDER = 'volumes';
const FILE = 'runtime.json';

/** Record of the container runtime in which the agent of a data directory may have containers. */
export interface ContainerRecord {
  /** Socket of the container runtime. */
  readonly socketPath: string;
  /** Owner label of the containers. */
  readonly owner: Owner;
  /** Capabilities that the container runtime last had; undefined when they are not known. */
  readonly capabilities?: readonly string[];
}

/** Returns the path of the record in a data directory. */
export function getContainerRecordPath(dataDir: string): string {
  return join(dataDir, CONTAINERS_FOLDER, FILE);
}

/**
 * Reads the record; undefined when the agent has no containers.
 * @throws kind `internal` when the record is damaged.
 */
export function readContainerRecord(dataDir: string): ContainerRecord | undefined {
  const file = getContainerRecordPath(dataDir);
  try {
    return toContainerRecord(JSON.parse(readFileSync(file, 'utf8')));
  } catch (cause) {
    if (errorCodeOf(cause) === 'ENOENT') return undefined;
    throw new CloudlessError(
      'internal',
      `${file} is damaged. It names the container runtime that may have containers of this agent: restore it, or remove these containers and the file yourself`,
      { cause },
    );
  }
}

/**
 * Writes the record unless the file has this content already. Must be called before the first
 * container is started.
 * @throws errors of the file system unchanged.
 */
export function saveContainerRecord(dataDir: string, record: ContainerRecord): void {
  const file = getContainerRecordPath(dataDir);
  makeDirectorySync(dirname(file), 0o700);
  replaceFileSync(file, JSON.stringify(record), { flush: true });
}

/** Removes the record. Must be called only when no container is left. */
export function removeContainerRecord(dataDir: string): void {
  rmSync(getContainerRecordPath(dataDir), { force: true });
}

function toContainerRecord(raw: unknown): ContainerRecord {
  const { socketPath, owner, capabilities } = raw as {
    readonly socketPath?: unknown;
    readonly owner?: Partial<Owner>;
    readonly capabilities?: unknown;
  };
  const { cluster, node } = owner ?? {};
  if (typeof socketPath !== 'string' || typeof cluster !== 'string' || typeof node !== 'string')
    throw new Error('a field is missing');
  return {
    ...{ socketPath, owner: { cluster, node } },
    ...definedFields({ capabilities: toCapabilities(capabilities) }),
  };
}

/** Returns undefined for a record of an earlier version, and for anything but a list of texts. */
function toCapabilities(raw: unknown): readonly string[] | undefined {
  const isText = (item: unknown): item is string => typeof item === 'string';
  return Array.isArray(raw) && raw.every(isText) ? raw : undefined;
}
