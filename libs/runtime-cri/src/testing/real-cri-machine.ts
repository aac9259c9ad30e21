import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { randomHex, silentLog, sleep, type ContainerId } from '@cloudless/base';
import type { ContainerRuntime } from '@cloudless/runtime';
import { toShellScript, type Behaviour, type RuntimeMachine } from '@cloudless/runtime/conformance';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { openCriRuntime, type CriRuntimeOptions } from '../index.js';
import { processExists, readProcesses } from '../system/host-processes.js';

/**
 * Path of the socket of a container runtime for tests; undefined when none is configured. Tests
 * create containers there, with labels of their own, and remove them.
 */
export const SOCKET = process.env['CLOUDLESS_CRI_SOCKET'] || undefined;
/** An image with busybox's shell and tools. */
export const TEST_IMAGE = process.env['CLOUDLESS_CRI_TEST_IMAGE'] ?? 'busybox:1';
/** Reason why tests with a real runtime cannot run; undefined when they can. */
export const SKIP_REASON =
  SOCKET === undefined
    ? 'CLOUDLESS_CRI_SOCKET is not set'
    : process.getuid?.() === 0
      ? undefined
      : 'only root sees the processes of containers';
/** Directory in each container for the files of its behaviour. */
const SCRATCH = '/tmp';
/** Environment variable that marks the child processes of a behaviour. */
const CHILD = 'CLOUDLESS_TEST_CHILD';
/** Shell command that waits until the terminal has a size; without a terminal it does nothing. */
const WAIT_FOR_SIZE =
  '[ -t 0 ] && sleep 0.3 && until [ -n "$(stty size 2>/dev/null)" ]; do sleep 0.02; done';
const POLL_MS = 10;

/** A machine on which a conformance suite or a test runs real containers. */
export interface RealCriMachine extends RuntimeMachine {
  /** Options with which the runtime was opened. */
  readonly options: CriRuntimeOptions;
}

/**
 * Opens a runtime with an owner of its own, so that concurrent tests do not see the containers of
 * each other. The caller must dispose of the machine.
 */
export async function openRealCriMachine(
  overrides: Partial<CriRuntimeOptions> = {},
): Promise<RealCriMachine> {
  const tempDirectory = mkdtempSync(path.join(tmpdir(), 'cloudless-cri-'));
  const mark = randomHex(systemRandom, 6);
  const options: CriRuntimeOptions = {
    socketPath: SOCKET ?? '',
    owner: { cluster: `test-${mark}`, node: 'here' },
    logDirectory: path.join(tempDirectory, 'logs'),
    imageDirectory: path.join(tempDirectory, 'images'),
    clock: systemClock,
    log: silentLog,
    logFileBytes: 64 * 1024,
    logCheckMs: 20,
    ...overrides,
  };
  let runtime = await openCriRuntime(options).catch((reason: unknown) => {
    rmSync(tempDirectory, { recursive: true, force: true });
    throw reason;
  });
  const observer = await openCriRuntime({ ...options, logCheckMs: 3_600_000 });
  const countChildren = (name: string): number =>
    readProcesses().filter(({ pid }) => isChild(pid, `${mark}-${name}-`)).length;
  return {
    options,
    image: TEST_IMAGE,
    get runtime() {
      return runtime;
    },
    command: (behaviour) => toCommand(behaviour, mark),
    openGate: async (name) => {
      for (const { pid } of await observer.list()) openGateIn(pid, name);
    },
    waitForChildStart: (name) => waitUntil(() => countChildren(name) > 0),
    waitForChildEnd: (name) => waitUntil(() => countChildren(name) === 0),
    reopen: async () => {
      await runtime.close();
      runtime = await openCriRuntime(options);
      return runtime;
    },
    advanceTime: async () => undefined,
    dispose: async () => {
      await runtime.close();
      await removeAll(observer);
      await observer.close();
      rmSync(tempDirectory, { recursive: true, force: true });
    },
  };
}

/** Polls every 10 ms until a condition is true. Use it where no event reports the change. */
export async function waitUntil(condition: () => boolean): Promise<void> {
  while (!condition()) await sleep(systemClock, POLL_MS);
}

/** Stops and removes all containers of a runtime. */
export async function removeAll(runtime: ContainerRuntime): Promise<void> {
  await Promise.all(
    (await runtime.list()).map(async ({ containerId }: { readonly containerId: ContainerId }) => {
      await runtime.stop(containerId, 0);
      await runtime.remove(containerId);
    }),
  );
}

/**
 * Converts a behaviour to a command for an image with a shell. Two details differ from a host.
 * First, no process in a container can kill the first process, so a behaviour that kills itself
 * runs below a shell that exits with the same code. Second, a terminal size arrives on a stream of
 * its own, so the size may arrive later than the start of the command and than input that was sent
 * after the size.
 */
function toCommand(behaviour: Behaviour, mark: string): readonly string[] {
  const names = behaviour.flatMap((step) => (step.step === 'child' ? [step.name] : []));
  const script = [
    `mkdir -p ${SCRATCH}`,
    `export ${CHILD}=${names.map((name) => `${mark}-${name}-`).join('')}`,
    ...behaviour.flatMap((step) => [
      ...(step.step === 'writeSize' ? [WAIT_FOR_SIZE] : []),
      toShellScript([step], SCRATCH),
    ]),
  ].join('\n');
  if (!behaviour.some(({ step }) => step === 'die')) return ['/bin/sh', '-c', script];
  return ['/bin/sh', '-c', '/bin/sh -c "$0"; exit $?', script];
}

/**
 * Opens a gate in a container by creating its file. The image may lack the directory of the file.
 */
function openGateIn(pid: number | undefined, name: string): void {
  if (pid === undefined) return; // the container has ended
  const directory = `/proc/${pid}/root${SCRATCH}`;
  try {
    mkdirSync(directory, { recursive: true });
    writeFileSync(path.join(directory, `gate-${name}`), '');
  } catch (reason) {
    if (processExists(pid)) throw reason;
  }
}

/** Returns true when a process is a child of a behaviour with this mark. */
function isChild(pid: number, mark: string): boolean {
  try {
    if (!readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes('sleep\x003600')) return false;
    return readFileSync(`/proc/${pid}/environ`, 'latin1').includes(mark);
  } catch {
    return false;
  }
}
