import { spawn } from 'node:child_process';
import { closeSync, constants as fsConstants, mkdirSync, openSync, rmSync } from 'node:fs';
import { constants } from 'node:os';
import type { Clock, Log } from '@cloudless/base';
import { exitReason, type ContainerEndpoint, type ContainerRequest, type ContainerStatus } from '@cloudless/runtime';
import { LogWriter } from '../logs/log-writer.js';
import { startTokenOf } from '../system/process-identity.js';
import type { SupervisorSettings } from '../wire/messages.js';
import { layout } from './container-paths.js';
import { writeRecord } from './container-record.js';
import type { FifoPool } from './fifo-pool.js';
import { environmentOf, resolveExecutable, spawnFailure, type LaunchContext } from './launch-plan.js';
import { ManagedContainer, type ProcessEnd } from './managed-container.js';
import { ContainerOutput } from './output.js';

/** What a start needs beside the request. */
export interface StartDeps {
  readonly directory: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly fifos: Pick<FifoPool, 'take'>;
  readonly bootId: string;
  readonly settings: SupervisorSettings;
  readonly onExit: (container: ManagedContainer) => void;
}

/** Makes the files of a container and starts its process, leader of its own session. Leaves nothing when it fails. */
export async function startContainer(
  request: ContainerRequest,
  ports: readonly number[],
  deps: StartDeps,
): Promise<ManagedContainer> {
  const folder = layout.container(deps.directory, request.containerId);
  const home = layout.work(folder);
  const endpoints = request.ports.map(({ name }, index): ContainerEndpoint => ({
    portName: name,
    ip: deps.settings.address,
    port: ports[index] ?? 0,
  }));
  const context: LaunchContext = {
    env: environmentOf(request, endpoints, { path: deps.settings.path, home }),
    workingDir: request.workingDir ?? home,
  };
  mkdirSync(home, { recursive: true, mode: 0o700 });
  try {
    const file = resolveExecutable(request.command, context);
    writeRecord(folder, { format: 1, phase: 'starting' });
    await deps.fifos.take(layout.pipe(folder, 'stdout'));
    await deps.fifos.take(layout.pipe(folder, 'stderr'));
    return await launch(request, endpoints, context, file, folder, deps);
  } catch (reason) {
    rmSync(folder, { recursive: true, force: true });
    throw reason;
  }
}

/** Between the making of the process and its record there is no await: one that was made is always on record. */
async function launch(
  request: ContainerRequest,
  endpoints: readonly ContainerEndpoint[],
  context: LaunchContext,
  file: string,
  folder: string,
  deps: StartDeps,
): Promise<ManagedContainer> {
  const { clock, log, settings } = deps;
  const writer = new LogWriter({
    directory: layout.log(folder),
    clock,
    log,
    files: settings.logFiles,
    fileBytes: settings.logFileBytes,
  });
  let container: ManagedContainer | undefined;
  const output = new ContainerOutput(folder, writer, () => container?.pipeEnded());
  // Read and write: the process itself then keeps the pipe alive, so that it meets no broken pipe while no supervisor lives.
  const pipes = (['stdout', 'stderr'] as const).map((stream) => openSync(layout.pipe(folder, stream), fsConstants.O_RDWR));
  const [argv0 = file, ...first] = request.command;
  const child = spawn(file, [...first, ...request.args], {
    argv0,
    cwd: context.workingDir,
    env: context.env,
    detached: true,
    stdio: ['ignore', pipes[0], pipes[1]],
  });
  const startedAtMs = clock.wallTime();
  for (const fd of pipes) closeSync(fd);
  const { pid } = child;
  if (pid === undefined) {
    output.close();
    throw spawnFailure(await new Promise<NodeJS.ErrnoException>((resolve) => child.once('error', resolve)), file);
  }
  const startToken = startTokenOf(pid) ?? '';
  const { containerId, labels } = request;
  const status: ContainerStatus = { containerId, labels, phase: 'running', pid, startedAtMs, endpoints };
  container = new ManagedContainer(status, { pid, startToken, adopted: false }, context, {
    directory: folder,
    clock,
    log,
    bootId: deps.bootId,
    output,
    onExit: deps.onExit,
  });
  const managed = container;
  child.on('exit', (code, signal) => managed.ended(endOf(code, signal)));
  child.on('error', (reason) => log.warn('process error', { containerId, error: reason.message }));
  if (request.lease === undefined) managed.writeRunning();
  else managed.renew(request.lease); // writes it down too
  output.start();
  return managed;
}

/** Exit code as shells count, and the phrase for it. */
export function endOf(code: number | null, signal: NodeJS.Signals | null): ProcessEnd {
  const exitCode = signal === null ? (code ?? 0) : 128 + constants.signals[signal];
  return { exitCode, reason: exitReason(exitCode, signal ?? undefined) };
}
