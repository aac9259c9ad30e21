import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { ContainerStatus } from '@cloudless/runtime';
import type { LaunchContext } from '../process/launch-context.js';
import type { ProcessReference } from '../../system/process-reference.js';

/**
 * A lease on disk. Its end is a time since the boot of the machine, which all processes of the
 * machine measure alike.
 */
export interface RecordedLease {
  readonly leaseMs: number;
  readonly graceMs: number;
  readonly endsAtUptimeSeconds: number;
}

/**
 * Record of a container on disk.
 * - `starting`: the process is being started, and no caller has an answer yet.
 * - `running`: `startToken` distinguishes the process from a later process with the same id.
 * - `exited`: the end was observed and is final.
 *
 * `guard` is the parent of the process, `cgroup` the directory of its cgroup. Both are absent where
 * there is none, and in records of earlier versions.
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
      /** Lease of the container, so that the next supervisor enforces it, too. */
      readonly lease?: RecordedLease;
    }
  /** Without the environment, which may contain secrets and is not needed any more. */
  | { readonly format: 1; readonly phase: 'exited'; readonly status: ContainerStatus };

const NAME = 'state.json';

/**
 * Replaces the record by an atomic rename. The record is not flushed to disk: it matters only until
 * the machine restarts, because no process survives a restart. {@link readRecord} ignores a record
 * that the restart has damaged.
 */
export function writeRecord(directory: string, record: ContainerRecord): void {
  const draft = path.join(directory, `${NAME}.new`);
  writeFileSync(draft, JSON.stringify(record), { mode: 0o600 });
  renameSync(draft, path.join(directory, NAME));
}

/**
 * Reads the record of a container; undefined when there is none, or when it is damaged or of
 * another format.
 */
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
