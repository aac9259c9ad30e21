import { readFileSync } from 'node:fs';
import { createSeededRandom, randomHex, toContainerId, type ContainerId } from '@cloudless/base';
import type { ContainerRequest, ContainerRuntime, ContainerStatus } from '@cloudless/runtime';
import { systemRandom } from '@cloudless/app-kit';
import { readCommandLine } from '../system/host-processes.js';
import { TEST_IMAGE, waitUntil } from './real-cri-machine.js';

const random = createSeededRandom(Number(systemRandom.next() * 2 ** 31));
const never = new AbortController().signal;

/** Result of a command in a container. */
export interface Outcome {
  readonly exitCode: number;
  /** Output on both streams, in the order in which the command wrote it. */
  readonly text: string;
}

/**
 * Returns a request for a container that runs a shell script in {@link TEST_IMAGE}, with a new id.
 */
export function aScriptRequest(
  script: string,
  overrides: Partial<ContainerRequest> = {},
): ContainerRequest {
  const containerId = toContainerId(randomHex(random, 32));
  const command = ['/bin/sh', '-c', script];
  return {
    containerId,
    labels: {},
    image: TEST_IMAGE,
    command,
    args: [],
    env: {},
    ports: [],
    limits: {},
    ...overrides,
  };
}

/** Starts a container whose main process only sleeps. */
export function startIdle(
  runtime: ContainerRuntime,
  overrides: Partial<ContainerRequest> = {},
): Promise<ContainerStatus> {
  return runtime.start(aScriptRequest('exec sleep 3600', overrides));
}

/** Runs a shell script as a command in a running container. */
export async function execIn(
  runtime: ContainerRuntime,
  containerId: ContainerId,
  script: string,
): Promise<Outcome> {
  const parts: Uint8Array[] = [];
  for await (const event of runtime.exec(
    containerId,
    { command: ['/bin/sh', '-c', `exec 2>&1\n${script}`] },
    never,
  )) {
    if (event.kind === 'exited')
      return { exitCode: event.exitCode, text: Buffer.concat(parts).toString() };
    parts.push(event.data);
  }
  throw new Error('the command did not end');
}

/**
 * Returns the fields of /proc/<pid>/status of the main process of a container of {@link startIdle},
 * by name. Waits until the process executes its program: the runtime reports the start a moment
 * earlier, when the process still has the privileges of the runtime.
 */
export async function readProcessStatus({
  pid = 0,
}: ContainerStatus): Promise<ReadonlyMap<string, string>> {
  await waitUntil(() => readCommandLine(pid).join(' ') === 'sleep 3600');
  const text = readFileSync(`/proc/${pid}/status`, 'utf8');
  return new Map(
    text.split('\n').map((line) => [line.split(':')[0] ?? '', (line.split(':')[1] ?? '').trim()]),
  );
}
