import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { sleep, type Clock } from '@cloudless/base';
import { isAlive, readBootId, readStartToken } from '@cloudless/app-kit/background';

/** Time for connections to end when a proxy gets SIGTERM, milliseconds. */
export const DRAIN_AT_SHUTDOWN_MS = 3_000;
/** Time after which a proxy is killed that has not ended after SIGTERM, milliseconds. */
export const KILL_AFTER_MS = DRAIN_AT_SHUTDOWN_MS + 2_000;
const POLL_MS = 50;
const RECORD = /^draining\.\d{1,10}$/;

/** A process that may drain, in its file `draining.<pid>` in the directory of the proxy. */
interface DrainingProxy {
  readonly pid: number;
  readonly startToken: string;
  readonly bootId: string;
}

/** Operations on processes, for tests. */
export interface ProcessAccess {
  isAlive(pid: number, startToken: string): boolean;
  signal(pid: number, signal: 'SIGTERM' | 'SIGKILL'): void;
}

const REAL_PROCESSES: ProcessAccess = {
  isAlive,
  signal: (pid, signal) => {
    try {
      process.kill(pid, signal);
    } catch {
      // the process has ended
    }
  },
};

/**
 * Records that this process keeps connections after its successor serves the directory, so that a
 * shutdown or a reset finds the process.
 * @returns A function that removes the record.
 */
export function recordDraining(directory: string, pid = process.pid): () => void {
  const file = join(directory, `draining.${pid}`);
  const record: DrainingProxy = {
    pid,
    startToken: readStartToken(pid) ?? '',
    bootId: readBootId(),
  };
  writeFileSync(`${file}.draft`, JSON.stringify(record), { mode: 0o600 });
  renameSync(`${file}.draft`, file);
  return () => rmSync(file, { force: true });
}

/**
 * Ends the proxies of a directory that still keep connections after an upgrade: SIGTERM gives their
 * connections 3 s, and SIGKILL follows 5 s after SIGTERM.
 */
export async function endDrainingProxies(
  directory: string,
  clock: Clock,
  processes: ProcessAccess = REAL_PROCESSES,
): Promise<void> {
  await Promise.all(
    listRecords(directory).map(async (file) => {
      const record = readRecord(file);
      if (record !== undefined) await end(record, clock, processes);
      rmSync(file, { force: true });
    }),
  );
}

async function end(
  { pid, startToken, bootId }: DrainingProxy,
  clock: Clock,
  processes: ProcessAccess,
): Promise<void> {
  const isRunning = (): boolean => bootId === readBootId() && processes.isAlive(pid, startToken);
  if (!isRunning()) return;
  processes.signal(pid, 'SIGTERM');
  const deadlineMs = clock.now() + KILL_AFTER_MS;
  while (isRunning() && clock.now() < deadlineMs) await sleep(clock, POLL_MS);
  if (isRunning()) processes.signal(pid, 'SIGKILL');
}

function listRecords(directory: string): readonly string[] {
  try {
    return readdirSync(directory)
      .filter((name) => RECORD.test(name))
      .map((name) => join(directory, name));
  } catch {
    return []; // the directory does not exist
  }
}

function readRecord(file: string): DrainingProxy | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as DrainingProxy;
  } catch {
    return undefined; // the process has ended and removed its record
  }
}
