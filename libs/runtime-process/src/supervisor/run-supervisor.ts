import { chmodSync, rmSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import {
  CloudlessError,
  errorFields,
  type Clock,
  type Log,
  type Random,
  type Timer,
} from '@cloudless/base';
import { VERSION } from '@cloudless/app-kit';
import {
  acquireDirectoryLock,
  createFileLog,
  type BackgroundProgram,
} from '@cloudless/app-kit/background';
import { readMachineUptimeMs } from '../system/machine-uptime.js';
import { layout } from './container/container-paths.js';
import { ClientSession } from './client-session.js';
import { findShellTools, openContainerGroups } from './process/shell-tools.js';
import { findMountTools } from './resolver/mount-tools.js';
import { ProcessResolvers } from './resolver/process-resolvers.js';
import { Supervisor } from './supervisor.js';

/** Arguments of {@link runSupervisor}. */
export interface SupervisorOptions {
  /**
   * Arguments of the process, such as `process.argv.slice(3)`. The last two must be the arguments
   * that the client appended to the supervisor command.
   */
  readonly args: readonly string[];
  readonly clock: Clock;
  readonly random: Random;
  /**
   * Reads the milliseconds since the machine booted, which the clients read too. Default:
   * {@link readMachineUptimeMs}.
   */
  readonly machineUptimeMs?: () => number;
  /**
   * True gives each container a cgroup of its own if this user has the permission. Default: true.
   */
  readonly useCgroups?: boolean;
}

/**
 * Runs the supervisor of one directory in this process, until the supervisor has been idle for its
 * idle time or is shut down. Programs call this function in the command that they pass to
 * `openProcessRuntime`. Changes the working directory of the process.
 * @returns When the supervisor has ended; exit the process then. Returns at once when another
 *   supervisor serves the directory.
 * @throws kind `invalid` for malformed arguments.
 */
export async function runSupervisor({
  args,
  clock,
  random,
  machineUptimeMs = readMachineUptimeMs,
  useCgroups = true,
}: SupervisorOptions): Promise<void> {
  const { directory, idleMs } = parseArguments(args);
  // The inherited working directory could keep another file system from being unmounted. Also, a
  // relative path of the socket is short enough for a Unix socket.
  process.chdir(directory);
  if (!acquireDirectoryLock(directory)) return;
  const log = createFileLog(path.join(directory, 'supervisor.log'), clock, {
    component: 'supervisor',
    pid: process.pid,
  });
  const tools = await findShellTools();
  const cgroup =
    tools === undefined || !useCgroups
      ? undefined
      : await openContainerGroups(directory, tools, log);
  const support = await findMountTools(directory, tools?.shell);
  const resolvers = new ProcessResolvers({ support, shell: tools?.shell ?? '', log });
  const supervisor = new Supervisor({ directory, clock, random, log, tools, cgroup, resolvers });
  await supervisor.open();
  log.info('supervisor began', {
    containers: supervisor.list().length,
    cgroup: cgroup?.folder,
    guards: tools !== undefined,
    processDns: 'problem' in support ? support.problem : 'available',
  });
  try {
    await serve(supervisor, { clock, log, machineUptimeMs, idleMs });
  } finally {
    supervisor.close();
    log.info('supervisor ended');
  }
}

interface ServeDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly machineUptimeMs: () => number;
  readonly idleMs: number;
}

/**
 * Serves clients on the socket until the supervisor has been idle for `idleMs` or is shut down.
 * SIGTERM ends the supervisor only when no container runs or is being started. SIGHUP and SIGINT
 * are ignored.
 */
async function serve(
  supervisor: Supervisor,
  { clock, log, machineUptimeMs, idleMs }: ServeDeps,
): Promise<void> {
  const clients = new Set<net.Socket>();
  let end: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => (end = resolve));
  let idleTimer: Timer | undefined;
  const updateIdleTimer = (): void => {
    idleTimer?.cancel();
    idleTimer = undefined;
    if (clients.size === 0 && supervisor.isIdle) idleTimer = clock.setTimer(idleMs, end);
  };
  const server = net.createServer((socket) => {
    clients.add(socket);
    updateIdleTimer();
    socket.on('close', () => {
      clients.delete(socket);
      updateIdleTimer();
    });
    void new ClientSession(socket, {
      supervisor,
      log,
      machineUptimeMs,
      version: VERSION,
      onShutdown: () => socket.end(end),
    });
  });
  const removeListener = supervisor.addListener(updateIdleTimer);
  // An unexpected error is only logged, so that it does not end the running containers.
  const onFault = (reason: unknown): void => log.error('supervisor fault', errorFields(reason));
  process.on('uncaughtException', onFault).on('unhandledRejection', onFault);
  const endIfIdle = (): void => (supervisor.isIdle ? end() : undefined);
  process.on('SIGTERM', endIfIdle).on('SIGHUP', ignore).on('SIGINT', ignore);
  // An earlier supervisor has left the socket. That supervisor is dead, because this process has
  // the lock.
  rmSync(SOCKET, { force: true });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(SOCKET, resolve);
  });
  chmodSync(SOCKET, 0o600);
  updateIdleTimer();
  await ended;
  idleTimer?.cancel();
  removeListener();
  process.off('uncaughtException', onFault).off('unhandledRejection', onFault);
  process.off('SIGTERM', endIfIdle).off('SIGHUP', ignore).off('SIGINT', ignore);
  const serverClosed = new Promise<void>((resolve) => server.close(() => resolve()));
  for (const client of clients) client.destroy();
  await serverClosed;
}

const ignore = (): void => undefined;
/**
 * Path of the socket, relative to the directory of the supervisor, which is the working directory.
 */
const SOCKET = path.relative('.', layout.socket('.'));

/**
 * Parses the arguments that {@link toSupervisorArguments} creates.
 * @throws kind `invalid` for other arguments.
 */
export function parseArguments(args: readonly string[]): {
  readonly directory: string;
  readonly idleMs: number;
} {
  const [directory = '', idleText = ''] = args.slice(-2);
  const idleMs = Number(idleText);
  if (!path.isAbsolute(directory) || !/^\d{1,12}$/.test(idleText)) {
    throw new CloudlessError(
      'invalid',
      'invalid arguments of the supervisor: expected its absolute directory and its idle time in milliseconds',
    );
  }
  return { directory, idleMs };
}

/** Describes the supervisor of a directory, for a client that starts it. */
export function toSupervisorProgram(
  directory: string,
  supervisorCommand: readonly string[],
  idleMs: number,
): BackgroundProgram {
  return {
    title: 'process supervisor',
    directory,
    command: [...supervisorCommand, ...toSupervisorArguments(directory, idleMs)],
    errorFile: 'supervisor.err',
  };
}

/** Creates the arguments that a client appends to the supervisor command. */
export function toSupervisorArguments(directory: string, idleMs: number): readonly string[] {
  return [directory, String(Math.trunc(idleMs))];
}
