import { readdirSync, rmSync } from 'node:fs';
import { uptime } from 'node:os';
import path from 'node:path';
import type { Clock, Log } from '@cloudless/base';
import type { ContainerStatus } from '@cloudless/runtime';
import { makeDirectorySync } from '@cloudless/app-kit';
import { isAlive, signalGroup } from '@cloudless/app-kit/background';
import { Cgroup } from '../../system/cgroups.js';
import { killMarkedProcesses } from '../../system/marked-processes.js';
import type { SupervisorSettings } from '../../wire/messages.js';
import { fromRecordedLaunch } from '../process/launch-context.js';
import { MainProcess } from '../process/main-process.js';
import { LOST_WITH_MACHINE, readProcessEnd, UNKNOWN_END } from '../process/process-end.js';
import { layout } from './container-paths.js';
import { readRecord, type ContainerRecord, type RecordedLease } from './container-record.js';
import { ManagedContainer } from './managed-container.js';
import { ContainerOutput } from './container-output.js';

/** Arguments of {@link adoptContainers}. */
export interface AdoptDeps {
  /** Directory of the supervisor. */
  readonly directory: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly bootId: string;
  readonly settings: Pick<SupervisorSettings, 'logFiles' | 'logFileBytes'>;
  readonly onExit: (container: ManagedContainer) => void;
  /**
   * Kills the remaining processes in the cgroup of a container that does not run, and removes the
   * cgroup.
   */
  readonly removeGroup: (group: Cgroup) => void;
}

/**
 * Adopts the containers of an earlier supervisor. Running containers continue, containers that
 * ended meanwhile are reported as exited, unfinished starts are removed, and processes of commands
 * are killed, because their callers are gone.
 */
export function adoptContainers(deps: AdoptDeps): readonly ManagedContainer[] {
  makeDirectorySync(layout.containers(deps.directory), 0o700);
  const containers: ManagedContainer[] = [];
  const recordedIds = new Set<string>();
  for (const name of readdirSync(layout.containers(deps.directory))) {
    const folder = layout.container(deps.directory, name);
    const record = readRecord(folder);
    recordedIds.add(name);
    if (record === undefined || record.phase === 'starting') {
      deps.log.warn('unfinished container removed', { containerId: name });
      if (record !== undefined) killUnfinished(record, deps.removeGroup);
      rmSync(folder, { recursive: true, force: true });
    } else {
      containers.push(adoptContainer(record, folder, deps));
    }
  }
  const runningIds = new Set<string>(
    containers.filter(({ isRunning }) => isRunning).map(({ status }) => status.containerId),
  );
  killMarkedProcesses(
    ({ containerId, execId }) =>
      recordedIds.has(containerId) && (execId !== undefined || !runningIds.has(containerId)),
  );
  return containers;
}

function adoptContainer(
  record: Exclude<ContainerRecord, { phase: 'starting' }>,
  folder: string,
  deps: AdoptDeps,
): ManagedContainer {
  const { clock, log, bootId, onExit } = deps;
  let container: ManagedContainer | undefined;
  const output = ContainerOutput.open(folder, deps, () => container?.onPipeEnded());
  for (const name of readdirSync(folder))
    if (name.endsWith('.sh')) rmSync(path.join(folder, name), { force: true });
  const containerDeps = { directory: folder, clock, log, bootId, output, onExit };
  if (record.phase === 'exited') {
    container = new ManagedContainer(record.status, undefined, undefined, containerDeps);
    output.finish();
    return container;
  }
  const { pid, startToken, guard } = record;
  const endFile = layout.end(folder);
  const isSameBoot = record.bootId === bootId;
  const cgroup = record.cgroup === undefined ? undefined : new Cgroup(record.cgroup);
  const isGuarded = guard !== undefined && isAlive(guard.pid, guard.startToken);
  if (isSameBoot && (isGuarded || isAlive(pid, startToken))) {
    const main = new MainProcess({ pid, startToken, guard, cgroup, endFile, adopted: true });
    const launch = fromRecordedLaunch(record.launch, pid);
    container = new ManagedContainer(record.status, main, launch, containerDeps);
    if (record.lease !== undefined) container.resumeLease(record.lease);
    output.start();
    return container;
  }
  if (isSameBoot && cgroup !== undefined) deps.removeGroup(cgroup);
  const status: ContainerStatus = record.status;
  // The container gets no main process, so that no signal is sent: another process may have the id.
  container = new ManagedContainer(status, undefined, undefined, containerDeps);
  const end = isSameBoot ? (readProcessEnd(endFile) ?? UNKNOWN_END) : LOST_WITH_MACHINE;
  container.onEnded(
    end,
    isSameBoot &&
      hasEndedBefore(record.lease, end.finishedAtMs ?? clock.wallTime(), clock.wallTime()),
  );
  output.finish();
  return container;
}

/** Tolerance for the coarse resolution of file times and of the machine's uptime. */
const CLOCK_TOLERANCE_MS = 100;

/** Returns true when the lease had expired at the wall-clock time `timeMs`. */
function hasEndedBefore(lease: RecordedLease | undefined, timeMs: number, nowMs: number): boolean {
  if (lease === undefined) return false;
  return timeMs + CLOCK_TOLERANCE_MS >= nowMs - (uptime() - lease.endsAtUptimeSeconds) * 1_000;
}

/**
 * Kills the processes of a container whose start was not finished. No caller got an answer to this
 * start.
 */
function killUnfinished(
  { guard, cgroup }: ContainerRecord & { readonly phase: 'starting' },
  removeGroup: AdoptDeps['removeGroup'],
): void {
  if (guard !== undefined && isAlive(guard.pid, guard.startToken))
    signalGroup(guard.pid, 'SIGKILL');
  if (cgroup !== undefined) removeGroup(new Cgroup(cgroup));
}
