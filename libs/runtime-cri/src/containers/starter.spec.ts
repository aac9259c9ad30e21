import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { create } from '@bufbuild/protobuf';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Code, ConnectError } from '@connectrpc/connect';
import { silentLog, toContainerId } from '@cloudless/base';
import type { ContainerRequest, VolumeRequest } from '@cloudless/runtime';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { CriClient } from '../client/cri-client.js';
import {
  ContainerConfigSchema,
  ContainerState,
  PodSandboxConfigSchema,
} from '../gen/runtime/v1/api_pb.js';
import { isUnified } from '../system/pids-limit.js';
import { EgressFilter } from '../egress/egress-filter.js';
import { FakeCriServer } from '../testing/fake-cri-server.js';
import { aRequest, ALL_CAPABILITIES } from '../testing/requests.js';
import { GroupVolumes } from '../volumes/group-volumes.js';
import { VolumeStore } from '../volumes/volume-store.js';
import { Images } from '../images/images.js';
import { ContainerInventory } from './inventory.js';
import { toContainerSelector, toAnnotations } from './labels.js';
import { Sandboxes } from './sandboxes.js';
import { Starter } from './starter.js';

const owner = { cluster: 'c1', node: 'n1' };
const SELINUX = { user: 'u', role: 'r', type: 't', level: 's0:c1' };
const scratch: VolumeRequest = {
  name: 's',
  mountPath: '/s',
  readOnly: false,
  source: { kind: 'emptyDir' },
};

let server: FakeCriServer;
let client: CriClient;
let inventory: ContainerInventory;
let volumes: GroupVolumes;
let starter: Starter;

/** Creates the starter of a new agent, whose inventory was not refreshed yet. */
function open(agentOwner = owner): {
  readonly inventory: ContainerInventory;
  readonly volumes: GroupVolumes;
  readonly starter: Starter;
} {
  const log = silentLog;
  const wallTime = (): number => systemClock.wallTime();
  const getLogDirectory = (id: string): string => path.join(server.logDirectory, id);
  const capabilities = (): readonly string[] => ALL_CAPABILITIES;
  const newInventory = new ContainerInventory({
    client,
    owner: agentOwner,
    log,
    bootedAtMs: 0,
    wallTime,
  });
  const store = new VolumeStore(
    path.join(server.directory, 'volumes'),
    { allowed: [], guarded: [] },
    wallTime,
  );
  const parts = {
    client,
    inventory: newInventory,
    sandboxes: new Sandboxes(client, agentOwner, getLogDirectory),
    egressFilter: new EgressFilter(),
    images: new Images({ client, clock: systemClock, record: async () => async () => undefined }),
    volumes: new GroupVolumes({ store, inventory: newInventory, log }),
  };
  const starter = new Starter({
    ...parts,
    owner: agentOwner,
    capabilities,
    getLogDirectory,
    clock: systemClock,
    log,
    maxPids: 4096,
  });
  return { ...parts, starter };
}

beforeEach(async () => {
  server = new FakeCriServer();
  await server.listen();
  for (const image of ['nginx:alpine', 'numbered:1', 'named:1']) server.images.add(image);
  server.imageUsers.set('numbered:1', { uid: { value: 101n } });
  server.imageUsers.set('named:1', { username: 'app' });
  client = new CriClient({ socketPath: server.socketPath, clock: systemClock });
  ({ inventory, volumes, starter } = open());
});
afterEach(async () => {
  client.close();
  await server.dispose();
});

const start = (parts: Partial<ContainerRequest> = {}): Promise<unknown> =>
  starter.start(aRequest(parts));
const getEmptyDirectory = (group: string): string =>
  path.join(server.directory, 'volumes', 'empty', group);

describe('Starter.start', () => {
  it('makes each call of a start once and reads no list', async () => {
    await start();
    const beforeStart = isUnified() ? [] : ['containerStatus'];
    const [first, second, ...rest] = server.calls.filter((name) => name !== 'podSandboxStatus');
    expect([first, second, ...rest]).toEqual([
      ...[
        'imageStatus',
        'runPodSandbox',
        'createContainer',
        ...beforeStart,
        'startContainer',
        'containerStatus',
      ],
    ]);
    expect(server.calls.filter((name) => name === 'podSandboxStatus')).toHaveLength(1);
  });

  it('does not read the address of the sandbox in the network of the machine', async () => {
    await start({ network: { hostNetwork: true } });
    expect(server.calls).not.toContain('podSandboxStatus');
  });

  it('passes AppArmor, SELinux and the runtime class to the runtime', async () => {
    const security = {
      apparmor: { kind: 'localhost', reference: 'web' },
      selinux: SELINUX,
      runtimeClass: 'runsc',
    } as const;
    await start({ security });
    expect(server.handlers).toEqual(['runsc']);
    expect(server.onlyContainer.config.linux?.securityContext).toMatchObject({
      selinuxOptions: SELINUX,
      apparmor: { localhostRef: 'web' },
      apparmorProfile: 'localhost/web',
    });
  });

  it('mounts the directories of volumes in the order of their depth, then the hosts file', async () => {
    const named: VolumeRequest = {
      ...{ name: 'd', mountPath: '/s/d', readOnly: true },
      source: { kind: 'named', namespace: 'default', workload: 'web', name: 'db' },
    };
    await start({ group: 'r', volumes: [named, scratch] });
    expect(server.onlyContainer.config.mounts).toMatchObject([
      {
        containerPath: '/s',
        hostPath: path.join(getEmptyDirectory('r'), 's'),
        readonly: false,
        selinuxRelabel: true,
      },
      {
        containerPath: '/s/d',
        hostPath: path.join(server.directory, 'volumes/named/default/web/db'),
        readonly: true,
      },
      { containerPath: '/etc/hosts' },
    ]);
  });

  it('mounts a hosts file with address and name before the start, and removes it after a failed start', async () => {
    const file = path.join(server.logDirectory, aRequest().containerId, 'hosts');
    let atStart = '';
    server.overrides.startContainer = () => {
      atStart = readFileSync(file, 'utf8');
      throw new ConnectError('no', Code.Unknown);
    };
    await server.disconnect();
    await server.listen();
    const extraHosts = [{ ip: '192.0.2.10', hostnames: ['db'] }];
    await expect(start({ network: { hostname: 'web-1', extraHosts } })).rejects.toMatchObject({
      kind: 'precondition',
    });
    expect(atStart.split('\n').slice(-3)).toEqual(['10.0.0.7\tweb-1', '192.0.2.10\tdb', '']);
    expect(existsSync(path.dirname(file))).toBe(false);
  });

  it.each([
    { image: 'numbered:1', expectedText: undefined },
    {
      image: 'named:1',
      expectedText:
        'image named:1 runs as "app", and the name does not show whether that user is root',
    },
    { image: 'nginx:alpine', expectedText: 'image nginx:alpine runs as root' },
  ])(
    'starts or refuses image $image for runAsNonRoot, with the message: $expectedText',
    async ({ image, expectedText }) => {
      const started = start({ image, security: { runAsNonRoot: true } });
      if (expectedText === undefined) await started;
      else
        await expect(started).rejects.toMatchObject({
          kind: 'invalid',
          message: expect.stringContaining(expectedText),
        });
      expect(server.sandboxes.size).toBe(expectedText === undefined ? 1 : 0);
    },
  );
});

describe('the sandbox of a container id', () => {
  const { containerId } = aRequest();
  const leaveSandbox = (): string =>
    server.addSandbox(
      create(PodSandboxConfigSchema, {
        metadata: { name: containerId },
        labels: toContainerSelector(owner, containerId),
      }),
    );

  it('is replaced when it has no container', async () => {
    const leftover = leaveSandbox();
    await start();
    expect([server.sandboxes.has(leftover), server.sandboxes.size]).toEqual([false, 1]);
  });

  it('stays with its container and volume when the container is started again', async () => {
    await start({ volumes: [scratch], group: 'r' });
    await expect(start({ volumes: [scratch], group: 'r' })).rejects.toMatchObject({
      kind: 'exists',
    });
    ({ starter } = open());
    await expect(start({ volumes: [scratch], group: 'r' })).rejects.toMatchObject({
      kind: 'exists',
    });
    expect([
      server.sandboxes.size,
      server.containers.size,
      existsSync(getEmptyDirectory('r')),
    ]).toEqual([1, 1, true]);
  });

  it('is created once when two starts are concurrent, and the second start fails', async () => {
    const outcomes = await Promise.allSettled([start(), start()]);
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
    expect(server.sandboxes.size).toBe(1);
  });
});

/**
 * Returns a port request for a free host port. The port is below the range from which the system
 * assigns ports to other programs.
 */
async function requestFreePort(): Promise<
  Pick<ContainerRequest, 'ports'> & { readonly hostPort: number }
> {
  for (;;) {
    const hostPort = 10_000 + Math.floor(systemRandom.next() * 2_000);
    const listening = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      listening.once('error', () => resolve(false)).listen(hostPort, () => resolve(true));
    });
    if (!isFree) continue;
    await new Promise((resolve) => listening.close(resolve));
    return { hostPort, ports: [{ name: 'http', port: 80, protocol: 'tcp', hostPort }] };
  }
}

describe('a host port', () => {
  let requested: Awaited<ReturnType<typeof requestFreePort>>;
  beforeEach(async () => {
    requested = await requestFreePort();
  });
  const OTHER = toContainerId('cd'.repeat(32));
  const addOther = (state: ContainerState): void => {
    const labels = toContainerSelector({ cluster: 'c1', node: 'n2' }, OTHER);
    const annotations = toAnnotations(aRequest({ ports: requested.ports, containerId: OTHER }));
    const config = create(ContainerConfigSchema, { labels, annotations });
    const podSandboxId = server.addSandbox(create(PodSandboxConfigSchema, { labels }));
    const rest = { createdAt: 0n, finishedAt: 0n, exitCode: 0, reason: '', pid: 0 };
    server.containers.set('other', { id: 'other', podSandboxId, config, state, ...rest });
  };

  it('is refused while a running container of another agent has it', async () => {
    addOther(ContainerState.CONTAINER_RUNNING);
    await expect(start({ ports: requested.ports })).rejects.toMatchObject({
      kind: 'exhausted',
      message: `host port ${requested.hostPort}/tcp of this node is in use by container ${OTHER} of another agent on this machine`,
    });
    expect(server.calls).not.toContain('runPodSandbox');
  });

  it('is free when the container of another agent that had it has exited', async () => {
    addOther(ContainerState.CONTAINER_EXITED);
    await start({ ports: requested.ports });
    expect(server.calls).not.toContain('stopPodSandbox'); // the network has another owner
  });
});

describe('two agents on one machine', () => {
  const OTHER = { cluster: 'c1', node: 'n2' };
  let mine: ContainerRequest;
  let theirs: ContainerRequest;
  let port: string;
  beforeEach(async () => {
    const { ports, hostPort } = await requestFreePort();
    mine = aRequest({ ports });
    theirs = aRequest({ ports, containerId: toContainerId('cd'.repeat(32)) });
    port = `host port ${hostPort}/tcp of this node`;
  });

  it('do not both get a host port when they request the port at the same time', async () => {
    const both = await Promise.allSettled([starter.start(mine), open(OTHER).starter.start(theirs)]);
    expect(both.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    // The container of the first agent may already run when the second agent claims the port.
    const message = expect.stringMatching(
      `^${port} is (being claimed|in use) by .*another agent on this machine$`,
    );
    expect(both.find(({ status }) => status === 'rejected')).toMatchObject({
      reason: { kind: 'exhausted', message },
    });
    expect(server.containers.size).toBe(1);
  });

  it('get an error with the id of the container that has the requested host port', async () => {
    await starter.start(mine);
    await expect(open(OTHER).starter.start(theirs)).rejects.toMatchObject({
      message: `${port} is in use by container ${mine.containerId} of another agent on this machine`,
    });
  });

  it('can claim a host port after a failed start of the other agent', async () => {
    server.overrides.createContainer = () => {
      throw new ConnectError('no', Code.Unknown);
    };
    await server.disconnect();
    await server.listen();
    await expect(starter.start(mine)).rejects.toMatchObject({ message: 'no' });
    await expect(open(OTHER).starter.start(theirs)).rejects.toMatchObject({ message: 'no' });
  });
});

describe('a failed start', () => {
  const failStarts = async (text: string, code = Code.Unknown): Promise<void> => {
    server.overrides.startContainer = () => {
      throw new ConnectError(text, code);
    };
    await server.disconnect();
    await server.listen();
  };

  it('removes the empty directory volume when the runtime refuses to start the container', async () => {
    await failStarts('no');
    await expect(start({ group: 'r', volumes: [scratch] })).rejects.toMatchObject({
      kind: 'precondition',
      message: 'no',
    });
    expect(existsSync(getEmptyDirectory('r'))).toBe(false);
  });

  it('removes the sandbox, and creates no container, when the runtime does not report the process whose network is limited', async () => {
    await expect(start({ network: { egress: [] } })).rejects.toMatchObject({
      kind: 'unimplemented',
      message: expect.stringContaining('network.egress: this node lacks the capability'),
    });
    expect(server.calls).not.toContain('createContainer');
    expect(server.sandboxes.size).toBe(0);
  });

  it('rejects with kind internal when its sandbox cannot be removed', async () => {
    server.overrides.removePodSandbox = () => {
      throw new ConnectError('device is busy', Code.Unknown);
    };
    await failStarts('no');
    await expect(start()).rejects.toMatchObject({ kind: 'internal' });
  });

  it('keeps the empty directory when the runtime did not answer, so that the container may run', async () => {
    await failStarts('gone', Code.Unavailable);
    await expect(start({ group: 'r', volumes: [scratch] })).rejects.toMatchObject({
      kind: 'unavailable',
    });
    expect(existsSync(getEmptyDirectory('r'))).toBe(true);
  });
});

describe('a container that was just started', () => {
  it('is not reported as removed by a refresh that began before the start', async () => {
    let answer = (): void => undefined;
    let listed = (): void => undefined;
    const isListed = new Promise<void>((resolve) => (listed = resolve));
    const mayAnswer = new Promise<void>((resolve) => (answer = resolve));
    server.overrides.listContainers = async () => {
      listed();
      await mayAnswer;
      return { containers: [] };
    };
    await server.disconnect();
    await server.listen();
    const seen: string[] = [];
    const events = inventory.events(new AbortController().signal);
    void (async () => {
      for await (const { kind } of events) seen.push(kind);
    })();
    const refresh = inventory.refreshAll();
    await isListed;
    await start();
    answer();
    await refresh;
    expect(inventory.list().map(({ status }) => status.phase)).toEqual(['running']);
    expect(seen).toEqual(['started']);
    await inventory.refreshAll(); // began after the start and does not list the container
    expect(inventory.list()).toEqual([]);
  });
});

describe('empty directories', () => {
  it('stay while a start of the group holds them, also after another start has ended', async () => {
    mkdirSync(path.join(getEmptyDirectory('r'), 's'), { recursive: true });
    const releaseFirst = volumes.hold('r');
    const releaseSecond = volumes.hold('r');
    await volumes.release('r');
    releaseFirst();
    releaseFirst();
    await volumes.sweep(Number.POSITIVE_INFINITY);
    expect(existsSync(getEmptyDirectory('r'))).toBe(true);
    releaseSecond();
    await volumes.release('r');
    expect(existsSync(getEmptyDirectory('r'))).toBe(false);
  });

  it('stay while the runtime does not answer', async () => {
    mkdirSync(path.join(getEmptyDirectory('r'), 's'), { recursive: true });
    await server.disconnect();
    await volumes.release('r');
    expect(existsSync(getEmptyDirectory('r'))).toBe(true);
  });

  it.each(['..', '.', '', 'a/b', '-x'])(
    'are neither created nor removed for a group named %j',
    async (group) => {
      await expect(
        start({ containerId: toContainerId('ef'.repeat(32)), group, volumes: [scratch] }),
      ).rejects.toMatchObject({
        kind: 'invalid',
        message: `volumes.s: ${JSON.stringify(group)} is not a valid name of a directory`,
      });
      await volumes.release(group);
      expect(existsSync(server.directory)).toBe(true);
    },
  );
});
