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
 * Socket of a container runtime for tests. Tests create and remove containers there, with labels of
 * their own.
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
/** Directory for the files of behaviours, in each container. */
const SCRATCH = '/tmp';
const CHILD = 'CLOUDLESS_TEST_CHILD';
const SIZE_ARRIVES =
  '[ -t 0 ] && sleep 0.3 && until [ -n "$(stty size 2>/dev/null)" ]; do sleep 0.02; done';
const POLL_MS = 10;

/** A machine with real containers. */
export interface RealCriMachine extends RuntimeMachine {
  readonly options: CriRuntimeOptions;
}

/** Opens a runtime with an owner of its own, so that concurrent tests do not see each other. */
export async function openRealCriMachine(
  overrides: Partial<CriRuntimeOptions> = {},
): Promise<RealCriMachine> {
  const home = mkdtempSync(path.join(tmpdir(), 'cloudless-cri-'));
  const mark = randomHex(systemRandom, 6);
  const options: CriRuntimeOptions = {
    socketPath: SOCKET ?? '',
    owner: { cluster: `test-${mark}`, node: 'here' },
    logDirectory: path.join(home, 'logs'),
    imageDirectory: path.join(home, 'images'),
    clock: systemClock,
    log: silentLog,
    logFileBytes: 64 * 1024,
    logCheckMs: 20,
    ...overrides,
  };
  let runtime = await openCriRuntime(options).catch((reason: unknown) => {
    rmSync(home, { recursive: true, force: true });
    throw reason;
  });
  const observer = await openCriRuntime({ ...options, logCheckMs: 3_600_000 });
  const children = (name: string): number =>
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
    waitForChildStart: (name) => waitUntil(() => children(name) > 0),
    waitForChildEnd: (name) => waitUntil(() => children(name) === 0),
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
      rmSync(home, { recursive: true, force: true });
    },
  };
}

/** Polls until a condition holds that only the operating system can report. */
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
 * Converts a behaviour to a command for an image with a shell. Two things differ from a host. No
 * process in a container can kill the first process, so a behaviour that kills itself runs below a
 * shell that passes its exit code on. A terminal size arrives on its own channel, so it may arrive
 * later than input that was sent after it, or than the start of the command.
 */
function toCommand(behaviour: Behaviour, mark: string): readonly string[] {
  const names = behaviour.flatMap((step) => (step.step === 'child' ? [step.name] : []));
  const script = [
    `mkdir -p ${SCRATCH}`,
    `export ${CHILD}=${names.map((name) => `${mark}-${name}-`).join('')}`,
    ...behaviour.flatMap((step) => [
      ...(step.step === 'writeSize' ? [SIZE_ARRIVES] : []),
      toShellScript([step], SCRATCH),
    ]),
  ].join('\n');
  if (!behaviour.some(({ step }) => step === 'die')) return ['/bin/sh', '-c', script];
  return ['/bin/sh', '-c', '/bin/sh -c "$0"; exit $?', script];
}

/** Opens a gate in a container; its image may lack the directory. */
function openGateIn(pid: number | undefined, name: string): void {
  if (pid === undefined) return; // it has ended
  const directory = `/proc/${pid}/root${SCRATCH}`;
  try {
    mkdirSync(directory, { recursive: true });
    writeFileSync(path.join(directory, `gate-${name}`), '');
  } catch (reason) {
    if (processExists(pid)) throw reason;
  }
}

function isChild(pid: number, mark: string): boolean {
  try {
    if (!readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes('sleep\x003600')) return false;
    return readFileSync(`/proc/${pid}/environ`, 'latin1').includes(mark);
  } catch {
    return false;
  }
}
