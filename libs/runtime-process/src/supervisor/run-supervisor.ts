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
import { acquireDirectoryLock } from '../system/directory-lock.js';
import { VERSION } from '../version.js';
import { layout } from './container-paths.js';
import { Session } from './session.js';
import { createFileLog } from './supervisor-log.js';
import { findShellTools, openContainerGroups } from './shell-tools.js';
import { Supervisor } from './supervisor.js';

/** What the main function of a supervisor needs. */
export interface SupervisorOptions {
  /**
   * The arguments that the client added to the supervisor command, such as `process.argv.slice(3)`.
   */
  readonly args: readonly string[];
  readonly clock: Clock;
  readonly random: Random;
  /** Default true: each container gets a cgroup of its own where this user has the permission. */
  readonly useCgroups?: boolean;
}

/**
 * Runs the supervisor of one directory in this process until it has nothing to do or is told to
 * end: the main function of the command that `openProcessRuntime` is given. Changes the process's
 * working directory.
 * @returns When all is let go; end the process then. At once when another supervisor serves the
 *   directory.
 * @throws kind `invalid` for arguments that no client writes.
 */
export async function runSupervisor({
  args,
  clock,
  random,
  useCgroups = true,
}: SupervisorOptions): Promise<void> {
  const { directory, idleMs } = parseArguments(args);
  // keeps no other file system busy, and makes the socket's path short enough
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
  const supervisor = new Supervisor({ directory, clock, random, log, tools, cgroup });
  await supervisor.open();
  log.info('supervisor began', {
    containers: supervisor.list().length,
    cgroup: cgroup?.folder,
    guards: tools !== undefined,
  });
  try {
    await serve(supervisor, { clock, log, idleMs });
  } finally {
    supervisor.close();
    log.info('supervisor ended');
  }
}

interface ServeDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly idleMs: number;
}

/**
 * Serves clients on the socket; resolves when idle for long enough or when shut down. Signals to it
 * are not for what it holds: SIGTERM ends it only when it holds nothing.
 */
async function serve(supervisor: Supervisor, { clock, log, idleMs }: ServeDeps): Promise<void> {
  const clients = new Set<net.Socket>();
  let end: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => (end = resolve));
  let idle: Timer | undefined;
  const watchIdle = (): void => {
    idle?.cancel();
    idle = undefined;
    if (clients.size === 0 && supervisor.isIdle) idle = clock.setTimer(idleMs, end);
  };
  const server = net.createServer((socket) => {
    clients.add(socket);
    watchIdle();
    socket.on('close', () => {
      clients.delete(socket);
      watchIdle();
    });
    void new Session(socket, {
      supervisor,
      log,
      version: VERSION,
      onShutdown: () => socket.end(end),
    });
  });
  const unlisten = supervisor.listen(watchIdle);
  // what runs must not pay for it
  const onFault = (reason: unknown): void => log.error('supervisor fault', errorFields(reason));
  process.on('uncaughtException', onFault).on('unhandledRejection', onFault);
  const endIfIdle = (): void => (supervisor.isIdle ? end() : undefined);
  process.on('SIGTERM', endIfIdle).on('SIGHUP', ignore).on('SIGINT', ignore);
  rmSync(SOCKET, { force: true }); // of an earlier supervisor: the lock says that none lives
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(SOCKET, resolve);
  });
  chmodSync(SOCKET, 0o600);
  watchIdle();
  await ended;
  idle?.cancel();
  unlisten();
  process.off('uncaughtException', onFault).off('unhandledRejection', onFault);
  process.off('SIGTERM', endIfIdle).off('SIGHUP', ignore).off('SIGINT', ignore);
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  for (const client of clients) client.destroy();
  await closed;
}

const ignore = (): void => undefined;
/** Relative: the working directory is the supervisor's own. */
const SOCKET = path.relative('.', layout.socket('.'));

/** @throws kind `invalid`. */
export function parseArguments(args: readonly string[]): {
  readonly directory: string;
  readonly idleMs: number;
} {
  const [directory = '', idleText = ''] = args.slice(-2);
  const idleMs = Number(idleText);
  if (!path.isAbsolute(directory) || !/^\d{1,12}$/.test(idleText)) {
    throw new CloudlessError(
      'invalid',
      'the arguments of a supervisor are its absolute directory and its idle time in milliseconds',
    );
  }
  return { directory, idleMs };
}

/** What {@link parseArguments} reads. */
export function supervisorArguments(directory: string, idleMs: number): readonly string[] {
  return [directory, String(Math.trunc(idleMs))];
}
