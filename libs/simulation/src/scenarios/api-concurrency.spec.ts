import { jest } from '@jest/globals';
import { fromConnectError } from '@cloudless/api';
import { CloudlessError, createSeededRandom } from '@cloudless/base';
import type { StateStore } from '@cloudless/state-store';
import { createWeb, startCluster, readWeb } from '../test-cluster/web-workload.js';
import { TestCluster } from '../test-cluster/test-cluster.js';

const HOUR_MS = 3_600_000;
/** Each test runs a whole cluster, which takes long on a busy machine. */
jest.setTimeout(60_000);
const createSeeds = (count: number): readonly number[] =>
  Array.from({ length: count }, (_, index) => index + 1);

/** Returns the result of a call, or the kind of its error. */
async function outcomeOf<Result>(call: Promise<Result>): Promise<Result | string> {
  try {
    return await call;
  } catch (reason) {
    return fromConnectError(reason).kind;
  }
}

/** Starts a cluster whose commits then take up to 20 ms and overtake each other. */
async function startSlowCluster(nodes: number, seed: number): Promise<TestCluster> {
  const random = createSeededRandom(seed);
  let started = false;
  const cluster = await startCluster(nodes, {
    seed,
    commitDelayMs: () => (started ? Math.floor(random.next() * 20) : 0),
  });
  started = true;
  return cluster;
}

/** Reads all pages of a list and runs `changeBetween` between two pages. */
async function readAllPages<Item>(
  read: (
    pageToken: string,
  ) => Promise<{ readonly items: readonly Item[]; readonly nextPageToken: string }>,
  changeBetween: () => Promise<unknown>,
): Promise<readonly Item[]> {
  const items: Item[] = [];
  for (let pageToken = ''; ;) {
    const page = await read(pageToken);
    items.push(...page.items);
    if (page.nextPageToken === '') return items;
    pageToken = page.nextPageToken;
    await changeBetween();
  }
}

describe('list paging while the cluster changes', () => {
  it.each(createSeeds(6))('shows each object that stays exactly once, seed %i', async (seed) => {
    const cluster = await TestCluster.start({ seed });
    const random = createSeededRandom(seed + 500);
    const pick = <Item>(items: readonly Item[]): Item =>
      items[Math.floor(random.next() * items.length)] as Item;
    const existing = { workloads: new Set<string>(), nodes: new Set<string>() };
    const spec = { command: ['serve'], replicas: 0, labels: { tier: 'web' } };
    let nameCount = 0;
    const create = async (): Promise<void> => {
      const name = `${pick(['a', 'm', 'z'])}${(nameCount += 1)}`;
      await cluster.client.createWorkload({ name, namespace: pick(['default', 'other']), spec });
      await cluster.client.enrollNode({
        nodeId: name,
        instanceId: `instance-of-${name}-0123456789`,
      });
      existing.workloads.add(name);
      existing.nodes.add(name);
    };
    for (let count = 0; count < 20; count += 1) await cluster.complete(create);
    const remove = async (): Promise<void> => {
      const { workloads } = await cluster.client.listWorkloads({ pageSize: 1_000 });
      const { name, namespace } = pick(workloads);
      existing.workloads.delete(name);
      await cluster.client.deleteWorkload({ name, namespace });
      const nodeId = pick([...existing.nodes]);
      existing.nodes.delete(nodeId);
      await cluster.client.removeNode({ nodeId });
    };
    const change = async (): Promise<void> => {
      for (let count = 0; count < 3; count += 1) await cluster.complete(pick([create, remove]));
      if (random.next() < 0.2) await cluster.complete(() => cluster.restartCoordinator());
      await cluster.advance(100);
    };
    const pageSize = pick([1, 3, 7]);
    const before = { workloads: [...existing.workloads], nodes: [...existing.nodes] };
    const events = (
      await cluster.complete(() => cluster.client.listEvents({ pageSize: 1_000 }))
    ).events.map(({ id }) => id);
    const names = await readAllPages(
      (pageToken) =>
        cluster.complete(async () => {
          const { workloads, nextPageToken } = await cluster.client.listWorkloads({
            labelSelector: 'tier=web',
            pageSize,
            pageToken,
          });
          return { items: workloads.map(({ name }) => name), nextPageToken };
        }),
      change,
    );
    expect(findRepeated(names)).toEqual([]);
    expect(
      before.workloads.filter((name) => existing.workloads.has(name) && !names.includes(name)),
    ).toEqual([]);
    const nodesBefore = [...existing.nodes];
    const ids = await readAllPages(
      (pageToken) =>
        cluster.complete(async () => {
          const { nodes, nextPageToken } = await cluster.client.listNodes({ pageSize, pageToken });
          return { items: nodes.map(({ id }) => id), nextPageToken };
        }),
      change,
    );
    expect(findRepeated(ids)).toEqual([]);
    expect(nodesBefore.filter((id) => existing.nodes.has(id) && !ids.includes(id))).toEqual([]);
    for (const newestFirst of [false, true]) {
      const listed = await readAllPages(
        (pageToken) =>
          cluster.complete(async () => {
            const page = await cluster.client.listEvents({ pageSize: 20, pageToken, newestFirst });
            return { items: page.events.map(({ id }) => id), nextPageToken: page.nextPageToken };
          }),
        () => cluster.complete(newestFirst ? create : async () => undefined),
      );
      expect(findRepeated(listed)).toEqual([]);
      expect(events.filter((id) => !listed.includes(id))).toEqual([]);
    }
    await cluster.complete(() => cluster.stopCoordinator());
  });

  it('rejects a page token of another list or filter', async () => {
    const cluster = await TestCluster.start();
    const spec = { command: ['serve'], replicas: 0 };
    for (const name of ['a', 'b', 'c'])
      await cluster.complete(() => cluster.client.createWorkload({ name, spec }));
    const { nextPageToken: pageToken } = await cluster.complete(() =>
      cluster.client.listWorkloads({ pageSize: 1 }),
    );
    await cluster.complete(() => cluster.restartCoordinator());
    const { workloads } = await cluster.complete(() =>
      cluster.client.listWorkloads({ pageSize: 1, pageToken }),
    );
    expect(workloads.map(({ name }) => name)).toEqual(['b']);
    const wrongToken =
      'page_token: belongs to a list with another filter; repeat the filter of the first page, or start without a token';
    for (const call of [
      () => cluster.client.listWorkloads({ pageToken, namespace: 'default' }),
      () => cluster.client.listWorkloads({ pageToken, labelSelector: 'a=b' }),
      () => cluster.client.listNodes({ pageToken }),
      () => cluster.client.listEvents({ pageToken, newestFirst: true }),
    ]) {
      await expect(cluster.complete<unknown>(call)).rejects.toThrow(wrongToken);
    }
    const garbage = cluster.complete(() => cluster.client.listNodes({ pageToken: 'garbage' }));
    await expect(garbage).rejects.toThrow('page_token: is not a token of this server');
    await cluster.complete(() => cluster.stopCoordinator());
  });
});

function findRepeated(keys: readonly string[]): readonly string[] {
  return keys.filter((key, index) => keys.indexOf(key) !== index);
}

describe('concurrent writers', () => {
  it.each(createSeeds(4))(
    'all succeed when they change different fields, seed %i',
    async (seed) => {
      const cluster = await startSlowCluster(2, seed);
      await createWeb(cluster);
      const { client } = cluster;
      const update = (spec: object, ...paths: string[]) =>
        client.updateWorkload({
          name: 'web',
          spec,
          ...(paths.length === 0 ? {} : { updateMask: { paths } }),
        });
      await cluster.complete(() =>
        Promise.all([
          update({ args: ['x'], labels: { ignored: 'yes' } }, 'args'),
          update({ labels: { tier: 'web' } }, 'labels'),
          update({ rollout: { maxSurge: 2 } }, 'rollout.max_surge'),
          update({ rollout: { maxUnavailable: 1 } }, 'rollout.max_unavailable'),
          update({ resources: { requests: { cpuMillis: 7 } } }, 'resources.requests.cpu_millis'),
          update({ workingDir: '/srv' }),
          client.scaleWorkload({ name: 'web', replicas: 2 }),
        ]),
      );
      const { spec, generation } = await readWeb(cluster);
      expect(generation).toBe(8n);
      expect(spec).toMatchObject({
        args: ['x'],
        labels: { tier: 'web' },
        rollout: { maxSurge: 2, maxUnavailable: 1 },
        resources: { requests: { cpuMillis: 7 } },
        workingDir: '/srv',
        replicas: 2,
      });
      await cluster.complete(() => cluster.stopCoordinator());
    },
  );

  it.each(createSeeds(4))(
    'receive ABORTED except one when all send the same expected generation, seed %i',
    async (seed) => {
      const cluster = await startSlowCluster(1, seed);
      const { generation } = await createWeb(cluster);
      const { client } = cluster;
      const results = await cluster.complete(() =>
        Promise.all(
          [1, 2, 3, 4].map((number) =>
            outcomeOf(
              client.updateWorkload({
                name: 'web',
                spec: { args: [`${number}`] },
                expectedGeneration: generation,
              }),
            ),
          ),
        ),
      );
      const applied = results.filter((result) => typeof result !== 'string');
      expect({
        applied: applied.length,
        refused: results.filter((result) => result === 'conflict').length,
      }).toEqual({
        applied: 1,
        refused: 3,
      });
      const web = await readWeb(cluster);
      expect([web.generation, web.spec?.args]).toEqual([generation + 1n, applied[0]?.spec?.args]);
      await cluster.complete(() => cluster.stopCoordinator());
    },
  );

  it('of a node all succeed, and the events name the changes', async () => {
    const cluster = await startSlowCluster(1, 3);
    const { client } = cluster;
    const nodeId = 'node-1';
    await cluster.complete(() =>
      Promise.all([
        client.updateNode({ nodeId, setLabels: { disk: 'ssd' } }),
        client.updateNode({ nodeId, setTaints: [{ key: 'gpu', value: 'yes', effect: 0 }] }),
        client.updateNode({ nodeId, zone: 'zone-x' }),
        client.cordonNode({ nodeId }),
      ]),
    );
    const node = await cluster.complete(() => client.getNode({ nodeId }));
    expect(node).toMatchObject({
      labels: { disk: 'ssd' },
      taints: [{ key: 'gpu' }],
      zone: 'zone-x',
      cordoned: true,
    });
    await cluster.complete(() =>
      client.updateNode({ nodeId, removeLabels: ['disk'], removeTaints: ['gpu'], region: 'eu' }),
    );
    await cluster.complete(() => client.updateNode({ nodeId, region: 'eu' }));
    const { events } = await cluster.complete(() => client.listEvents({ nodeId }));
    const messages = events
      .filter(({ reason }) => reason === 'NodeUpdated')
      .map(({ message }) => message);
    expect(messages.slice(0, 3).sort()).toEqual([
      'node node-1 was changed: label disk=ssd set',
      'node node-1 was changed: taint gpu=yes:NO_SCHEDULE set',
      'node node-1 was changed: zone is "zone-x" now',
    ]);
    expect(messages.slice(3)).toEqual([
      'node node-1 was changed: label disk removed, taint gpu=yes:NO_SCHEDULE removed, region is "eu" now',
    ]);
    await cluster.complete(() => cluster.stopCoordinator());
  });
});

describe('a request id', () => {
  const requestId = 'r-1';
  const scale = (cluster: TestCluster, replicas = 5) =>
    cluster.client.scaleWorkload({ name: 'web', replicas, requestId });

  it.each(createSeeds(4))(
    'that several concurrent calls carry is applied once, and all calls get the same response, seed %i',
    async (seed) => {
      const cluster = await startSlowCluster(1, seed);
      await createWeb(cluster);
      const update = () =>
        cluster.client.updateWorkload({ name: 'web', spec: { args: ['new'] }, requestId });
      const results = await cluster.complete(() => Promise.all([update(), update(), update()]));
      expect(results.map(({ generation }) => generation)).toEqual([2n, 2n, 2n]);
      const again = { name: 'job', spec: { command: ['serve'], replicas: 0 }, requestId: 'r-2' };
      const created = await cluster.complete(() =>
        Promise.all([cluster.client.createWorkload(again), cluster.client.createWorkload(again)]),
      );
      expect(created[0].uid).toBe(created[1].uid);
      expect((await readWeb(cluster)).generation).toBe(2n);
      const { events } = await cluster.complete(() =>
        cluster.client.listEvents({ workload: 'web' }),
      );
      expect(
        events.filter(({ reason }) => reason === 'WorkloadUpdated').map((event) => event.requestId),
      ).toEqual([requestId]);
      await cluster.complete(() => cluster.stopCoordinator());
    },
  );

  it('returns the first response after a coordinator restart, is rejected with another body, and expires after an hour', async () => {
    const cluster = await startCluster(1);
    await createWeb(cluster);
    const first = await cluster.complete(() => scale(cluster));
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 1 }));
    await cluster.complete(() => cluster.restartCoordinator());
    const second = await cluster.complete(() => scale(cluster));
    expect([second.generation, second.spec?.replicas]).toEqual([first.generation, 5]);
    const message =
      'request_id: was used for another ScaleWorkload within the last hour; use a new one for a new request';
    await expect(cluster.complete(() => scale(cluster, 6))).rejects.toThrow(message);
    await expect(
      cluster.complete(() => cluster.client.deleteWorkload({ name: 'web', requestId })),
    ).rejects.toThrow(message);
    await expect(
      cluster.complete(() => cluster.client.cordonNode({ nodeId: 'node-1', requestId })),
    ).rejects.toThrow(message);
    expect((await readWeb(cluster)).spec?.replicas).toBe(1);
    await cluster.advance(HOUR_MS - 60_000, 1_000);
    expect((await cluster.complete(() => scale(cluster))).generation).toBe(first.generation);
    await cluster.advance(180_000, 1_000);
    expect((await cluster.complete(() => scale(cluster, 6))).generation).toBe(4n);
    await cluster.complete(() => cluster.stopCoordinator());
  });

  it.each(['workload', 'node'] as const)(
    'of a %s change whose commit was not acknowledged returns the committed result when it is repeated',
    async (object) => {
      const cluster = await startCluster(1);
      await createWeb(cluster);
      const call = async (): Promise<unknown> =>
        object === 'workload'
          ? scale(cluster)
          : cluster.client.updateNode({ nodeId: 'node-1', zone: 'new', requestId });
      loseNextResponse(cluster.store);
      expect(await cluster.complete(() => outcomeOf(call()))).toBe('unavailable');
      await cluster.complete(call);
      const { events } = await cluster.complete(() => cluster.client.listEvents({}));
      const recorded = events.filter(
        ({ reason }) => reason === (object === 'workload' ? 'WorkloadScaled' : 'NodeUpdated'),
      );
      expect(recorded.map((event) => event.requestId)).toEqual([requestId]);
      expect((await readWeb(cluster)).generation).toBe(object === 'workload' ? 2n : 1n);
      await cluster.complete(() => cluster.stopCoordinator());
    },
  );

  it('is recorded for every node RPC, and makes a repeated drain or removal change nothing', async () => {
    const cluster = await startCluster(2);
    const { client } = cluster;
    const nodeId = 'node-1';
    const drained = await cluster.complete(() => client.drainNode({ nodeId, requestId: 'drain' }));
    await cluster.complete(() => client.uncordonNode({ nodeId, requestId: 'uncordon' }));
    expect(
      (await cluster.complete(() => client.drainNode({ nodeId, requestId: 'drain' }))).draining,
    ).toBe(drained.draining);
    expect((await cluster.complete(() => client.getNode({ nodeId }))).draining).toBe(false);
    cluster.agents.get(nodeId)?.disconnect();
    cluster.agents.delete(nodeId);
    await cluster.advance(10_000, 100);
    await cluster.complete(() => client.confirmNodeLost({ nodeId, requestId: 'lost' }));
    const remove = () => client.removeNode({ nodeId, force: true, requestId: 'remove' });
    await cluster.complete(() => Promise.all([remove(), remove()]));
    expect(await cluster.complete(() => outcomeOf(client.getNode({ nodeId })))).toBe('notFound');
    // A late retry does not change a node that joins later under the same name.
    await cluster.addNode(nodeId);
    await cluster.complete(remove);
    expect((await cluster.complete(() => client.getNode({ nodeId }))).id).toBe(nodeId);
    const { events } = await cluster.complete(() => client.listEvents({ nodeId }));
    const reasons = ['NodeDraining', 'NodeUncordoned', 'NodeLossConfirmed', 'NodeRemoved'];
    const recorded = events.filter(({ reason }) => reasons.includes(reason));
    expect(recorded.map((event) => `${event.reason} ${event.requestId}`)).toEqual([
      'NodeDraining drain',
      'NodeUncordoned uncordon',
      'NodeLossConfirmed lost',
      'NodeRemoved remove',
    ]);
    await cluster.complete(() => cluster.stopCoordinator());
  });
});

/** Commits the next transaction that stores a request id, but loses the response. */
function loseNextResponse(store: StateStore): void {
  const txn = store.txn.bind(store);
  let lost = false;
  const losing: StateStore['txn'] = async (compares, operations) => {
    const committed = await txn(compares, operations);
    if (
      lost ||
      !operations.some((operation) => 'put' in operation && operation.put.startsWith('/request/'))
    )
      return committed;
    lost = true;
    throw new CloudlessError('unavailable', 'the response was lost');
  };
  Object.assign(store, { txn: losing });
}

describe('GetServerInfo', () => {
  it('returns the program version and the cluster', async () => {
    const cluster = await TestCluster.start();
    const before = await cluster.complete(() => cluster.client.getServerInfo({}));
    await cluster.complete(() => cluster.restartCoordinator());
    const after = await cluster.complete(() => cluster.client.getServerInfo({}));
    expect(after).toMatchObject({
      version: 'simulated',
      clusterId: before.clusterId,
      epoch: before.epoch + 1n,
      protocolMin: 1,
    });
    expect(after.revision).toBe(await cluster.store.revision());
    await cluster.complete(() => cluster.stopCoordinator());
  });
});
