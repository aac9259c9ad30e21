import { existsSync, mkdirSync, utimesSync } from 'node:fs';
import path from 'node:path';
import { create } from '@bufbuild/protobuf';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Code, ConnectError } from '@connectrpc/connect';
import { silentLog, type ContainerId, type Log } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { systemClock } from '@cloudless/app-kit';
import {
  ContainerConfigSchema,
  ContainerState,
  PodSandboxConfigSchema,
} from '../gen/runtime/v1/api_pb.js';
import type { CriRuntime, CriRuntimeOptions } from '../index.js';
import { FakeCriServer } from '../testing/fake-cri-server.js';
import { openRuntime, OWNER } from '../testing/open-runtime.js';
import { aRequest } from '../testing/requests.js';

const { CONTAINER_CREATED, CONTAINER_RUNNING, CONTAINER_EXITED, CONTAINER_UNKNOWN } =
  ContainerState;
const SCRATCH = {
  name: 's',
  mountPath: '/s',
  readOnly: false,
  source: { kind: 'emptyDir' },
} as const;
const readId = (digit: string): ContainerId => digit.repeat(64) as ContainerId;
let server: FakeCriServer;
let runtime: CriRuntime | undefined;

beforeEach(async () => {
  server = new FakeCriServer();
  await server.listen();
});
afterEach(async () => {
  await runtime?.close();
  await server.dispose();
});

async function open(overrides: Partial<CriRuntimeOptions> = {}): Promise<CriRuntime> {
  return (runtime = await openRuntime(server, overrides));
}

function createLabels(digit: string, cluster = OWNER.cluster): Record<string, string> {
  return {
    'io.cloudless.cluster': cluster,
    'io.cloudless.node': 'n1',
    'io.cloudless.container-id': readId(digit),
  };
}

/**
 * Adds a sandbox and a container that are older than any `orphanAgeMs`.
 * @param digit - Id of the container in the runtime, and the digit of its Cloudless id.
 * @param state - State of the container; `none` adds only the sandbox.
 */
function add(
  digit: string,
  state: ContainerState | 'none',
  { cluster = OWNER.cluster, sandbox = true, group = '' } = {},
): void {
  const labels = createLabels(digit, cluster);
  const podSandboxId = sandbox
    ? server.addSandbox(create(PodSandboxConfigSchema, { labels }), 0n)
    : 'gone';
  if (state === 'none') return;
  const annotations = { 'io.cloudless.memory': JSON.stringify({ labels: {}, ports: [], group }) };
  const config = create(ContainerConfigSchema, { labels, annotations });
  const rest = {
    finishedAt: 0n,
    exitCode: 0,
    reason: '',
    pid: state === CONTAINER_RUNNING ? process.pid : 0,
  };
  server.containers.set(digit, { id: digit, podSandboxId, config, state, createdAt: 0n, ...rest });
}

const nowNanos = (): bigint => BigInt(Date.now()) * 1_000_000n;

/**
 * Makes a call of the runtime fail.
 * @returns A function that makes the call succeed again.
 */
function failCall(call: 'containerStatus' | 'podSandboxStatus'): () => void {
  const failure = new ConnectError('failed to get container info', Code.Internal);
  if (call === 'containerStatus') {
    const failed = Promise.reject(failure);
    failed.catch(() => undefined);
    server.statusGates.set('a', failed);
    return () => server.statusGates.delete('a');
  }
  let isFailing = true;
  server.overrides[call] = () => {
    if (isFailing) throw failure;
    return { status: { network: { ip: '10.0.0.7' } } };
  };
  return () => void (isFailing = false);
}

/** Lists the remaining containers and sandboxes with their digits. */
const listRemaining = (): readonly string[] => [
  ...[...server.containers.keys()].map((id) => `container ${id}`),
  ...[...server.sandboxes.values()].map(
    ({ config }) => `sandbox ${config.labels['io.cloudless.container-id']?.[0]}`,
  ),
];

describe('sweep', () => {
  it.each([
    {
      name: 'removes a sandbox without a container',
      state: 'none' as const,
      sandbox: true,
      remaining: [],
    },
    {
      name: 'removes a container that was never started',
      state: CONTAINER_CREATED,
      sandbox: true,
      remaining: [],
    },
    {
      name: 'removes a never-started container without a sandbox',
      state: CONTAINER_CREATED,
      sandbox: false,
      remaining: [],
    },
    {
      name: 'keeps a running container',
      state: CONTAINER_RUNNING,
      sandbox: true,
      remaining: ['container a', 'sandbox a'],
    },
    {
      name: 'keeps an exited container',
      state: CONTAINER_EXITED,
      sandbox: true,
      remaining: ['container a', 'sandbox a'],
    },
  ])('$name', async ({ state, sandbox, remaining }) => {
    add('a', state, { sandbox });
    add('f', state, { cluster: 'another', sandbox: false });
    await open();
    expect(listRemaining()).toEqual(
      [...(state === 'none' ? [] : ['container f']), ...remaining].sort(),
    );
  });

  it.each(['containerStatus', 'podSandboxStatus'] as const)(
    'keeps a running container and its volumes while the call %s fails',
    async (call) => {
      add('a', CONTAINER_RUNNING, { group: 'web-1' });
      const volumeDirectory = path.join(server.directory, 'volumes');
      const kept = path.join(volumeDirectory, 'empty', 'web-1', 'cache');
      mkdirSync(kept, { recursive: true });
      utimesSync(path.dirname(kept), 0, 0);
      const restoreCall = failCall(call);
      await server.disconnect();
      await server.listen(); // the overrides take effect here
      const opened = await open({ volumeDirectory });
      expect([listRemaining(), existsSync(kept)]).toEqual([['container a', 'sandbox a'], true]);
      expect(await opened.list()).toMatchObject([{ containerId: readId('a'), phase: 'running' }]);
      restoreCall();
      expect(await opened.list()).toMatchObject([
        { containerId: readId('a'), phase: 'running', pid: process.pid, ip: '10.0.0.7' },
      ]);
    },
  );

  it('ends only the network of a container that exited longer than orphanAgeMs ago', async () => {
    add('a', CONTAINER_EXITED);
    add('b', CONTAINER_EXITED);
    Object.assign(server.containers.get('b') ?? {}, {
      createdAt: nowNanos(),
      finishedAt: nowNanos(),
    });
    add('c', CONTAINER_RUNNING);
    const ended: string[] = [];
    server.overrides.stopPodSandbox = ({ podSandboxId }) => {
      ended.push(
        server.sandboxes.get(podSandboxId)?.config.labels['io.cloudless.container-id']?.[0] ?? '',
      );
      return {};
    };
    await server.disconnect();
    await server.listen();
    await open();
    expect(ended).toEqual(['a']);
    expect(listRemaining()).toHaveLength(6);
  });

  it('delays openCriRuntime by 5 s at most when a removal is stuck', async () => {
    add('a', 'none');
    const called = new Promise<void>((resolve) => {
      server.overrides.stopPodSandbox = () => {
        resolve();
        return new Promise(() => undefined);
      };
    });
    await server.disconnect();
    await server.listen();
    const clock = new ManualClock();
    const opened = open({
      clock: { ...systemClock, now: () => clock.now(), setTimer: clock.setTimer.bind(clock) },
    });
    await called;
    await clock.advance(5_000);
    expect(await (await opened).list()).toEqual([]);
  });

  it('stops a container that the runtime has lost and reports its exit', async () => {
    add('a', CONTAINER_UNKNOWN);
    const opened = await open();
    expect(server.containers.get('a')?.state).toBe(CONTAINER_EXITED);
    expect(await opened.list()).toMatchObject([{ containerId: readId('a'), phase: 'exited' }]);
  });

  it('keeps an exited container whose sandbox another program has removed, until remove', async () => {
    add('a', CONTAINER_EXITED, { sandbox: false });
    const opened = await open();
    expect(await opened.list()).toHaveLength(1);
    await opened.remove(readId('a'));
    expect(listRemaining()).toEqual([]);
  });

  it('removes an old log directory unless a sandbox of its container exists', async () => {
    const config = create(PodSandboxConfigSchema, { labels: createLabels('a') });
    server.addSandbox(config, nowNanos());
    const directories = ['a', 'b'].map((digit) => path.join(server.logDirectory, readId(digit)));
    for (const directory of directories) {
      mkdirSync(directory, { recursive: true });
      utimesSync(directory, 1, 1);
    }
    await open();
    expect(directories.map((directory) => existsSync(directory))).toEqual([true, false]);
  });

  it('removes the other sandboxes when one removal fails', async () => {
    server.overrides.removePodSandbox = ({ podSandboxId }) => {
      if (podSandboxId === 'sandbox-1') throw new ConnectError('device is busy', Code.Unknown);
      server.sandboxes.delete(podSandboxId);
      return {};
    };
    await server.disconnect();
    await server.listen();
    add('a', 'none');
    add('b', 'none');
    await open();
    expect(listRemaining()).toEqual(['sandbox a']);
  });
});

describe('CriRuntime.shutdown', () => {
  it('removes containers and sandboxes of this owner in any state, and none of other owners', async () => {
    for (const [digit, state] of [CONTAINER_RUNNING, CONTAINER_EXITED, CONTAINER_CREATED].entries())
      add(String(digit), state);
    const opened = await open({ orphanAgeMs: Number.POSITIVE_INFINITY });
    add('4', 'none');
    add('5', CONTAINER_EXITED, { sandbox: false });
    add('f', CONTAINER_RUNNING, { cluster: 'another' });
    mkdirSync(path.join(server.logDirectory, readId('0')), { recursive: true });
    await opened.shutdown();
    expect(listRemaining()).toEqual(['container f', 'sandbox f']);
    expect(existsSync(server.logDirectory)).toBe(false);
    await expect(opened.list()).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'this runtime is closed',
    });
  });

  it('removes the empty directories of running containers', async () => {
    server.images.add('nginx:alpine');
    const opened = await open();
    const empty = path.join(server.directory, 'volumes/empty/r');
    await opened.start(aRequest({ group: 'r', volumes: [SCRATCH] }));
    expect(existsSync(empty)).toBe(true);
    await opened.shutdown();
    expect(existsSync(empty)).toBe(false);
  });

  it('removes a container that is being started, and refuses later starts', async () => {
    server.images.add('nginx:alpine');
    let onCall = (): void => undefined;
    const called = new Promise<void>((resolve) => (onCall = resolve));
    let answer = (): void => undefined;
    const mayAnswer = new Promise<void>((resolve) => (answer = resolve));
    server.overrides.runPodSandbox = async ({ config }) => {
      onCall();
      await mayAnswer;
      return { podSandboxId: server.addSandbox(config!) };
    };
    await server.disconnect();
    await server.listen();
    const opened = await open();
    const started = opened.start(aRequest({ group: 'r', volumes: [SCRATCH] }));
    await called;
    const ended = opened.shutdown();
    await expect(opened.start(aRequest({ containerId: readId('b') }))).rejects.toMatchObject({
      kind: 'unavailable',
    });
    answer();
    await Promise.allSettled([started]);
    await ended;
    expect(listRemaining()).toEqual([]);
    expect(existsSync(path.join(server.directory, 'volumes/empty/r'))).toBe(false);
  });

  it('repeats failed removals until they succeed', async () => {
    let failures = 2;
    const { stopPodSandbox } = {
      stopPodSandbox: () => {
        if ((failures -= 1) >= 0) throw new ConnectError('device is busy', Code.Unknown);
        return {};
      },
    };
    Object.assign(server.overrides, { stopPodSandbox });
    await server.disconnect();
    await server.listen();
    add('a', CONTAINER_RUNNING);
    await (await open()).shutdown();
    expect(listRemaining()).toEqual([]);
  });

  it.each([
    {
      name: 'is stuck',
      stop: () => new Promise<never>(() => undefined),
      untilLogged: 'removing containers',
      cause: 'the container runtime is slow or stuck: see its log',
    },
    {
      name: 'always fails',
      stop: () => Promise.reject(new ConnectError('device is busy', Code.Unknown)),
      untilLogged: 'containers not removed, trying again',
      cause: 'device is busy',
    },
  ])(
    'rejects at its time limit with the number of remaining containers when the runtime $name',
    async ({ stop, untilLogged, cause }) => {
      server.overrides.stopPodSandbox = stop;
      await server.disconnect();
      await server.listen();
      add('a', CONTAINER_RUNNING);
      const clock = new ManualClock();
      let onLogged = (): void => undefined;
      const logged = new Promise<void>((resolve) => (onLogged = resolve));
      const write = (message: string): void => (message === untilLogged ? onLogged() : undefined);
      const log: Log = { ...silentLog, info: write, warn: write };
      const ended = expect((await open({ clock, log })).shutdown(100)).rejects.toMatchObject({
        kind: 'deadline',
        message: `1 containers of this node were not removed within 100 ms: ${cause}`,
      });
      await logged;
      await clock.advance(100);
      await ended;
    },
  );
});
