import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { CertificateAuthorityRotation_Phase as Phase } from '@cloudless/api';
import {
  CertificateRecordSchema,
  NodeIdentityRecordSchema,
  NodeRecordSchema,
} from '@cloudless/api/store';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import {
  RENEWAL_SETTLE_MS,
  getRotationProgress,
  isRotating,
  openClusterState,
  putRotationPhase,
  startRotation,
  type ClusterState,
} from '@cloudless/cluster-state';
import {
  PeerVerifier,
  createKeyAndCsr,
  decodeCertificates,
  readCsr,
} from '@cloudless/identity/x509';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { MemoryAuthorityKeys } from '../testing/memory-authority-keys.js';
import { ClusterIdentities } from './cluster-identities.js';
import { RotationReconciler } from './rotation-reconciler.js';
import { ServerCertificate } from './server-certificate.js';

const NODES = ['node-1', 'node-2'];
const LIFETIME_MS = 24 * 3_600_000;

/** What the agent of a node has on disk. */
interface AgentFiles {
  chainPem: string;
  bundlePem: string;
}

/**
 * A coordinator with nodes whose agents renew on request. Store, key files and agents survive a
 * crash.
 */
class RotatingCluster {
  readonly clock = new ManualClock();
  readonly keys = new MemoryAuthorityKeys(() => this.clock.wallTime());
  readonly agents = new Map<string, AgentFiles>();
  readonly store: StateStore = createMemoryStateStore({ clock: this.clock });
  state!: ClusterState;
  identities!: ClusterIdentities;
  server!: ServerCertificate;
  reconciler!: RotationReconciler;

  async start(): Promise<void> {
    const { clock, keys } = this;
    const random = createSeededRandom(1);
    this.state = await openClusterState({
      ...{ store: this.store, clock, random, log: silentLog, holder: 'test' },
    });
    this.identities = await ClusterIdentities.open({
      ...{ state: this.state, clock, log: silentLog, keys, trustDomain: 'cloudless' },
      coordinatorName: 'coordinator',
      tokenSecret: new Uint8Array(32),
      lifetimes: { nodeMs: LIFETIME_MS, userMs: LIFETIME_MS, workloadMs: LIFETIME_MS },
    });
    this.server = await ServerCertificate.open({
      ...{ identities: this.identities, clock, random, log: silentLog, lifetimeMs: LIFETIME_MS },
      dnsNames: ['localhost'],
      ipAddresses: ['127.0.0.1'],
    });
    this.reconciler = new RotationReconciler({ state: this.state, clock, random, log: silentLog });
  }

  /** Ends the coordinator as a crash does: nothing of its memory is left. */
  async stop(): Promise<void> {
    await this.reconciler.close();
    await this.server.close();
    this.identities.close();
    await this.state.close();
  }

  /** Renews the certificate of a node, as the handler of RenewNodeCertificate does. */
  async renew(nodeId: string): Promise<void> {
    const { state, identities, clock } = this;
    const { publicKey } = await readCsr((await createKeyAndCsr()).csr);
    const issued = await identities.issue({
      id: { trustDomain: 'cloudless', kind: 'node', id: nodeId },
      ...{ publicKey, lifetimeMs: LIFETIME_MS, usage: 'both' },
    });
    const bundle = identities.getTrustBundle();
    const stored = state.view().node(nodeId);
    const record =
      stored === undefined
        ? create(NodeRecordSchema, { id: nodeId })
        : clone(NodeRecordSchema, stored.value);
    const { current } = record.identity ?? {};
    record.identity = create(NodeIdentityRecordSchema, {
      current: create(CertificateRecordSchema, {
        serial: issued.serial,
        notAfter: timestampFromMs(issued.notAfterMs),
        generation: issued.generation,
        issuedAt: timestampFromMs(clock.wallTime()),
      }),
      ...(current === undefined ? {} : { previous: current }),
      trustBundleGeneration: bundle.generation,
    });
    await state.commit(state.transaction().put('node', nodeId, record));
    this.agents.set(nodeId, { chainPem: issued.pem, bundlePem: bundle.pem });
  }

  /** Begins a rotation, as the handler of RotateCertificateAuthority does. */
  async rotate(): Promise<void> {
    const { state, identities, clock } = this;
    const stored = state.view().certificateAuthority();
    if (stored === undefined || isRotating(stored.value)) return;
    const generation = Math.max(...stored.value.roots.map((root) => root.generation)) + 1;
    const { rootPem: pem } = await identities.createGeneration(generation);
    const after = startRotation(stored.value, { generation, pem }, clock.wallTime());
    await state.commit(putRotationPhase(state.transaction(), stored, after));
  }

  get phase(): string | undefined {
    const phase = this.state.view().certificateAuthority()?.value.rotation?.phase;
    return phase === undefined ? undefined : Phase[phase];
  }

  get waitingNodes(): readonly string[] {
    const { clock, state } = this;
    return getRotationProgress(state.view(), clock.wallTime())?.waitingNodes ?? [];
  }

  /**
   * Checks that every node can connect: the coordinator trusts the node, and the node the
   * coordinator.
   */
  expectAllTrustEachOther(): void {
    const nowMs = this.clock.wallTime();
    for (const { chainPem, bundlePem } of this.agents.values()) {
      const chain = decodeCertificates(chainPem, 'the chain');
      this.identities.verifier.verify(chain, nowMs, { usage: 'client', kinds: ['node'] });
      const server = decodeCertificates(this.server.getContext().chainPem, 'the chain');
      new PeerVerifier({ trustDomain: 'cloudless', bundlePem }).verify(server, nowMs, {
        ...{ usage: 'server', ids: this.identities.coordinatorIds },
      });
    }
  }

  async settle(): Promise<void> {
    // WebCrypto answers outside of the manual clock.
    for (let round = 0; round < 20; round += 1) {
      await this.clock.advance(0);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
}

/** Resolves with the next certificate of the server. */
function nextContext(server: ServerCertificate): Promise<void> {
  return new Promise((resolve) => {
    const unsubscribe = server.onContextChange(() => {
      unsubscribe();
      resolve();
    });
  });
}

/** The steps of a complete rotation of two nodes. A coordinator may crash before or after each. */
const STEPS: readonly {
  readonly name: string;
  readonly run: (cluster: RotatingCluster) => Promise<void>;
}[] = [
  {
    name: 'new keys without a record',
    run: (c) => c.identities.createGeneration(2).then(() => undefined),
  },
  { name: 'record of the rotation', run: (c) => c.rotate() },
  ...NODES.map((id) => ({ name: `bundle on ${id}`, run: (c: RotatingCluster) => c.renew(id) })),
  { name: 'reissuing', run: (c) => c.settle() },
  ...NODES.map((id) => ({
    name: `certificate of ${id}`,
    run: (c: RotatingCluster) => c.renew(id),
  })),
  { name: 'time for lost replies', run: (c) => c.clock.advance(RENEWAL_SETTLE_MS) },
  { name: 'completed', run: (c) => c.settle() },
];

describe('rotation of the certificate authority', () => {
  let cluster: RotatingCluster;

  beforeEach(async () => {
    cluster = new RotatingCluster();
    await cluster.start();
    for (const id of NODES) await cluster.renew(id);
  });

  afterEach(() => cluster.stop());

  it.each([
    { name: 'never', crashAfter: -1 },
    ...STEPS.map(({ name }, index) => ({ name: `after: ${name}`, crashAfter: index })),
  ])(
    'completes, and nodes and coordinator always trust each other, when the coordinator crashes $name',
    async ({ crashAfter }) => {
      for (const [index, { run }] of STEPS.entries()) {
        await run(cluster);
        if (index === crashAfter) {
          await cluster.stop();
          await cluster.start();
        }
        await cluster.settle();
        cluster.expectAllTrustEachOther();
      }
      expect(cluster.phase).toBe('COMPLETED');
      expect(await cluster.keys.list()).toEqual([2]);
      expect(cluster.identities.issuingGeneration).toBe(2);
      expect(cluster.identities.getTrustBundle().rootSha256s).toHaveLength(1);
      expect(cluster.identities.getTrustBundle().generation).toBe(3n);
    },
  );

  it('waits in each phase for the nodes that have not completed the phase', async () => {
    await cluster.rotate();
    await cluster.settle();
    expect([cluster.phase, cluster.waitingNodes]).toEqual(['DISTRIBUTING', NODES]);
    await cluster.renew('node-1');
    await cluster.clock.advance(3_600_000);
    expect([cluster.phase, cluster.waitingNodes]).toEqual(['DISTRIBUTING', ['node-2']]);
    await cluster.renew('node-2');
    await cluster.settle();
    expect([cluster.phase, cluster.waitingNodes]).toEqual(['REISSUING', NODES]);
  });

  it('waits for a lost reply before the old root is retired', async () => {
    await cluster.rotate();
    for (const id of NODES) await cluster.renew(id);
    await cluster.settle();
    const before = cluster.agents.get('node-1');
    for (const id of NODES) await cluster.renew(id);
    if (before !== undefined) cluster.agents.set('node-1', before); // the reply was lost
    await cluster.clock.advance(RENEWAL_SETTLE_MS - 1_000);
    await cluster.settle();
    expect(cluster.phase).toBe('REISSUING');
    cluster.expectAllTrustEachOther();
  });

  it('does not wait for a node whose certificate expired more than 30 days ago', async () => {
    await cluster.clock.advance(LIFETIME_MS + 30 * 24 * 3_600_000 + 1_000);
    await cluster.renew('node-1');
    await cluster.rotate();
    await cluster.settle();
    expect(cluster.waitingNodes).toEqual(['node-1']);
  });

  it('changes the server certificate last, together with the retirement of the old root', async () => {
    const serverRoot = () => cluster.server.getContext().chainPem.split('-----BEGIN').at(-1);
    const old = serverRoot();
    await cluster.rotate();
    for (const id of NODES) await cluster.renew(id);
    await cluster.settle();
    expect([cluster.phase, serverRoot() === old]).toEqual(['REISSUING', true]);
    for (const id of NODES) await cluster.renew(id);
    const renewed = nextContext(cluster.server);
    await cluster.clock.advance(RENEWAL_SETTLE_MS);
    await cluster.settle();
    await renewed;
    expect([cluster.phase, serverRoot() === old]).toEqual(['COMPLETED', false]);
  });
});

describe('ClusterIdentities.open', () => {
  it('refuses to start without the key files of the issuing generation', async () => {
    const cluster = new RotatingCluster();
    await cluster.start();
    await cluster.stop();
    cluster.keys.remove(1);
    await expect(cluster.start()).rejects.toMatchObject({
      kind: 'precondition',
      message: 'no files of generation 1',
    });
    await cluster.state.close();
  });

  it('refuses the key files of another cluster', async () => {
    const cluster = new RotatingCluster();
    await cluster.start();
    await cluster.stop();
    cluster.keys.remove(1);
    await cluster.keys.create(1);
    await expect(cluster.start()).rejects.toThrow(
      'the key files of generation 1 of the certificate authority belong to another cluster, or to a rotation that was not recorded; restore the identity directory that belongs to this state',
    );
    await cluster.state.close();
  });

  it('goes on with the key files of a first start that was interrupted', async () => {
    const cluster = new RotatingCluster();
    const { rootSha256 } = await cluster.keys.create(1);
    await cluster.start();
    expect(cluster.identities.getTrustBundle().rootSha256s).toEqual([rootSha256]);
    await cluster.stop();
  });
});

describe('ServerCertificate', () => {
  it('is renewed from half of its life, again and again', async () => {
    const cluster = new RotatingCluster();
    await cluster.start();
    const chains = [cluster.server.getContext().chainPem];
    for (let renewal = 0; renewal < 3; renewal += 1) {
      const renewed = nextContext(cluster.server);
      await cluster.clock.advance(0.56 * LIFETIME_MS);
      await renewed;
      expect(cluster.server.notAfterMs).toBeGreaterThanOrEqual(
        cluster.clock.wallTime() + LIFETIME_MS,
      );
      chains.push(cluster.server.getContext().chainPem);
    }
    expect(new Set(chains).size).toBe(4);
    await cluster.stop();
  });
});
