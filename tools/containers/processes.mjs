// The two programs that go on running: containerd and the registry.
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
import { env, until } from './run.mjs';
import { SetupError } from './settings.mjs';

/** What is started, in this order; stopped the other way round. */
export const daemons = [
  {
    name: 'registry',
    command: (settings) => ['docker-registry', 'serve', registryFile(settings)],
    check: refuseTakenPort,
    answers: (settings) => registryAnswers(settings),
  },
  {
    name: 'containerd',
    command: (settings) => ['containerd', '--config', containerdFile(settings)],
    check: async () => {},
    answers: (settings) => containerdAnswers(settings),
  },
];
/** Long enough for either to finish what it does; one that hangs is then killed. */
const STOP_LIMIT_MS = 20_000;

const pidFile = (settings, daemon) => join(settings.runDir, `${daemon.name}.pid`);
/** The file a daemon writes its log to. */
export const logFile = (settings, daemon) => join(settings.logs, `${daemon.name}.log`);

/**
 * The id of a daemon's process; undefined when it does not run. A number that now belongs to
 * another program is not ours.
 */
export function pidOf(settings, daemon) {
  const wanted = daemon.command(settings).join('\0');
  const isOurs = (pid) => readText(`/proc/${pid}/cmdline`).replace(/\0$/, '').endsWith(wanted);
  const kept = readText(pidFile(settings, daemon)).trim();
  if (kept !== '' && isOurs(kept)) return Number(kept);
  // Without its pid file, after /run was cleaned, it is still known by its configuration file.
  const found = readdirSync('/proc').find((name) => /^\d+$/.test(name) && isOurs(name));
  return found === undefined ? undefined : Number(found);
}

/** Starts a daemon unless it runs, and waits until it answers. */
export async function startDaemon(settings, daemon, say) {
  const pid = pidOf(settings, daemon);
  if (pid === undefined) {
    await daemon.check(settings);
    say(`starting ${daemon.name}`);
    launch(settings, daemon);
  }
  await until(`${daemon.name} answers (its log: ${logFile(settings, daemon)})`, async () => {
    if (pidOf(settings, daemon) === undefined) {
      throw new SetupError(
        `${daemon.name} ended at once. The end of ${logFile(settings, daemon)}:\n${tail(settings, daemon)}`,
      );
    }
    return (await daemon.answers(settings)) ? true : undefined;
  });
}

function launch(settings, daemon) {
  for (const dir of [settings.runDir, settings.logs]) mkdirSync(dir, { recursive: true });
  const [command, ...args] = daemon.command(settings);
  const log = openSync(logFile(settings, daemon), 'w');
  // A session of its own: it outlives this program and the terminal.
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
 * Ends a daemon and waits until it is gone. Containers go on without containerd, and are found
 * again when it starts.
 */
export async function stopDaemon(settings, daemon, say) {
  const pid = pidOf(settings, daemon);
  if (pid !== undefined) {
    const isGone = () => (pidOf(settings, daemon) === pid ? undefined : true);
    process.kill(pid, 'SIGTERM');
    await until(`${daemon.name} ends`, isGone, STOP_LIMIT_MS).catch(() =>
      process.kill(pid, 'SIGKILL'),
    );
    await until(`${daemon.name} (process ${pid}) ends`, isGone);
    say(`stopped ${daemon.name}`);
  }
  rmSync(pidFile(settings, daemon), { force: true });
}

/** @throws {@link SetupError} when the registry does not run, and could not. */
export async function refuseTakenPort(settings) {
  const [registry] = daemons;
  if (pidOf(settings, registry) !== undefined) return;
  const [host, port] = settings.registry.split(':');
  const server = createServer();
  const failure = await new Promise((resolve) => {
    server.once('error', resolve);
    server.listen({ host, port: Number(port) }, () => server.close(() => resolve(undefined)));
  });
  if (failure === undefined) return;
  const why = failure.code === 'EADDRINUSE' ? 'another program listens there' : failure.message;
  throw new SetupError(
    `the registry cannot listen on ${settings.registry}: ${why}; choose another with --registry 127.0.0.1:PORT`,
  );
}

/** Whether the registry can be asked for images. */
export async function registryAnswers(settings) {
  try {
    return (await fetch(`http://${settings.registry}/v2/`)).ok;
  } catch {
    return false;
  }
}

/** Ready means that the network is set up as well: a pod can be made. */
async function containerdAnswers(settings) {
  try {
    const { status } = await callCri(settings.socket, 'Status', {});
    return status.conditions.every((condition) => condition.status);
  } catch {
    return false;
  }
}

function tail(settings, daemon) {
  return readText(logFile(settings, daemon)).trimEnd().split('\n').slice(-10).join('\n');
}

function readText(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
