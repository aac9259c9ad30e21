import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CloudlessError } from '@cloudless/base';
import type { Owner } from '@cloudless/runtime-cri';
import { makeDirectorySync } from '@cloudless/system';
import { errorCodeOf } from './error-code.js';

/** Below the data directory: logs of containers, and who runs them. */
export const CONTAINERS_FOLDER = 'containers';
/** Below the data directory: volumes of containers. */
export const VOLUMES_FOLDER = 'volumes';
const FILE = 'runtime.json';

/** Where the agent of a data directory may have containers. */
export interface ContainerMemory {
  /** Of the container runtime. */
  readonly socketPath: string;
  /** What is on each of them. */
  readonly owner: Owner;
}

/** The file that says so. */
export function containerMemoryPath(dataDir: string): string {
  return join(dataDir, CONTAINERS_FOLDER, FILE);
}

/**
 * Where there may be containers of this agent; undefined when there are none. @throws kind
 * `internal` when that is damaged.
 */
export function readContainerMemory(dataDir: string): ContainerMemory | undefined {
  const file = containerMemoryPath(dataDir);
  try {
    return toContainerMemory(JSON.parse(readFileSync(file, 'utf8')));
  } catch (cause) {
    if (errorCodeOf(cause) === 'ENOENT') return undefined;
    throw new CloudlessError(
      'internal',
      `${file} is damaged: it says by which container runtime this agent has containers; restore it, or end them yourself and remove it`,
      { cause },
    );
  }
}

/** To be called before the first container is made. */
export function keepContainerMemory(dataDir: string, memory: ContainerMemory): void {
  const file = containerMemoryPath(dataDir);
  makeDirectorySync(dirname(file), 0o700);
  writeFileSync(`${file}.draft`, JSON.stringify(memory), { mode: 0o600, flush: true });
  renameSync(`${file}.draft`, file);
}

/** To be called once no container is left. */
export function dropContainerMemory(dataDir: string): void {
  rmSync(containerMemoryPath(dataDir), { force: true });
}

function toContainerMemory(raw: unknown): ContainerMemory {
  const { socketPath, owner } = raw as {
    readonly socketPath?: unknown;
    readonly owner?: Partial<Owner>;
  };
  const { cluster, node } = owner ?? {};
  if (typeof socketPath !== 'string' || typeof cluster !== 'string' || typeof node !== 'string')
    throw new Error('a field is missing');
  return { socketPath, owner: { cluster, node } };
}
