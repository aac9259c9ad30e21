import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { ContainerStatus } from '@cloudless/runtime';
import type { LaunchContext } from './launch-plan.js';
import type { ProcessReference } from './main-process.js';

/**
 * A lease as written down: when it ends, in seconds since the machine started, which all its
 * processes count alike.
 */
export interface RecordedLease {
  readonly leaseMs: number;
  readonly graceMs: number;
  readonly endsAtUptimeSeconds: number;
}

/**
 * What is kept on disk of a container.
 * `starting`: its process is being made, nobody was told of it. `running`: `startToken` tells its
 * process from a later one with the same id. `exited`: the end has been seen and is final. `guard`
 * is the parent of the process, `cgroup` the folder of its cgroup. Absent without guard or cgroup,
 * and in older records.
 */
export type ContainerRecord =
  | {
      readonly format: 1;
      readonly phase: 'starting';
      readonly guard?: ProcessReference;
      readonly cgroup?: string;
    }
  | {
      readonly format: 1;
      readonly phase: 'running';
      readonly status: ContainerStatus;
      readonly pid: number;
      readonly startToken: string;
      readonly bootId: string;
      readonly guard?: ProcessReference;
      readonly cgroup?: string;
      readonly launch: LaunchContext;
      /** Kept so that it holds under the next supervisor too. */
      readonly lease?: RecordedLease;
    }
  /** Without the environment, which may hold secrets and is not needed any more. */
  | { readonly format: 1; readonly phase: 'exited'; readonly status: ContainerStatus };

const NAME = 'state.json';

/**
 * Replaces the record by an atomic rename. It is not flushed to the disk: a record matters only
 * until the machine starts again, as nothing that it speaks of outlives that; a damaged one is then
 * dropped.
 */
export function writeRecord(directory: string, record: ContainerRecord): void {
  const draft = path.join(directory, `${NAME}.new`);
  writeFileSync(draft, JSON.stringify(record), { mode: 0o600 });
  renameSync(draft, path.join(directory, NAME));
}

/** Undefined when there is none, or one that is damaged or of another format. */
export function readRecord(directory: string): ContainerRecord | undefined {
  try {
    const record = JSON.parse(
      readFileSync(path.join(directory, NAME), 'utf8'),
    ) as Partial<ContainerRecord> | null; // written by writeRecord
    if (record === null || record.format !== 1) return undefined;
    return record as ContainerRecord;
  } catch {
    return undefined;
  }
}
