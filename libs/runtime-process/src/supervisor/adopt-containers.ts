import { readdirSync, rmSync } from 'node:fs';
import type { Clock, Log } from '@cloudless/base';
import type { ContainerStatus } from '@cloudless/runtime';
import { makeDirectorySync } from '@cloudless/system';
import { LogWriter } from '../logs/log-writer.js';
import { killMarked } from '../system/marked-processes.js';
import { isAlive } from '../system/process-identity.js';
import type { SupervisorSettings } from '../wire/messages.js';
import { layout } from './container-paths.js';
import { readRecord, type ContainerRecord } from './container-record.js';
import { LOST, ManagedContainer, UNSEEN } from './managed-container.js';
import { ContainerOutput } from './output.js';

/** What adoption needs. */
export interface AdoptDeps {
  readonly directory: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly bootId: string;
  readonly settings: Pick<SupervisorSettings, 'logFiles' | 'logFileBytes'>;
  readonly onExit: (container: ManagedContainer) => void;
}

/**
 * Takes up what an earlier supervisor left: containers that live go on, those that do not are reported as ended, half-made
 * ones are cleared away, and processes of commands, whose callers are gone, are killed.
 */
export function adoptContainers(deps: AdoptDeps): readonly ManagedContainer[] {
  makeDirectorySync(layout.containers(deps.directory), 0o700);
  const containers: ManagedContainer[] = [];
  const known = new Set<string>();
  for (const name of readdirSync(layout.containers(deps.directory))) {
    const folder = layout.container(deps.directory, name);
    const record = readRecord(folder);
    known.add(name);
    if (record === undefined || record.phase === 'starting') {
      deps.log.warn('unfinished container cleared away', { containerId: name });
      rmSync(folder, { recursive: true, force: true });
    } else {
      containers.push(adopt(record, folder, deps));
    }
  }
  const running = new Set<string>(containers.filter(({ isRunning }) => isRunning).map(({ status }) => status.containerId));
  killMarked(({ containerId, execId }) => known.has(containerId) && (execId !== undefined || !running.has(containerId)));
  return containers;
}

function adopt(record: Exclude<ContainerRecord, { phase: 'starting' }>, folder: string, deps: AdoptDeps): ManagedContainer {
  const { clock, log, bootId, settings, onExit } = deps;
  let container: ManagedContainer | undefined;
  const writer = new LogWriter({
    directory: layout.log(folder),
    clock,
    log,
    files: settings.logFiles,
    fileBytes: settings.logFileBytes,
  });
  const output = new ContainerOutput(folder, writer, () => container?.pipeEnded());
  const containerDeps = { directory: folder, clock, log, bootId, output, onExit };
  if (record.phase === 'exited') {
    container = new ManagedContainer(record.status, undefined, undefined, containerDeps);
    output.finish();
    return container;
  }
  const { pid, startToken } = record;
  if (record.bootId === bootId && isAlive(pid, startToken)) {
    container = new ManagedContainer(record.status, { pid, startToken, adopted: true }, record.launch, containerDeps);
    if (record.lease !== undefined) container.resumeLease(record.lease);
    output.start();
    return container;
  }
  const status: ContainerStatus = record.status;
  container = new ManagedContainer(status, undefined, undefined, containerDeps); // no process: nothing may be signalled by this id
  container.ended(record.bootId === bootId ? UNSEEN : LOST);
  output.finish();
  return container;
}
