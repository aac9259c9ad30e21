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
import { openCriRuntime, type CriRuntime, type CriRuntimeOptions } from '../index.js';
import { FakeCriServer } from '../testing/fake-cri-server.js';
import { aRequest } from '../testing/requests.js';

const OWNER = { cluster: 'c1', node: 'n1' };
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
  const { socketPath, logDirectory, home } = server;
  const rest = { owner: OWNER, clock: systemClock, log: silentLog };
  return (runtime = await openCriRuntime({
    socketPath,
    logDirectory,
    imageDirectory: home,
    ...rest,
    ...overrides,
  }));
}

function createLabels(digit: string, cluster = OWNER.cluster): Record<string, string> {
  return {
    'io.cloudless.cluster': cluster,
    'io.cloudless.node': 'n1',
    'io.cloudless.container-id': readId(digit),
  };
}

/** Adds a very old sandbox with a container. */
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
 * @returns Restores the call.
 */
function failCall(call: 'containerStatus' | 'podSandboxStatus'): () => void {
  const failure = new ConnectError('failed to get container info', Code.Internal);
  if (call === 'containerStatus') {
    const failed = Promise.reject(failure);
    failed.catch(() => undefined);
    server.statusGates.set('a', failed);
    return () => server.statusGates.delete('a');
  }
  let isMute = true;
  server.overrides[call] = () => {
    if (isMute) throw failure;
    return { status: { network: { ip: '10.0.0.7' } } };
  };
  return () => void (isMute = false);
}

const left = (): readonly string[] => [
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
      stays: [],
    },
    {
      name: 'removes a container that was never started',
      state: CONTAINER_CREATED,
      sandbox: true,
      stays: [],
    },
    {
      name: 'removes a never-started container without a sandbox',
      state: CONTAINER_CREATED,
      sandbox: false,
      stays: [],
    },
    {
      name: 'keeps a running container',
      state: CONTAINER_RUNNING,
      sandbox: true,
      stays: ['container a', 'sandbox a'],
    },
    {
      name: 'keeps an exited container',
      state: CONTAINER_EXITED,
      sandbox: true,
      stays: ['container a', 'sandbox a'],
    },
  ])('$name', async ({ state, sandbox, stays }) => {
    add('a', state, { sandbox });
    add('f', state, { cluster: 'another', sandbox: false });
    await open();
    expect(left()).toEqual([...(state === 'none' ? [] : ['container f']), ...stays].sort());
  });

  it.each(['containerStatus', 'podSandboxStatus'] as const)(
    'keeps a running container and its volumes while the runtime fails %s',
    async (call) => {
      add('a', CONTAINER_RUNNING, { group: 'web-1' });
      const volumeDirectory = path.join(server.home, 'volumes');
      const kept = path.join(volumeDirectory, 'empty', 'web-1', 'cache');
      mkdirSync(kept, { recursive: true });
      utimesSync(path.dirname(kept), 0, 0);
      const tell = failCall(call);
      await server.disconnect();
      await server.listen(); // overrides hold from here on
      const opened = await open({ volumeDirectory });
      expect([left(), existsSync(kept)]).toEqual([['container a', 'sandbox a'], true]);
      expect(await opened.list()).toMatchObject([{ containerId: readId('a'), phase: 'running' }]);
      tell();
      expect(await opened.list()).toMatchObject([
        { containerId: readId('a'), phase: 'running', pid: process.pid, ip: '10.0.0.7' },
      ]);
    },
  );

  it('ends the network of a container that exited long ago, once, and keeps that of a recent exit', async () => {
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
    expect(left()).toHaveLength(6);
  });

  it('does not delay the start of an agent', async () => {
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

  it('lets a container be removed whose sandbox another program has removed', async () => {
    add('a', CONTAINER_EXITED, { sandbox: false });
    const opened = await open();
    expect(await opened.list()).toHaveLength(1);
    await opened.remove(readId('a'));
    expect(left()).toEqual([]);
  });

  it('keeps the old log directory of a young sandbox without a container', async () => {
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

  it('continues after a failed removal', async () => {
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
    expect(left()).toEqual(['sandbox a']);
  });
});

describe('CriRuntime.shutdown', () => {
  it('removes everything of this owner in any state and nothing of others', async () => {
    for (const [digit, state] of [CONTAINER_RUNNING, CONTAINER_EXITED, CONTAINER_CREATED].entries())
      add(String(digit), state);
    const opened = await open({ orphanAgeMs: Number.POSITIVE_INFINITY });
    add('4', 'none');
    add('5', CONTAINER_EXITED, { sandbox: false });
    add('f', CONTAINER_RUNNING, { cluster: 'another' });
    mkdirSync(path.join(server.logDirectory, readId('0')), { recursive: true });
    await opened.shutdown();
    expect(left()).toEqual(['container f', 'sandbox f']);
    expect(existsSync(server.logDirectory)).toBe(false);
    await expect(opened.list()).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'this runtime is closed',
    });
  });

  it('removes the empty directories of running containers', async () => {
    server.images.add('nginx:alpine');
    const opened = await open();
    const empty = path.join(server.home, 'volumes/empty/r');
    await opened.start(aRequest({ group: 'r', volumes: [SCRATCH] }));
    expect(existsSync(empty)).toBe(true);
    await opened.shutdown();
    expect(existsSync(empty)).toBe(false);
  });

  it('removes containers that are being started, and refuses later starts', async () => {
    server.images.add('nginx:alpine');
    let asked = (): void => undefined;
    const isAsked = new Promise<void>((resolve) => (asked = resolve));
    let answer = (): void => undefined;
    const isAnswered = new Promise<void>((resolve) => (answer = resolve));
    server.overrides.runPodSandbox = async ({ config }) => {
      asked();
      await isAnswered;
      return { podSandboxId: server.addSandbox(config!) };
    };
    await server.disconnect();
    await server.listen();
    const opened = await open();
    const started = opened.start(aRequest({ group: 'r', volumes: [SCRATCH] }));
    await isAsked;
    const ended = opened.shutdown();
    await expect(opened.start(aRequest({ containerId: readId('b') }))).rejects.toMatchObject({
      kind: 'unavailable',
    });
    answer();
    await Promise.allSettled([started]);
    await ended;
    expect(left()).toEqual([]);
    expect(existsSync(path.join(server.home, 'volumes/empty/r'))).toBe(false);
  });

  it('retries failed removals', async () => {
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
    expect(left()).toEqual([]);
  });

  it.each([
    {
      name: 'that is stuck',
      stop: () => new Promise<never>(() => undefined),
      untilLogged: 'removing containers',
      why: 'the container runtime is slow or stuck: see its log',
    },
    {
      name: 'that always fails',
      stop: () => Promise.reject(new ConnectError('device is busy', Code.Unknown)),
      untilLogged: 'containers not removed, trying again',
      why: 'device is busy',
    },
  ])(
    'ends within its time limit with a runtime $name, and reports the remaining containers',
    async ({ stop, untilLogged, why }) => {
      server.overrides.stopPodSandbox = stop;
      await server.disconnect();
      await server.listen();
      add('a', CONTAINER_RUNNING);
      const clock = new ManualClock();
      let logged = (): void => undefined;
      const isTried = new Promise<void>((resolve) => (logged = resolve));
      const note = (message: string): void => (message === untilLogged ? logged() : undefined);
      const log: Log = { ...silentLog, info: note, warn: note };
      const ended = expect((await open({ clock, log })).shutdown(100)).rejects.toMatchObject({
        kind: 'deadline',
        message: `1 containers of this node were not removed within 100 ms: ${why}`,
      });
      await isTried;
      await clock.advance(100);
      await ended;
    },
  );
});
