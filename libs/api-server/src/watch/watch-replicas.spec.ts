import { create, fromBinary, toBinary, type MessageInitShape } from '@bufbuild/protobuf';
import fc from 'fast-check';
import {
  MessageWriter,
  NodeStatus_Phase as NodePhase,
  ReplicaStatusSchema,
  ReplicaStatus_Phase as Phase,
  WatchReplicasRequestSchema,
  WatchReplicasResponseSchema,
  matchesLabels,
  parseLabelSelector,
  type WatchReplicasRequest,
  type WatchReplicasResponse,
} from '@cloudless/api';
import {
  ReplicaRecordSchema,
  WorkloadRecordSchema,
  type ReplicaRecord,
} from '@cloudless/api/store';
import { toReplicaKeyId } from '@cloudless/cluster-state';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { LivenessChanges } from './liveness-changes.js';
import { watchReplicas } from './watch-replicas.js';

const NAMESPACES: Readonly<Record<string, string>> = { a: 'default', b: 'team', c: 'default' };
const UIDS = Object.keys(NAMESPACES);

/** A cluster whose replicas a test changes, and the facts about the visible ones. */
class Cluster {
  private sequence = 0n;
  /** Uids are random and never used again. */
  private readonly deletedUids = new Set<string>();
  readonly changes: LivenessChanges;
  encoded = 0;

  private constructor(readonly bed: ApiTestBed) {
    this.changes = new LivenessChanges(bed.state, bed.nodes);
  }

  static async open(): Promise<Cluster> {
    const bed = await ApiTestBed.open();
    await bed.putNode('n1');
    await bed.putNode('n2', { lost: true });
    return new Cluster(bed);
  }

  async close(): Promise<void> {
    this.changes.close();
    await this.bed.close();
  }

  watch(
    request: WatchReplicasRequest,
    visible: readonly string[],
    isBinary: boolean,
    signal: AbortSignal,
  ) {
    const { state, clock } = this.bed;
    const presentReplica = ({ id, phase, nodeId }: ReplicaRecord) =>
      create(ReplicaStatusSchema, { id, phase, nodeId });
    const encodeReplica = (replica: ReplicaRecord) => {
      this.encoded += 1;
      const writer = new MessageWriter();
      writer.encoded(1, toBinary(ReplicaStatusSchema, presentReplica(replica)));
      return writer.finish().subarray(1);
    };
    const presenter = { presentReplica, encodeReplica } as never;
    return watchReplicas(
      { state, clock, presenter, livenessChanges: this.changes },
      request,
      { isVisible: (namespace) => visible.includes(namespace), isBinary },
      signal,
    );
  }

  async addReplica(uid: string, nodeId = ''): Promise<void> {
    this.sequence += 1n;
    const id = `${uid}-${this.sequence}`;
    const transaction = this.bed.state.transaction();
    if (this.bed.state.view().workload(uid) === undefined) this.putWorkload(uid, 'x', transaction);
    transaction.createReplica(
      create(ReplicaRecordSchema, {
        id,
        uid,
        sequence: this.sequence,
        nodeId,
        desiredRunning: true,
      }),
    );
    await this.bed.state.commit(transaction);
  }

  putWorkload(uid: string, app: string, transaction = this.bed.state.transaction()) {
    return transaction.put(
      'workload',
      uid,
      create(WorkloadRecordSchema, {
        uid,
        namespace: NAMESPACES[uid] ?? '',
        name: `web-${uid}`,
        spec: { labels: { app } },
      }),
    );
  }

  pick(index: number): ReplicaRecord | undefined {
    const all = [...this.bed.state.view().replicas()];
    return all[index % Math.max(1, all.length)]?.value;
  }

  async apply([kind, index, nodeId]: Step): Promise<void> {
    const { state } = this.bed;
    const uid = UIDS[index % UIDS.length] ?? '';
    const replica = this.pick(index);
    const isDeleted = this.deletedUids.has(uid);
    if (isDeleted && (kind === 'add' || kind === 'label')) return;
    if (kind === 'add') return this.addReplica(uid, nodeId);
    if (kind === 'liveness')
      return this.bed.nodes.setPhase('n1', index % 2 === 0 ? NodePhase.READY : NodePhase.LOST);
    if (kind === 'zone') return this.bed.putNode('n1', { zone: `zone-${index}` });
    if (kind === 'label') {
      await state.commit(this.putWorkload(uid, index % 2 === 0 ? 'x' : 'y'));
    } else if (kind === 'deleteWorkload') {
      if (state.view().workload(uid) === undefined) return;
      this.deletedUids.add(uid);
      const transaction = state.transaction().delete('workload', uid);
      for (const stored of state.view().replicasOf(uid))
        if (stored.value.nodeId !== 'n2') transaction.deleteReplica(stored);
      await state.commit(transaction);
    } else if (replica !== undefined && kind === 'delete') {
      const key = toReplicaKeyId(replica.uid, replica.sequence);
      await state.commit(state.transaction().delete('replica', key));
    } else if (replica !== undefined) {
      const placed = { nodeId: replica.nodeId === '' ? nodeId : replica.nodeId };
      await this.bed.updateReplica(replica.id, { ...placed, phase: index % (Phase.FAILED + 1) });
    }
  }

  /** Returns what a client of the watch must have now, found by a walk over all replicas. */
  expected(request: WatchReplicasRequest, visible: readonly string[]): ReadonlySet<string> {
    const view = this.bed.state.view();
    const selector = parseLabelSelector(request.labelSelector);
    const matching = [...view.replicas()].filter(({ value }) => {
      if (request.nodeId !== '' && value.nodeId !== request.nodeId) return false;
      const workload = view.workload(value.uid)?.value;
      if (workload === undefined)
        return visible.includes('') && request.namespace === '' && selector.length === 0;
      return (
        visible.includes(workload.namespace) &&
        (request.namespace === '' || request.namespace === workload.namespace) &&
        matchesLabels(selector, workload.spec?.labels ?? {})
      );
    });
    return new Set(matching.map(({ value: { id, phase, nodeId } }) => `${id} ${phase} ${nodeId}`));
  }
}

/** A client that keeps the replicas it was sent, and resumes its watch. */
class Client {
  readonly replicas = new Map<string, string>();
  readonly responses: WatchReplicasResponse[] = [];
  private stopping = new AbortController();
  private reading: Promise<void> = Promise.resolve();
  private revision = 0n;

  constructor(
    private readonly cluster: Cluster,
    private readonly request: MessageInitShape<typeof WatchReplicasRequestSchema> = {},
    private readonly visible: readonly string[] = ['', 'default', 'team'],
    private readonly isBinary = true,
  ) {}

  open(): void {
    if (this.revision === 0n) this.replicas.clear();
    this.stopping = new AbortController();
    const request = create(WatchReplicasRequestSchema, this.request);
    request.afterRevision = this.revision;
    const { signal } = this.stopping;
    this.reading = this.read(this.cluster.watch(request, this.visible, this.isBinary, signal));
  }

  async cut(): Promise<void> {
    this.stopping.abort();
    await this.reading;
  }

  get shown(): ReadonlySet<string> {
    return new Set(this.replicas.values());
  }

  private async read(watch: AsyncGenerator<WatchReplicasResponse>): Promise<void> {
    for await (const item of watch) {
      if (this.stopping.signal.aborted) return;
      const response = this.isBinary
        ? fromBinary(WatchReplicasResponseSchema, toBinary(WatchReplicasResponseSchema, item))
        : item;
      this.responses.push(response);
      for (const { namespace, replicas, removedReplicaIds } of response.workloads) {
        expect(this.visible).toContain(namespace);
        for (const id of removedReplicaIds) this.replicas.delete(id);
        for (const { id, phase, nodeId } of replicas)
          this.replicas.set(id, `${id} ${phase} ${nodeId}`);
      }
      if (response.revision > 0n) this.revision = response.revision;
    }
  }
}

type Step = readonly [
  kind: 'add' | 'change' | 'delete' | 'deleteWorkload' | 'label' | 'liveness' | 'zone',
  index: number,
  nodeId: string,
];
const arbStep: fc.Arbitrary<Step> = fc.tuple(
  fc.constantFrom(
    'add',
    'add',
    'change',
    'change',
    'delete',
    'deleteWorkload',
    'label',
    'liveness',
    'zone',
  ),
  fc.nat(40),
  fc.constantFrom('', 'n1', 'n2'),
);
const arbRequest = fc.record({
  namespace: fc.constantFrom('', '', 'default', 'team'),
  labelSelector: fc.constantFrom('', '', 'app=x'),
  nodeId: fc.constantFrom('', '', 'n1', 'n2'),
});
const arbVisible = fc.constantFrom(['', 'default', 'team'], ['default', 'team'], ['team']);

describe('watchReplicas', () => {
  it('shows what a walk over all replicas shows, after any changes, cuts and resumptions, and nothing of other namespaces', async () => {
    await fc.assert(
      fc.asyncProperty(
        arbRequest,
        arbVisible,
        fc.boolean(),
        fc.array(arbStep, { maxLength: 8 }),
        fc.array(fc.tuple(fc.array(arbStep, { maxLength: 6 }), fc.boolean()), { maxLength: 4 }),
        async (fields, visible, isBinary, before, rounds) => {
          const cluster = await Cluster.open();
          for (const step of before) await cluster.apply(step);
          const client = new Client(cluster, fields, visible, isBinary);
          const request = create(WatchReplicasRequestSchema, fields);
          client.open();
          await cluster.bed.settle();
          expect(client.shown).toEqual(cluster.expected(request, visible));
          for (const [steps, isCut] of rounds) {
            if (isCut) await client.cut();
            for (const step of steps) await cluster.apply(step);
            if (isCut) client.open();
            await cluster.bed.settle();
            expect(client.shown).toEqual(cluster.expected(request, visible));
          }
          await client.cut();
          await cluster.close();
        },
      ),
      { numRuns: 60 },
    );
  });

  it('sends the one replica that changed, not the others of its workload', async () => {
    const cluster = await Cluster.open();
    for (let count = 0; count < 30; count += 1) await cluster.addReplica('a', 'n1');
    const client = new Client(cluster);
    client.open();
    await cluster.bed.settle();
    expect(cluster.encoded).toBe(30);
    for (let change = 1; change <= 10; change += 1) {
      await cluster.bed.updateReplica('a-7', { restarts: change });
      await cluster.bed.settle();
    }
    expect(cluster.encoded).toBe(40);
    await client.cut();
    await cluster.close();
  });

  it('sends many replicas in few responses, then synced with a revision to resume at', async () => {
    const cluster = await Cluster.open();
    for (let count = 0; count < 300; count += 1) await cluster.addReplica('a', 'n1');
    const client = new Client(cluster);
    client.open();
    await cluster.bed.settle();
    const { revision } = cluster.bed.state.view();
    expect(
      client.responses.map(({ workloads, synced, revision: at }) => ({
        replicas: workloads.flatMap(({ replicas }) => replicas).length,
        ...{ synced, at },
      })),
    ).toEqual([
      { replicas: 250, synced: false, at: 0n },
      { replicas: 50, synced: false, at: 0n },
      { replicas: 0, synced: true, at: revision },
    ]);
    await client.cut();
    await cluster.close();
  });

  it('sends synced after the changes that a resumed watch has missed, and the revision after 15 s of silence', async () => {
    const cluster = await Cluster.open();
    await cluster.addReplica('a', 'n1');
    const client = new Client(cluster);
    client.open();
    await cluster.bed.settle();
    await client.cut();
    for (let count = 0; count < 3; count += 1) await cluster.addReplica('b', 'n1');
    client.responses.splice(0);
    client.open();
    await cluster.bed.settle();
    await cluster.bed.clock.advance(15_000);
    expect(
      client.responses.map(({ workloads, synced }) => [
        workloads.flatMap(({ replicas }) => replicas.map(({ id }) => id)),
        synced,
      ]),
    ).toEqual([
      [['b-2', 'b-3', 'b-4'], false],
      [[], true],
      [[], false],
    ]);
    await client.cut();
    await cluster.close();
  });
});
