import { existsSync, mkdirSync, readdirSync, renameSync } from 'node:fs';
import path from 'node:path';
import { create } from '@bufbuild/protobuf';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Code, ConnectError } from '@connectrpc/connect';
import { sleep, type ContainerId } from '@cloudless/base';
import type { ContainerEvent, ContainerRequest, ContainerRuntime } from '@cloudless/runtime';
import { systemClock } from '@cloudless/app-kit';
import {
  ContainerConfigSchema,
  ContainerState,
  PodSandboxConfigSchema,
} from './gen/runtime/v1/api_pb.js';
import type { CriRuntimeOptions } from './index.js';
import { FakeCriServer } from './testing/fake-cri-server.js';
import { openRuntime } from './testing/open-runtime.js';

const ID = 'ab'.repeat(32) as ContainerId;
const request: ContainerRequest = {
  containerId: ID,
  labels: { app: 'web' },
  image: 'nginx:alpine',
  command: [],
  args: ['-v'],
  env: { A: '1' },
  ports: [{ name: 'http', port: 80, protocol: 'tcp' }],
  limits: { cpuMillis: 250, memoryBytes: 64 * 1024 * 1024 },
  requests: { cpuMillis: 100 },
};

let server: FakeCriServer;
const opened: ContainerRuntime[] = [];

async function open(overrides: Partial<CriRuntimeOptions> = {}): Promise<ContainerRuntime> {
  const runtime = await openRuntime(server, overrides);
  opened.push(runtime);
  return runtime;
}

beforeEach(async () => {
  server = new FakeCriServer();
  await server.listen();
});

afterEach(async () => {
  for (const runtime of opened.splice(0)) await runtime.close();
  await server.dispose();
});

describe('openCriRuntime', () => {
  it('rejects with the socket path and a remedy when no runtime answers', async () => {
    const socketPath = path.join(server.directory, 'no.sock');
    await expect(open({ socketPath })).rejects.toMatchObject({
      kind: 'unavailable',
      message: `no container runtime answers at ${socketPath} (ENOENT): start it, or set the path of its socket`,
    });
  });

  it.each([
    {
      name: 'another interface version',
      version: () => ({ runtimeName: 'old', runtimeVersion: '0.9', runtimeApiVersion: 'v1alpha2' }),
      expectedText: 'old 0.9 speaks v1alpha2',
    },
    {
      name: 'no service runtime.v1',
      version: () => {
        throw new ConnectError('unknown service runtime.v1.RuntimeService', Code.Unimplemented);
      },
      expectedText: 'no runtime.v1',
    },
  ])('refuses a runtime with $name', async ({ version, expectedText }) => {
    Object.assign(server.overrides, { version });
    await server.disconnect();
    await server.listen();
    await expect(open()).rejects.toMatchObject({
      kind: 'unimplemented',
      message: expect.stringContaining(expectedText),
    });
  });

  it.each([
    { overrides: { socketPath: 'cri.sock' }, field: 'socketPath' },
    { overrides: { logDirectory: 'logs' }, field: 'logDirectory' },
    { overrides: { owner: { cluster: '', node: 'n1' } }, field: 'owner' },
    { overrides: { logFiles: 1 }, field: 'logFiles' },
  ])('refuses an invalid $field', async ({ overrides, field }) => {
    await expect(open(overrides)).rejects.toMatchObject({
      kind: 'invalid',
      message: expect.stringContaining(field),
    });
  });
});

describe('onCapabilities', () => {
  it('is called with the capabilities before the runtime is open', async () => {
    const calls: (readonly string[])[] = [];
    const runtime = await open({ onCapabilities: (names) => calls.push(names) });
    expect(calls).toEqual([runtime.capabilities()]);
  });
});

describe('CriRuntime.start', () => {
  it('passes the command, environment, ports and limits of the request to the runtime', async () => {
    const runtime = await open();
    const status = await runtime.start(request);
    expect(status).toMatchObject({
      containerId: ID,
      labels: { app: 'web' },
      endpoints: [{ portName: 'http', ip: '10.0.0.7', port: 80 }],
    });
    const { config } = server.onlyContainer;
    expect(config).toMatchObject({
      command: [],
      args: ['-v'],
      image: { image: 'sha256:nginx:alpine' },
      logPath: '0.log',
    });
    expect(config.envs.map(({ key, value }) => [key, Buffer.from(value).toString()])).toEqual([
      ['A', '1'],
    ]);
    expect(config.linux?.resources).toMatchObject({
      cpuPeriod: 100_000n,
      cpuQuota: 25_000n,
      cpuShares: 102n,
      memoryLimitInBytes: 67_108_864n,
    });
    expect(config.linux?.securityContext?.maskedPaths).toContain('/proc/kcore');
    expect(config.labels).toEqual({
      'io.cloudless.cluster': 'c1',
      'io.cloudless.node': 'n1',
      'io.cloudless.container-id': ID,
    });
    expect([...server.sandboxes.values()][0]?.config).toMatchObject({
      logDirectory: path.join(server.logDirectory, ID),
      labels: config.labels,
    });
  });

  it('pulls a missing image once for two concurrent starts and a later start', async () => {
    const runtime = await open();
    const other = 'cd'.repeat(32) as ContainerId;
    await Promise.all([runtime.start(request), runtime.start({ ...request, containerId: other })]);
    await runtime.start({ ...request, containerId: 'ef'.repeat(32) as ContainerId });
    expect(server.calls.filter((name) => name === 'pullImage')).toHaveLength(1);
  });

  it.each([
    {
      code: Code.Unknown,
      text: 'failed to resolve reference "docker.io/library/nginx:alpine": not found',
      kind: 'precondition',
      expectedText: 'image nginx:alpine cannot be pulled: failed to resolve reference',
    },
    {
      code: Code.Unavailable,
      text: 'failed to pull: dial tcp 127.0.0.1:5000: connection refused',
      kind: 'precondition',
      expectedText: 'connection refused',
    },
    {
      code: Code.Unknown,
      text: 'failed to parse image reference: invalid reference format',
      kind: 'invalid',
      expectedText: 'not an image reference',
    },
  ])(
    'rejects with the error of the registry and leaves no sandbox when a pull fails: $text',
    async ({ code, text, kind, expectedText }) => {
      server.imageOverrides.pullImage = () => {
        throw new ConnectError(text, code);
      };
      await server.disconnect();
      await server.listen();
      const runtime = await open();
      await expect(runtime.start(request)).rejects.toMatchObject({
        kind,
        message: expect.stringContaining(expectedText),
      });
      expect(server.sandboxes.size).toBe(0);
    },
  );

  it.each([
    { text: 'exec: "nope": executable file not found in $PATH: unknown', kind: 'invalid' },
    { text: 'write /x: no space left on device', kind: 'exhausted' },
    { text: 'failed to setup network for sandbox', kind: 'precondition' },
  ])('leaves no sandbox and no container when the start fails: $text', async ({ text, kind }) => {
    server.overrides.startContainer = () => {
      throw new ConnectError(text, Code.Unknown);
    };
    await server.disconnect();
    await server.listen();
    const runtime = await open();
    await expect(runtime.start(request)).rejects.toMatchObject({ kind, message: text });
    expect([server.sandboxes.size, server.containers.size]).toEqual([0, 0]);
  });
});

describe('the exit of a container', () => {
  it.each([
    { exitCode: 0, reason: 'Completed', expectedText: 'completed', reportedCode: 0 },
    { exitCode: 3, reason: 'Error', expectedText: 'exit code 3', reportedCode: 3 },
    { exitCode: 143, reason: 'Error', expectedText: 'killed by SIGTERM', reportedCode: 143 },
    { exitCode: 137, reason: 'OOMKilled', expectedText: 'out of memory', reportedCode: 137 },
    { exitCode: 0, reason: 'OOMKilled', expectedText: 'completed', reportedCode: 0 },
    {
      exitCode: 255,
      reason: 'Unknown',
      expectedText: 'ended with an unknown exit code',
      reportedCode: -1,
    },
  ])(
    'is reported for exit code $exitCode and reason $reason as: $expectedText',
    async ({ exitCode, reason, expectedText, reportedCode }) => {
      const runtime = await open();
      await runtime.start(request);
      server.exitContainer(server.onlyContainer, exitCode, reason);
      expect(await runtime.list()).toMatchObject([
        { phase: 'exited', exitCode: reportedCode, reason: expectedText },
      ]);
    },
  );

  it('is reported as lost with the machine when the container started before the last boot', async () => {
    const runtime = await open();
    await runtime.start(request);
    server.onlyContainer.createdAt = 1_000_000n;
    server.exitContainer(server.onlyContainer, 255, 'Unknown');
    expect(await runtime.list()).toMatchObject([{ exitCode: -1, reason: 'lost with the machine' }]);
  });

  it('is reported when another program removes the container', async () => {
    const runtime = await open();
    const events = runtime.events(new AbortController().signal)[Symbol.asyncIterator]();
    await runtime.start(request);
    server.containers.clear();
    expect(await runtime.list()).toEqual([]);
    expect((await events.next()).value).toMatchObject({ kind: 'started' });
    expect((await events.next()).value).toMatchObject({
      kind: 'exited',
      status: { containerId: ID, exitCode: -1 },
    });
  });

  it('is reported once when another program removes the container after its exit', async () => {
    const runtime = await open();
    const events = runtime.events(new AbortController().signal)[Symbol.asyncIterator]();
    await runtime.start(request);
    server.exitContainer(server.onlyContainer, 3);
    await runtime.list();
    server.containers.clear();
    server.sandboxes.clear();
    expect(await runtime.list()).toEqual([]);
    const next = 'ef'.repeat(32) as ContainerId;
    await runtime.start({ ...request, containerId: next });
    const seen = [await events.next(), await events.next(), await events.next()];
    expect(seen.map(({ value }) => value)).toMatchObject([
      { kind: 'started', status: { containerId: ID } },
      { kind: 'exited', status: { containerId: ID, exitCode: 3 } },
      { kind: 'started', status: { containerId: next } },
    ]);
  });

  it('is reported as an event whether the runtime has events or not', async () => {
    for (const missing of [false, true]) {
      if (missing) {
        server.overrides.getContainerEvents = async function* () {
          throw new ConnectError('unknown method', Code.Unimplemented);
        };
        await server.disconnect();
        await server.listen();
      }
      const runtime = await open();
      const events = runtime.events(new AbortController().signal)[Symbol.asyncIterator]();
      const containerId = (missing ? 'cd' : 'ab').repeat(32) as ContainerId;
      await runtime.start({ ...request, containerId });
      expect((await events.next()).value).toMatchObject({ kind: 'started' });
      server.exitContainer([...server.containers.values()].at(-1) ?? server.onlyContainer, 5);
      expect((await events.next()).value).toMatchObject({
        kind: 'exited',
        status: { containerId, exitCode: 5 },
      });
    }
  });
});

describe('a container of another owner', () => {
  const foreign = [
    { name: 'labels are missing', labels: {} },
    {
      name: 'cluster differs',
      labels: {
        'io.cloudless.cluster': 'c2',
        'io.cloudless.node': 'n1',
        'io.cloudless.container-id': ID,
      },
    },
    {
      name: 'node differs',
      labels: {
        'io.cloudless.cluster': 'c1',
        'io.cloudless.node': 'n2',
        'io.cloudless.container-id': ID,
      },
    },
    {
      name: 'container id is a path',
      labels: {
        'io.cloudless.cluster': 'c1',
        'io.cloudless.node': 'n1',
        'io.cloudless.container-id': '../../etc',
      },
    },
  ];

  it.each(foreign)('is neither listed, stopped nor removed when its $name', async ({ labels }) => {
    const podSandboxId = server.addSandbox(create(PodSandboxConfigSchema, { labels }), 0n);
    const config = create(ContainerConfigSchema, { labels });
    const state = ContainerState.CONTAINER_RUNNING;
    server.containers.set('theirs', {
      id: 'theirs',
      podSandboxId,
      config,
      state,
      createdAt: 1n,
      finishedAt: 0n,
      exitCode: 0,
      reason: '',
      pid: 1,
    });
    const runtime = await open({ orphanAgeMs: 0 });
    expect(await runtime.list()).toEqual([]);
    await expect(runtime.stop(ID, 0)).rejects.toMatchObject({ kind: 'notFound' });
    await runtime.remove(ID);
    expect([server.sandboxes.has(podSandboxId), server.containers.get('theirs')?.state]).toEqual([
      true,
      state,
    ]);
    expect(server.calls.filter((name) => /^(stop|remove)/.test(name))).toEqual([]);
  });
});

describe('openCriRuntime with sandboxes of a killed agent', () => {
  it('removes an old sandbox without a container and keeps a young sandbox', async () => {
    const labels = {
      'io.cloudless.cluster': 'c1',
      'io.cloudless.node': 'n1',
      'io.cloudless.container-id': ID,
    };
    const old = server.addSandbox(create(PodSandboxConfigSchema, { labels }), 0n);
    const young = server.addSandbox(
      create(PodSandboxConfigSchema, {
        labels: { ...labels, 'io.cloudless.container-id': 'cd'.repeat(32) },
      }),
    );
    await open();
    expect([server.sandboxes.has(old), server.sandboxes.has(young)]).toEqual([false, true]);
  });
});

describe('CriRuntime while the container runtime is unreachable', () => {
  it('fails calls and event readers, and lists the same containers afterwards', async () => {
    const runtime = await open();
    const events = runtime.events(new AbortController().signal)[Symbol.asyncIterator]();
    await runtime.start(request);
    expect((await events.next()).value).toMatchObject({ kind: 'started' });
    const next = events.next();
    await server.disconnect();
    await expect(next).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining(server.socketPath),
    });
    await expect(runtime.list()).rejects.toMatchObject({ kind: 'unavailable' });
    server.exitContainer(server.onlyContainer, 9);
    await server.listen();
    expect(await runtime.list()).toMatchObject([{ containerId: ID, exitCode: 9 }]);
  });
});

describe('one container among many', () => {
  const others = ['cd', 'ef'].map((digits) => digits.repeat(32) as ContainerId);

  /** Makes the runtime one without events, like containerd before 1.7. */
  beforeEach(async () => {
    server.overrides.getContainerEvents = async function* () {
      throw new ConnectError('unknown method', Code.Unimplemented);
    };
    await server.disconnect();
    await server.listen();
  });

  /**
   * Lists the containers and calls `action` in the middle of the list: the list has already read
   * the container {@link ID}, and waits for the status of another container.
   */
  async function listWhile(
    runtime: ContainerRuntime,
    action: () => Promise<unknown>,
  ): Promise<unknown> {
    await runtime.start({ ...request, containerId: others[1] ?? ID });
    const slow = [...server.containers.values()].at(-1) ?? server.onlyContainer;
    let releaseStatus = (): void => undefined;
    server.statusGates.set(slow.id, new Promise((resolve) => (releaseStatus = resolve)));
    server.exitContainer(slow, 0);
    server.calls.length = 0;
    const list = runtime.list();
    while (!server.calls.includes('containerStatus')) await sleep(systemClock, 1);
    await action();
    releaseStatus();
    return list;
  }

  /** Returns a list to which all further events are added. */
  function collectEvents(runtime: ContainerRuntime): readonly ContainerEvent[] {
    const events: ContainerEvent[] = [];
    void (async () => {
      for await (const event of runtime.events(new AbortController().signal)) events.push(event);
    })().catch(() => undefined); // reading fails when the runtime is closed
    return events;
  }

  it('is started, stopped and removed without a list of all containers', async () => {
    const runtime = await open();
    for (const containerId of others) await runtime.start({ ...request, containerId });
    server.calls.length = 0;
    await runtime.start(request);
    await runtime.stop(ID, 0);
    await runtime.remove(ID);
    expect(server.calls.filter((name) => name === 'listContainers')).toEqual([]);
    expect((await runtime.list()).map(({ containerId }) => containerId)).toEqual(others);
  });

  it('is reported as exited once when a concurrent list still shows it running', async () => {
    const runtime = await open();
    await runtime.start(request);
    const events = collectEvents(runtime);
    expect(await listWhile(runtime, () => runtime.stop(ID, 0))).toMatchObject([
      { phase: 'exited' },
      { phase: 'exited' },
    ]);
    await runtime.list();
    expect(
      events.filter(({ status }) => status.containerId === ID).map(({ kind }) => kind),
    ).toEqual(['exited']);
  });

  it('stays removed and causes no event when a concurrent list still shows it', async () => {
    const runtime = await open();
    await runtime.start(request);
    await runtime.stop(ID, 0);
    const events = collectEvents(runtime);
    expect(await listWhile(runtime, () => runtime.remove(ID))).toMatchObject([
      { containerId: others[1] },
    ]);
    await runtime.list();
    expect(events.filter(({ status }) => status.containerId === ID)).toEqual([]);
  });

  it('is returned as exited by stop when another program has removed it', async () => {
    const runtime = await open();
    await runtime.start(request);
    server.containers.clear();
    await expect(runtime.stop(ID, 0)).resolves.toMatchObject({ phase: 'exited', exitCode: -1 });
  });
});

describe('the log of a running container', () => {
  const entries = (count: number): string =>
    '2026-01-01T00:00:00.000000001Z stdout F hello\n'.repeat(count);
  const waitForRotations = async (count: number): Promise<void> => {
    while (server.calls.filter((name) => name === 'reopenContainerLog').length < count)
      await sleep(systemClock, 1);
  };

  it('is rotated each time its current file exceeds logFileBytes', async () => {
    const runtime = await open({ logCheckMs: 1, logFileBytes: 100 });
    await runtime.start(request);
    for (const round of [1, 2]) {
      server.writeLog(server.onlyContainer, entries(3));
      await waitForRotations(round);
      while (
        readdirSync(path.join(server.logDirectory, ID)).some((name) => name.endsWith('.closing'))
      )
        await sleep(systemClock, 1);
    }
    expect(
      readdirSync(path.join(server.logDirectory, ID)).filter((name) => name.endsWith('.log')),
    ).toHaveLength(3);
  });

  it('is reopened by the next agent when a crash has interrupted a rotation, whatever its size', async () => {
    const runtime = await open({ logCheckMs: 60_000 });
    await runtime.start(request);
    server.writeLog(server.onlyContainer, entries(1));
    const directory = path.join(server.logDirectory, ID);
    renameSync(
      path.join(directory, '0.log'),
      path.join(directory, `${'1'.padStart(20, '0')}.closing`),
    );
    server.writeLog(server.onlyContainer, '');
    await open({ logCheckMs: 1 });
    await waitForRotations(1);
  });
});

describe('CriRuntime.remove', () => {
  it('removes the container, its sandbox and its log', async () => {
    const runtime = await open();
    await runtime.start(request);
    server.writeLog(server.onlyContainer, '2026-01-01T00:00:00.000000001Z stdout F hello\n');
    expect(existsSync(path.join(server.logDirectory, ID))).toBe(true);
    await runtime.stop(ID, 0);
    await runtime.remove(ID);
    expect([
      server.containers.size,
      server.sandboxes.size,
      existsSync(path.join(server.logDirectory, ID)),
    ]).toEqual([0, 0, false]);
  });

  it('removes nothing for an id that is a path', async () => {
    const runtime = await open();
    const beside = path.join(server.directory, 'beside');
    mkdirSync(beside);
    await runtime.remove('../beside' as ContainerId);
    expect(existsSync(beside)).toBe(true);
  });
});

describe('CriRuntime.close', () => {
  it('fails the pending read of a log follower', async () => {
    const runtime = await open();
    await runtime.start(request);
    server.writeLog(server.onlyContainer, '2026-01-01T00:00:00.000000001Z stdout F hello\n');
    const lines = runtime.logs(ID, { follow: true }, new AbortController().signal);
    const reader = lines[Symbol.asyncIterator]();
    await reader.next();
    const next = expect(reader.next()).rejects.toMatchObject({ kind: 'unavailable' });
    await runtime.close();
    await next;
  });
});
