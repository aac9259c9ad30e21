// Starts and stops the two daemons: containerd and the registry.
import { spawn } from 'node:child_process';
import {
  mkdirSync,
  openSync,
  closeSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { containerdFile, registryFile } from './files.mjs';
import { callCri } from './cri.mjs';
import { env, waitFor } from './run.mjs';
import { SetupError } from './settings.mjs';

/** The daemons in the order of their start; they are stopped in reverse order. */
export const daemons = [
  {
    name: 'registry',
    command: (settings) => ['docker-registry', 'serve', registryFile(settings)],
    check: refuseTakenPort,
    isReady: (settings) => isRegistryReady(settings),
  },
  {
    name: 'containerd',
    command: (settings) => ['containerd', '--config', containerdFile(settings)],
    check: async () => {},
    isReady: (settings) => isContainerdReady(settings),
  },
];
/** Time after SIGTERM after which a daemon is killed: enough to end running requests. */
const STOP_TIMEOUT_MS = 20_000;

const pidFile = (settings, daemon) => join(settings.runDir, `${daemon.name}.pid`);
/** Returns the log file of a daemon. */
export const logFile = (settings, daemon) => join(settings.logs, `${daemon.name}.log`);

/**
 * Returns the process id of a daemon; undefined when the daemon does not run. Compares the command
 * line, because the recorded id may belong to another program by now.
 */
export function findPid(settings, daemon) {
  const commandLine = daemon.command(settings).join('\0');
  const isOurs = (pid) => readText(`/proc/${pid}/cmdline`).replace(/\0$/, '').endsWith(commandLine);
  const recordedPid = readText(pidFile(settings, daemon)).trim();
  if (recordedPid !== '' && isOurs(recordedPid)) return Number(recordedPid);
  // without a pid file, for example after /run was cleaned, the configuration file identifies the
  // daemon
  const foundPid = readdirSync('/proc').find((name) => /^\d+$/.test(name) && isOurs(name));
  return foundPid === undefined ? undefined : Number(foundPid);
}

/**
 * Starts a daemon unless it runs, and waits until it answers.
 * @param say - Prints a line of progress.
 * @throws {@link SetupError} with the end of the log when the daemon ends at once.
 */
export async function startDaemon(settings, daemon, say) {
  const pid = findPid(settings, daemon);
  if (pid === undefined) {
    await daemon.check(settings);
    say(`starting ${daemon.name}`);
    launch(settings, daemon);
  }
  await waitFor(`${daemon.name} answers (its log: ${logFile(settings, daemon)})`, async () => {
    if (findPid(settings, daemon) === undefined) {
      throw new SetupError(
        `${daemon.name} ended at once. The end of ${logFile(settings, daemon)}:\n${readLogTail(settings, daemon)}`,
      );
    }
    return (await daemon.isReady(settings)) ? true : undefined;
  });
}

/** Starts the process of a daemon and records its process id. */
function launch(settings, daemon) {
  for (const dir of [settings.runDir, settings.logs]) mkdirSync(dir, { recursive: true });
  const [command, ...args] = daemon.command(settings);
  const log = openSync(logFile(settings, daemon), 'w');
  // in a session of its own, the daemon outlives this program and the terminal
  const child = spawn(command, args, {
    detached: true,
    stdio: ['ignore', log, log],
    cwd: '/',
    env,
  });
  closeSync(log);
  if (child.pid === undefined)
    throw new SetupError(`${command} cannot be started; "status" says what is missing`);
  child.unref();
  writeFileSync(pidFile(settings, daemon), `${child.pid}\n`);
}

/**
 * Stops a daemon and waits until its process has ended. Containers continue without containerd,
 * which finds them again at its next start.
 * @param say - Prints a line of progress.
 */
export async function stopDaemon(settings, daemon, say) {
  const pid = findPid(settings, daemon);
  if (pid !== undefined) {
    const isGone = () => (findPid(settings, daemon) === pid ? undefined : true);
    process.kill(pid, 'SIGTERM');
    await waitFor(`${daemon.name} ends`, isGone, STOP_TIMEOUT_MS).catch(() =>
      process.kill(pid, 'SIGKILL'),
    );
    await waitFor(`${daemon.name} (process ${pid}) ends`, isGone);
    say(`stopped ${daemon.name}`);
  }
  rmSync(pidFile(settings, daemon), { force: true });
}

/** @throws {@link SetupError} when the registry does not run and its port is in use. */
export async function refuseTakenPort(settings) {
  const [registry] = daemons;
  if (findPid(settings, registry) !== undefined) return;
  const [host, port] = settings.registry.split(':');
  const server = createServer();
  const failure = await new Promise((resolve) => {
    server.once('error', resolve);
    server.listen({ host, port: Number(port) }, () => server.close(() => resolve(undefined)));
  });
  if (failure === undefined) return;
  const reason = failure.code === 'EADDRINUSE' ? 'another program listens there' : failure.message;
  throw new SetupError(
    `the registry cannot listen on ${settings.registry}: ${reason}; choose another with --registry 127.0.0.1:PORT`,
  );
}

/** Returns true when the registry serves requests. */
export async function isRegistryReady(settings) {
  try {
    return (await fetch(`http://${settings.registry}/v2/`)).ok;
  } catch {
    return false;
  }
}

/** Returns true when containerd and its network are ready, so that pods can be created. */
async function isContainerdReady(settings) {
  try {
    const { status } = await callCri(settings.socket, 'Status', {});
    return status.conditions.every((condition) => condition.status);
  } catch {
    return false;
  }
}

/** Returns the last ten lines of the log of a daemon. */
function readLogTail(settings, daemon) {
  return readText(logFile(settings, daemon)).trimEnd().split('\n').slice(-10).join('\n');
}

/** Returns the text of a file; empty when the file cannot be read. */
function readText(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
