import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Code, createClient, type Client, type Transport } from '@connectrpc/connect';
import { AdminService, CoordinatorService, fromConnectError } from '@cloudless/api';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { silentLog, sleep } from '@cloudless/base';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { parseCoordinatorConfig } from './config.js';
import { startCoordinator, type RunningCoordinator } from './coordinator.js';
import { connectHttp2 } from './testing/matrix-clients.js';

/** Coordinators of one process that share a store in memory. */
class CoordinatorGroup {
  readonly store: StateStore = createMemoryStateStore({ clock: systemClock });
  private readonly members = new Map<string, RunningCoordinator>();
  private readonly closers: (() => void)[] = [];

  constructor(private readonly directory: string) {}

  async start(name: string, port = 0): Promise<RunningCoordinator> {
    const dataDir = join(this.directory, name);
    const values = { port, opsPort: 0, state: 'memory', tls: 'off', name, dataDir };
    const coordinator = await startCoordinator(
      parseCoordinatorConfig([{ source: 'test', values }], dataDir),
      {
        clock: systemClock,
        random: systemRandom,
        log: silentLog,
        hostname: 'test',
        pid: process.pid,
        version: '0.0.0-test',
        sharedStore: this.store,
      },
    );
    this.members.set(name, coordinator);
    return coordinator;
  }

  client(name: string): Client<typeof CoordinatorService> {
    return createClient(CoordinatorService, this.connect(name));
  }

  admin(name: string): Client<typeof AdminService> {
    return createClient(AdminService, this.connect(name));
  }

  urlOf(name: string): string {
    return this.members.get(name)?.url ?? '';
  }

  /** Waits until each coordinator knows that this many run. */
  async waitForMembers(count: number): Promise<void> {
    for (const name of this.members.keys()) {
      const client = this.client(name);
      while ((await client.getServerInfo({})).coordinators.length < count)
        await sleep(systemClock, 20);
    }
  }

  private connect(name: string): Transport {
    const connection = connectHttp2(this.members.get(name)?.url ?? '', {});
    this.closers.push(() => connection.close());
    return connection.transport;
  }

  /** Waits until one of these coordinators leads and another knows it, and returns both names. */
  async waitForLeader(...names: readonly string[]): Promise<{ leader: string; follower: string }> {
    for (;;) {
      const infos = await Promise.all(names.map((name) => this.client(name).getServerInfo({})));
      const leaders = infos.map(({ leader }) => leader?.coordinatorId ?? '');
      const [leader = ''] = leaders;
      if (leader !== '' && names.includes(leader) && leaders.every((known) => known === leader))
        return { leader, follower: names.find((name) => name !== leader) ?? '' };
      await sleep(systemClock, 20);
    }
  }

  async stop(name: string): Promise<void> {
    await this.members.get(name)?.close();
    this.members.delete(name);
  }

  async close(): Promise<void> {
    for (const close of this.closers) close();
    await Promise.all([...this.members.keys()].map((name) => this.stop(name)));
    await this.store.close();
  }
}

let directory: string;
let group: CoordinatorGroup;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'coordinators-'));
  group = new CoordinatorGroup(directory);
  await Promise.all([group.start('c1'), group.start('c2')]);
});
afterEach(async () => {
  await group.close();
  await rm(directory, { recursive: true, force: true });
});

describe('a coordinator', () => {
  it('does not stand for election when its port is in use', async () => {
    const { leader } = await group.waitForLeader('c1', 'c2');
    const { port } = new URL(group.urlOf(leader));
    const readTerm = async () => (await group.store.get('/leader/leader'))?.value;
    // The first candidate in a cluster without a leader.
    await Promise.all([group.stop('c1'), group.stop('c2')]);
    const before = await readTerm();
    const other = createServer().listen(Number(port), '127.0.0.1');
    await once(other, 'listening');
    await expect(group.start('c3', Number(port))).rejects.toThrow('is in use');
    expect(await readTerm()).toEqual(before);
    other.close();
  });
});

const web = { name: 'web', spec: { command: ['serve'], replicas: 1 } };

describe('two coordinators on one store', () => {
  it('serve changes and reads at either one', async () => {
    const { leader, follower } = await group.waitForLeader('c1', 'c2');
    const { uid } = await group.client(follower).createWorkload(web);
    expect((await group.client(follower).getWorkload({ name: 'web' })).uid).toBe(uid);
    expect((await group.client(leader).getWorkload({ name: 'web' })).uid).toBe(uid);
    const explained = await group.client(follower).explainWorkload({ name: 'web' });
    expect(explained.name).toBe('web');
  });

  it('show the status of nodes that the leader knows', async () => {
    const { leader, follower } = await group.waitForLeader('c1', 'c2');
    const client = group.client(leader);
    const instanceId = 'instance-of-n1-0123456789';
    const { clusterId } = await client.enrollNode({ nodeId: 'n1', instanceId });
    const capacity = { cpuMillis: 1_000, memoryBytes: 1_000n };
    const hello = { nodeId: 'n1', instanceId, clusterId, protocolMin: 1, protocolMax: 2, capacity };
    // At the follower, which forwards the unary calls of agents too.
    await group.client(follower).heartbeat({ hello, inventory: { last: true } });
    const expected = (await client.getNode({ nodeId: 'n1' })).status;
    for (;;) {
      const { status } = await group.client(follower).getNode({ nodeId: 'n1' });
      if (status?.phase === expected?.phase && status?.phase !== 0) break;
      await sleep(systemClock, 20);
    }
  });

  it('answer a read with everything acknowledged before, at the request of the client', async () => {
    const { leader, follower } = await group.waitForLeader('c1', 'c2');
    await group.client(leader).createWorkload(web);
    const reader = group.client(follower);
    expect((await reader.getWorkload({ name: 'web', linearizable: true })).name).toBe('web');
    const { revision } = await group.client(leader).listWorkloads({});
    const { workloads } = await reader.listWorkloads({ minRevision: revision });
    expect(workloads).toHaveLength(1);
    await expect(reader.listWorkloads({ minRevision: revision + 1_000n })).rejects.toMatchObject({
      code: Code.OutOfRange,
    });
  });

  it('elect nobody when both are closing', async () => {
    const { leader, follower } = await group.waitForLeader('c1', 'c2');
    const watch = group.client(follower).watchWorkloads({})[Symbol.asyncIterator]();
    await watch.next();
    const readTerm = async () => (await group.store.get('/leader/leader'))?.value;
    const before = await readTerm();
    await Promise.all([group.stop(follower), group.stop(leader)]);
    expect(before).toBeDefined();
    expect(await readTerm()).toEqual(before);
    await watch.next().catch(() => undefined);
  });

  it('hand the leadership over on request, and name the new leader', async () => {
    const { leader, follower } = await group.waitForLeader('c1', 'c2');
    await group.waitForMembers(2);
    const before = await group.client(leader).getServerInfo({});
    // At the coordinator that follows, which forwards the request.
    const after = await group.admin(follower).stepDown({});
    expect(after).toMatchObject({ leaderId: follower });
    expect(after.epoch).toBeGreaterThan(before.leader?.epoch ?? 0n);
    // A late request for the former leadership does not depose the new leader.
    await expect(
      group.admin(leader).stepDown({ expectedEpoch: before.leader?.epoch ?? 0n }),
    ).rejects.toMatchObject({ code: Code.FailedPrecondition });
    await group.client(leader).createWorkload(web);
  });

  it('hand the leadership over without a failed change when the leader ends', async () => {
    const { leader, follower } = await group.waitForLeader('c1', 'c2');
    const client = group.client(follower);
    let isOver = false;
    const failures: string[] = [];
    const writes = (async () => {
      for (let count = 0; !isOver; count += 1) {
        await client
          .createWorkload({ ...web, name: `web-${count}` })
          .catch((reason: unknown) => failures.push(fromConnectError(reason).message));
      }
    })();
    await sleep(systemClock, 50);
    await group.stop(leader);
    const after = (await client.getServerInfo({})).leader?.coordinatorId;
    isOver = true;
    await writes;
    expect({ after, failures }).toEqual({ after: follower, failures: [] });
  });
});
