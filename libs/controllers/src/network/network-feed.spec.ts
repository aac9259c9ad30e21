import { create, fromBinary, type MessageInitShape } from '@bufbuild/protobuf';
import fc from 'fast-check';
import {
  EndpointHealth_Status as Health,
  NetworkUpdateSchema,
  ReplicaStatus_Phase as Phase,
  RolloutStatus_Phase as RolloutPhase,
  Rollout_Strategy as Strategy,
} from '@cloudless/api';
import {
  EndpointRecordSchema,
  NetworkSettingsRecordSchema,
  NodeBanRecordSchema,
  NodeRecordSchema,
  RouteRecordSchema,
  SecretRecordSchema,
  ServiceRecordSchema,
  type SecretRecord,
} from '@cloudless/api/store';
import { RecordingMeter } from '@cloudless/base/testing';
import { FeedMirror } from '../testing/feed-mirror.js';
import { LEASE_MS, TestBed } from '../testing/test-bed.js';
import { NetworkFeed, type FeedPosition } from './network-feed.js';
import { NetworkModel } from './network-model.js';
import { encodeEntries } from './update-encoding.js';

type ServiceInit = Omit<MessageInitShape<typeof ServiceRecordSchema>, '$typeName' | '$unknown'>;

const NEW: FeedPosition = { nodeId: 'node-1', feedId: '', revision: 0n };

describe('NetworkFeed', () => {
  let bed: TestBed;
  let feed: NetworkFeed;
  let stop: AbortController;

  beforeEach(async () => {
    bed = await TestBed.open({ nodes: ['node-1', 'node-2'] });
    feed = bed.use(new NetworkFeed(bed));
    stop = new AbortController();
  });

  afterEach(async () => {
    stop.abort();
    await bed.close();
  });

  /** Stores a service `default/<name>` that selects the workload `web`. */
  async function putService(name: string, changes: ServiceInit = {}): Promise<void> {
    const service = create(ServiceRecordSchema, {
      ...{ namespace: 'default', name, uid: `uid-${name}`, clusterIp: '10.96.0.20' },
      spec: { workload: 'web', ports: [{ name: 'http', port: 80 }] },
      ...changes,
    });
    await commit((transaction) => transaction.put('service', `default/${name}`, service));
  }

  /**
   * Stores a route `default/<name>`.
   * @param edge - Label of the nodes that serve the route; empty: all nodes.
   * @param secret - The secret that `tls` names; empty: no `tls`.
   */
  async function putRoute(name: string, edge = '', secret = ''): Promise<void> {
    const record = create(RouteRecordSchema, {
      ...{ namespace: 'default', name },
      spec: {
        ...{ hosts: [`${name}.example.com`], nodeSelector: edge === '' ? {} : { edge } },
        ...(secret !== '' && { tls: { certificateSecret: secret } }),
      },
    });
    await commit((transaction) => transaction.put('route', `default/${name}`, record));
  }

  /** Stores the record of a secret `<namespace>/<name>`. */
  async function putSecret(
    name: string,
    changes: Partial<Pick<SecretRecord, 'namespace' | 'uid' | 'version' | 'labels'>> = {},
  ): Promise<void> {
    const record = create(SecretRecordSchema, {
      ...{ namespace: 'default', name, uid: `uid-${name}`, version: 1 },
      ...changes,
    });
    await commit((transaction) => transaction.put('secret', `${record.namespace}/${name}`, record));
  }

  function commit(
    fill: (transaction: ReturnType<TestBed['state']['transaction']>) => unknown,
  ): Promise<bigint> {
    const transaction = bed.state.transaction();
    fill(transaction);
    return bed.state.commitObserved(transaction);
  }

  /** Creates the workload `web` with replicas that listen on port `http`. */
  async function createWeb(replicas: number, labels: Record<string, string> = {}): Promise<void> {
    await bed.createWorkload({ labels, ports: [{ name: 'http', containerPort: 8080 }] });
    await bed.addReplicas(replicas, (index) => ({
      nodeId: `node-${1 + (index % 2)}`,
      endpoints: [{ portName: 'http', ip: '127.0.0.1', port: 30_000 + index }],
    }));
  }

  /** Reads the feed into a mirror until the test ends. */
  async function follow(
    position: FeedPosition = NEW,
    mirror = new FeedMirror(),
  ): Promise<FeedMirror> {
    const reader = feed.open(position);
    void (async () => {
      for await (const bytes of reader.read(stop.signal)) mirror.apply(bytes);
    })();
    await bed.advance(100);
    return mirror;
  }

  it('sends services, the endpoints of their workloads, nodes and settings', async () => {
    await createWeb(2);
    await putService('web');
    const settings = { serviceCidr: '10.96.0.0/16', clusterDomain: 'cloudless.internal' };
    await commit((transaction) =>
      transaction.put('network', 'settings', create(NetworkSettingsRecordSchema, settings)),
    );
    const mirror = await follow();
    expect(mirror.settings).toMatchObject({ ...settings, dnsAddress: '10.96.0.10' });
    expect([...mirror.services.keys()]).toEqual(['default/web']);
    expect([...mirror.nodes.keys()].sort()).toEqual(['node-1', 'node-2']);
    expect(mirror.endpoints.get('default/web/web-2')).toMatchObject({
      ...{ namespace: 'default', service: 'web', workload: 'web', nodeId: 'node-2' },
      ...{ replicaId: 'web-2', slot: 1, version: 1, weight: 100, ready: true },
      ports: [{ name: 'http', ip: '127.0.0.1', port: 30_001 }],
    });
    expect(mirror.revision).toBe(bed.state.view().revision);
  });

  it('sends nothing while a state that went back in time waits, and the present after its acceptance', async () => {
    await createWeb(2);
    await putService('web');
    const early = await follow();
    bed.state.reportNewerState({ nodeId: 'node-1', epoch: 99n, orderRevision: 0n });
    await bed.changeReplica('web-1', { ready: false });
    await bed.changeReplica('web-2', { ready: false });
    const late = await follow();
    await bed.advance(60_000);
    expect(early.ready).toHaveLength(2);
    expect(late.services.size).toBe(0);
    await bed.state.acceptRestoredState();
    await bed.changeReplica('web-2', { ready: true });
    await bed.advance(1_000);
    expect(early.ready).toHaveLength(1);
    expect(late.ready).toHaveLength(1);
  });

  it('starts with the acceptance when a restored state waits from the start', async () => {
    await createWeb(2);
    await putService('web');
    bed.state.reportNewerState({ nodeId: 'node-1', epoch: 99n, orderRevision: 0n });
    const mirror = await follow();
    await bed.advance(60_000);
    expect(mirror.services.size).toBe(0);
    // A stop right after the acceptance waits for the proxies, which may know the endpoint.
    expect(feed.hasEndpoint({ id: 'web-1', uid: bed.replicas()[0]?.uid ?? '' })).toBe(true);
    await bed.state.acceptRestoredState();
    await bed.changeReplica('web-1', { desiredRunning: false });
    expect(feed.isGone('web-1')).toBe(false);
    await bed.advance(1_000);
    expect(mirror.ready).toHaveLength(1);
  });

  it('derives and sends only what a change concerns', async () => {
    await createWeb(90);
    await putService('web');
    for (let index = 0; index < 20; index += 1)
      await putService(`other-${index}`, { spec: { workload: `other-${index}` } });
    const mirror = await follow();
    const before = feed.counts;
    await bed.changeReplica('web-7', { ready: false });
    await bed.advance(100);
    const after = feed.counts;
    expect(after.derivedEntries - before.derivedEntries).toBe(1);
    expect(after.encodedBytes - before.encodedBytes).toBeLessThan(200);
    expect(mirror.ready).toHaveLength(89);
  });

  it('sends HTTP routes with the nodes that serve them, and each change of these nodes', async () => {
    const labelNode = (id: string, labels: Record<string, string>) => {
      const { value } = bed.state.view().node(id) ?? {};
      const record = create(NodeRecordSchema, { ...value, labels } as object);
      return commit((transaction) => transaction.put('node', id, record));
    };
    await putRoute('all');
    await putRoute('edge', 'true');
    const mirror = await follow();
    const shown = () =>
      [...mirror.routes.values()].map(({ spec, nodeIds }) => [spec?.hosts[0], nodeIds]);
    expect(shown()).toEqual([
      ['all.example.com', []],
      ['edge.example.com', []],
    ]);
    await labelNode('node-2', { edge: 'true' });
    await bed.advance(100);
    expect(shown()[1]).toEqual(['edge.example.com', ['node-2']]);
    const before = feed.counts.derivedEntries;
    await putRoute('all', 'false');
    await bed.advance(100);
    expect(feed.counts.derivedEntries - before).toBe(1);
    await commit((transaction) =>
      transaction.delete('node', 'node-2').delete('route', 'default/all'),
    );
    await bed.advance(100);
    expect(shown()).toEqual([['edge.example.com', []]]);
  });

  it('sends the uid and the newest version of the secret that a route names', async () => {
    await putRoute('secret', '', 'certificate');
    await putRoute('plain');
    await putSecret('certificate', { namespace: 'other', version: 9 });
    const mirror = await follow();
    const shown = async () => {
      await bed.advance(100);
      return ['secret', 'plain'].map((name) => {
        const { secretUid, version } = mirror.routes.get(`default/${name}`)?.certificate ?? {};
        return secretUid === undefined ? 'none' : `${secretUid} ${String(version)}`;
      });
    };
    expect(await shown()).toEqual(['none', 'none']);
    await putSecret('certificate');
    expect(await shown()).toEqual(['uid-certificate 1', 'none']);
    await putSecret('certificate', { version: 2 });
    expect(await shown()).toEqual(['uid-certificate 2', 'none']);
    await commit((transaction) => transaction.delete('secret', 'default/certificate'));
    expect(await shown()).toEqual(['none', 'none']);
    await putSecret('certificate', { uid: 'again' });
    expect(await shown()).toEqual(['again 1', 'none']);
    await putRoute('secret');
    await putRoute('plain', '', 'certificate');
    expect(await shown()).toEqual(['none', 'again 1']);
  });

  it('changes only the entries of routes that name a secret when the secret has a new version', async () => {
    for (let index = 0; index < 20; index += 1)
      await putRoute(`other-${index}`, '', index % 2 === 0 ? 'other' : '');
    await putRoute('one', '', 'certificate');
    await putRoute('two', '', 'certificate');
    await putRoute('ended', '', 'certificate');
    await putSecret('other');
    await putSecret('certificate');
    const mirror = await follow();
    const versionsOf = () =>
      ['one', 'two'].map((name) => mirror.routes.get(`default/${name}`)?.certificate?.version);
    await putRoute('ended');
    await bed.advance(100);
    const before = feed.counts;
    await putSecret('certificate', { version: 2 });
    await bed.advance(100);
    const after = feed.counts;
    expect(versionsOf()).toEqual([2, 2]);
    expect(after.derivedEntries - before.derivedEntries).toBe(2);
    expect(after.encodedBytes - before.encodedBytes).toBeLessThan(400);
    await putSecret('certificate', { version: 2, labels: { team: 'web' } });
    await putSecret('unused');
    await bed.advance(100);
    expect(feed.counts).toEqual(after);
  });

  it('encodes an update once for all proxies', async () => {
    await createWeb(2);
    await putService('web');
    const mirrors = [await follow(), await follow(), await follow()];
    const before = feed.counts;
    await bed.changeReplica('web-1', { ready: false });
    await bed.advance(100);
    expect(feed.counts.encodedUpdates - before.encodedUpdates).toBe(1);
    expect(feed.counts.encodedSnapshots).toBe(1);
    expect(mirrors.map(({ ready }) => ready)).toEqual(Array(3).fill(['default/web/web-2']));
  });

  it('keeps an endpoint that leaves as not ready until its replica has ended', async () => {
    await createWeb(1);
    await putService('web');
    const mirror = await follow();
    await bed.changeReplica('web-1', { desiredRunning: false });
    await bed.advance(100);
    expect(mirror.endpoints.get('default/web/web-1')).toMatchObject({
      ready: false,
      leaving: true,
    });
    await bed.changeReplica('web-1', { phase: Phase.STOPPED, ready: false });
    await bed.advance(100);
    expect([...mirror.endpoints.keys()]).toEqual([]);
  });

  it('sends a lost node as not alive at once, and does not send its endpoints again', async () => {
    await createWeb(4);
    await putService('web');
    const mirror = await follow();
    const { derivedEntries } = feed.counts;
    bed.disconnect('node-1');
    await bed.advance(LEASE_MS + 200);
    expect(mirror.nodes.get('node-1')?.alive).toBe(false);
    expect(mirror.ready).toEqual(['default/web/web-2', 'default/web/web-4']);
    expect(feed.counts.derivedEntries - derivedEntries).toBeLessThan(5);
  });

  it('sends no banned node', async () => {
    const mirror = await follow();
    await commit((transaction) =>
      transaction.put('ban', 'node-2', create(NodeBanRecordSchema, { ban: { nodeId: 'node-2' } })),
    );
    await bed.advance(100);
    expect([...mirror.nodes.keys()]).toEqual(['node-1']);
  });

  it('sends the accepted certificates and the network of a node', async () => {
    await bed.changeNode('node-1', {
      hello: {
        ...{ nodeId: 'node-1', zone: 'a' },
        network: {
          ...{ address: '10.0.0.5:9443', hostId: 'h' },
          machineAddresses: { addresses: ['10.0.0.5'] }, // for the coordinator only
        },
      },
      identity: {
        current: { serial: '0b', notAfter: { seconds: 90n } },
        previous: { serial: '0a' },
      },
    });
    const mirror = await follow();
    expect(mirror.nodes.get('node-1')).toMatchObject({
      ...{ zone: 'a', acceptedSerials: ['0b', '0a'], alive: true },
      network: { address: '10.0.0.5:9443', hostId: 'h' },
      newestNotAfter: { seconds: 90n },
    });
    expect(mirror.nodes.get('node-1')?.network?.machineAddresses).toBeUndefined();
  });

  it('makes only the active version ready under BLUE_GREEN', async () => {
    await createWeb(1);
    await putService('web');
    await bed.updateWorkload({
      command: ['new'],
      ports: [{ name: 'http', containerPort: 8080 }],
    });
    const mirror = await follow();
    await bed.changeReplica('web-1', { version: 2 });
    const rollout = { version: 2, strategy: Strategy.BLUE_GREEN };
    await bed.changeControl({ activeVersion: 1, rollout });
    await bed.advance(100);
    expect(mirror.ready).toEqual([]);
    await bed.changeControl({ activeVersion: 2, rollout });
    await bed.advance(100);
    expect(mirror.ready).toEqual(['default/web/web-1']);
  });

  it('takes the connections from a version that is rolled back, and sends little for that', async () => {
    await createWeb(6);
    await putService('web');
    await bed.updateWorkload({ command: ['new'], ports: [{ name: 'http', containerPort: 8080 }] });
    await bed.changeReplica('web-6', { version: 2, ready: false });
    const mirror = await follow();
    const weights = (): readonly (number | undefined)[] =>
      ['web-1', 'web-5', 'web-6'].map((id) => mirror.endpoints.get(`default/web/${id}`)?.weight);
    const rollout = { version: 3, fromVersion: 2, rollsBack: 2 };
    await bed.changeControl({ rolloutPhase: RolloutPhase.IN_PROGRESS, rollout });
    await bed.changeReplica('web-6', { ready: true });
    await bed.advance(100);
    expect(weights()).toEqual([100, 100, 0]);
    const before = feed.counts.encodedBytes;
    await bed.changeReplica('web-5', { ready: false });
    await bed.advance(100);
    expect(feed.counts.encodedBytes - before).toBeLessThan(200);
    await bed.changeControl({ rolloutPhase: RolloutPhase.ROLLED_BACK });
    await bed.advance(100);
    expect(weights()).toEqual([100, 100, 100]);
  });

  it('continues at a revision, and begins anew for another feed', async () => {
    await createWeb(2);
    await putService('web');
    const mirror = await follow();
    const { feedId, revision } = mirror;
    stop.abort();
    stop = new AbortController();
    await bed.changeReplica('web-1', { ready: false });
    await bed.advance(100);
    await follow({ ...NEW, feedId, revision }, mirror);
    expect(mirror).toMatchObject({ resets: 1, ready: ['default/web/web-2'] });
    const other = await follow({ ...NEW, feedId: 'another', revision }, new FeedMirror());
    expect(other).toMatchObject({ resets: 1, ready: ['default/web/web-2'] });
  });

  it('marks only the newest update as complete for a proxy that starts from an earlier snapshot', async () => {
    await follow(); // everything is encoded once, and sent to later readers with the changes since
    await createWeb(1);
    await putService('web');
    await bed.advance(100);
    const updates = feed.open(NEW).read(stop.signal);
    const mirror = new FeedMirror();
    for (let isComplete = false; !isComplete;) {
      const next = updates.next();
      await bed.advance(100);
      const bytes = (await next).value as Uint8Array;
      mirror.apply(bytes);
      isComplete = fromBinary(NetworkUpdateSchema, bytes).complete;
    }
    expect(mirror).toMatchObject({ resets: 1, ready: ['default/web/web-1'] });
    expect(feed.counts.encodedSnapshots).toBe(1);
  });

  it('sends everything again to a reader that is too slow, and counts that', async () => {
    const meter = new RecordingMeter();
    feed = bed.use(new NetworkFeed({ ...bed, meter, logBytes: 1 }));
    await createWeb(1);
    await putService('web');
    const updates = feed.open(NEW).read(stop.signal);
    const mirror = new FeedMirror();
    const first = updates.next();
    await bed.advance(100);
    mirror.apply((await first).value as Uint8Array);
    await bed.changeReplica('web-1', { ready: false });
    await bed.advance(100);
    const next = updates.next();
    await bed.advance(100);
    mirror.apply((await next).value as Uint8Array);
    expect(mirror.ready).toEqual([]);
    const metric = 'cloudless_network_feed_resets_total';
    expect(await meter.read(metric, { cause: 'start' })).toBe(1);
    expect(await meter.read(metric, { cause: 'slow' })).toBe(1);
  });

  it('reports a leaving replica once all connected proxies have applied its removal', async () => {
    await createWeb(2);
    await putService('web');
    const gone: string[] = [];
    feed.onGone((replicaIds) => gone.push(...replicaIds));
    const [one, two, broken] = [feed.open(NEW), feed.open(NEW), feed.open(NEW)];
    await bed.advance(100);
    await bed.changeReplica('web-1', { desiredRunning: false });
    expect(feed.hasEndpoint({ id: 'web-1', uid: 'web' })).toBe(true);
    await bed.advance(100);
    const { revision } = bed.state.view();
    one.acknowledge(revision);
    two.acknowledge(revision - 1n);
    expect(gone).toEqual([]);
    two.acknowledge(revision);
    broken.close();
    expect([gone, feed.isGone('web-1')]).toEqual([['web-1'], true]);
  });

  it('reports a leaving replica at once when no proxy is connected', async () => {
    await createWeb(1);
    await putService('web');
    const gone: string[] = [];
    feed.onGone((replicaIds) => gone.push(...replicaIds));
    feed.open(NEW).close();
    await bed.advance(100);
    await bed.changeReplica('web-1', { desiredRunning: false });
    await bed.advance(100);
    expect(gone).toEqual(['web-1']);
  });

  it('waits after its start for the proxies of live nodes that have not connected yet', async () => {
    await createWeb(1);
    await putService('web');
    await bed.changeNode('node-2', { hello: { nodeId: 'node-2', network: { hostId: 'h2' } } });
    const gone: string[] = [];
    feed.onGone((replicaIds) => gone.push(...replicaIds));
    const one = feed.open(NEW);
    await bed.advance(100);
    await bed.changeReplica('web-1', { desiredRunning: false });
    await bed.advance(100);
    one.acknowledge(bed.state.view().revision);
    expect(gone).toEqual([]);
    await bed.advance(5_000);
    expect(gone).toEqual(['web-1']);
  });

  it('checks each endpoint outside the cluster from one node, which another one replaces', async () => {
    for (const id of ['node-1', 'node-2'])
      await bed.changeNode(id, { hello: { nodeId: id, network: { hostId: id } } });
    const loadBalancer = { healthCheck: {} };
    await putService('db', { spec: { ports: [{ name: 'sql', port: 5432 }] }, loadBalancer });
    for (let index = 0; index < 20; index += 1) {
      const status = index === 0 ? Health.HEALTHY : Health.UNKNOWN;
      const endpoint = { portName: 'sql', address: '192.0.2.7', port: 5432, health: { status } };
      const record = create(EndpointRecordSchema, { endpoint, serviceUid: 'uid-db' });
      await commit((transaction) => transaction.put('endpoint', `default/db/e${index}`, record));
    }
    const mirror = await follow();
    const listCheckers = (): string[] =>
      [...mirror.endpoints.values()].map(({ checkedByNodeId }) => checkedByNodeId);
    const ready = [...mirror.endpoints.values()].filter((entry) => entry.ready);
    expect(ready.map(({ id }) => id)).toEqual(['default/db/e0']);
    expect(new Set(listCheckers())).toEqual(new Set(['node-1', 'node-2']));
    await bed.changeNode('node-1', { lost: true });
    await bed.advance(100);
    expect(new Set(listCheckers())).toEqual(new Set(['node-2']));
  });

  it('equals a model that is built anew after any changes of records', async () => {
    const text = fc.constantFrom('a', 'b');
    const change = fc.oneof(
      fc.record({ kind: fc.constant('service' as const), name: text, by: fc.nat(3) }),
      fc.record({ kind: fc.constant('deleteService' as const), name: text }),
      fc.record({ kind: fc.constant('replica' as const), index: fc.nat(2), state: fc.nat(4) }),
      fc.record({ kind: fc.constant('labels' as const), app: text }),
      fc.record({ kind: fc.constant('node' as const), zone: text }),
      fc.record({ kind: fc.constant('nodeLabels' as const), edge: text }),
      fc.record({
        ...{ kind: fc.constant('route' as const), name: text, edge: fc.option(text) },
        secret: fc.option(text),
      }),
      fc.record({
        ...{ kind: fc.constant('secret' as const), name: text },
        ...{ uid: text, version: fc.integer({ min: 1, max: 3 }) },
      }),
      fc.record({ kind: fc.constant('deleteSecret' as const), name: text }),
      fc.record({ kind: fc.constant('deleteRoute' as const), name: text }),
      fc.record({ kind: fc.constant('deleteNode' as const) }),
      fc.record({ kind: fc.constant('pause' as const) }),
    );
    type Change = typeof change extends fc.Arbitrary<infer T> ? T : never;
    const selections = [
      { workload: 'web' },
      { workload: 'other' },
      { selector: { app: 'a' } },
      { selector: { app: 'b', tier: 'x' } },
    ];
    const states = [
      { ready: true },
      { ready: false },
      { desiredRunning: false },
      { phase: Phase.STOPPED, ready: false },
      { endpoints: [] },
    ];
    const ports = [{ name: 'http', containerPort: 8080 }];
    const apply = async (step: Change): Promise<void> => {
      if (step.kind === 'service')
        await putService(step.name, {
          spec: { ...selections[step.by], ports: [{ name: 'http', port: 80 }] },
        });
      if (step.kind === 'deleteService')
        await commit((transaction) => transaction.delete('service', `default/${step.name}`));
      if (step.kind === 'replica')
        await bed.changeReplica(`web-${step.index + 1}`, states[step.state] ?? {});
      if (step.kind === 'labels')
        await bed.updateWorkload({ ports, labels: { app: step.app, tier: 'x' } });
      if (step.kind === 'node')
        await commit((transaction) =>
          transaction.put('node', 'node-1', create(NodeRecordSchema, { id: 'node-1', ...step })),
        );
      if (step.kind === 'nodeLabels')
        await commit((transaction) =>
          transaction.put(
            'node',
            'node-1',
            create(NodeRecordSchema, { id: 'node-1', labels: { edge: step.edge } }),
          ),
        );
      if (step.kind === 'route') await putRoute(step.name, step.edge ?? '', step.secret ?? '');
      if (step.kind === 'secret')
        await putSecret(step.name, { uid: step.uid, version: step.version });
      if (step.kind === 'deleteSecret')
        await commit((transaction) => transaction.delete('secret', `default/${step.name}`));
      if (step.kind === 'deleteRoute')
        await commit((transaction) => transaction.delete('route', `default/${step.name}`));
      if (step.kind === 'deleteNode')
        await commit((transaction) => transaction.delete('node', 'node-1'));
      await bed.advance(step.kind === 'pause' ? 100 : 0);
    };
    await createWeb(3);
    const mirror = await follow();
    await fc.assert(
      fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 12 }), async (steps) => {
        for (const step of steps) await apply(step);
        await bed.advance(100);
        const fresh = new NetworkModel({
          view: () => bed.state.view(),
          isLost: () => false,
        });
        while (fresh.isBehind) fresh.update(5);
        const entries = {
          settings: fresh.encodedSettings,
          services: fresh.services.values(),
          endpoints: fresh.endpoints.values(),
          nodes: fresh.nodes.values(),
          routes: fresh.routes.values(),
        };
        const origin = { feedId: 'fresh', revision: 1n };
        const expected = new FeedMirror();
        for (const bytes of await encodeEntries(entries, origin, () => Promise.resolve()))
          expected.apply(bytes);
        expect(mirror.endpoints).toEqual(expected.endpoints);
        expect(mirror.services).toEqual(expected.services);
        expect(mirror.nodes).toEqual(expected.nodes);
        expect(mirror.routes).toEqual(expected.routes);
      }),
      { numRuns: 30 },
    );
  });
});
