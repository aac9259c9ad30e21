import { clone, create, type DescMessage, type MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  ReplicaStatus_Phase as Phase,
  WorkloadSpecSchema,
  type Event,
  type WorkloadSpec,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  NodeRecordSchema,
  ReplicaRecordSchema,
  WorkloadRecordSchema,
  type ControlRecord,
  type NodeRecord,
  type ReplicaRecord,
  type WorkloadRecord,
} from '@cloudless/api/store';
import { createSeededRandom, silentLog, TransientSet, type Random } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import {
  copyReplica,
  NO_PINS,
  createVersionRecord,
  openClusterState,
  putNodeReturn,
  putSpecUpdate,
  toNameKeyId,
  toVersionKeyId,
  type ClusterState,
  type Stored,
} from '@cloudless/cluster-state';
import { freezeRecords } from '@cloudless/cluster-state/testing';
import { createCluster } from '@cloudless/scheduler';
import { createMemoryStateStore } from '@cloudless/state-store';
import { NodeDirectory } from '../node/node-directory.js';
import { ClusterModel } from '../placement/cluster-model.js';
import { ReadinessTracker } from '../rollout/readiness-tracker.js';

/** Lease of the nodes of a test bed, milliseconds. */
export const LEASE_MS = 3_000;
/** Milliseconds between two renewals of a lease, as agents renew theirs. */
const RENEWAL_MS = 900;

/** The fields of a record, without the name of its type. */
type Fields<Schema extends DescMessage> = Omit<MessageInitShape<Schema>, '$typeName' | '$unknown'>;

/** The fields of a replica that a test changes. */
export type ReplicaChanges = Fields<typeof ReplicaRecordSchema>;

/**
 * A cluster for the test of one controller: an in-memory store, virtual time, nodes with leases
 * that are renewed until the test silences them, and the scheduler's model. No controller runs
 * until the test creates one.
 * @example
 * const bed = await TestBed.open({ nodes: ['node-1'] });
 * bed.use(new Placer(bed));
 * await bed.createWorkload({ replicas: 1 });
 * await bed.advance(1_000);
 * await bed.close();
 */
export class TestBed {
  readonly random: Random = createSeededRandom(1);
  readonly log = silentLog;
  readonly cluster = createCluster();
  readonly recordsBeingPlaced = new TransientSet<ReplicaRecord>();
  readonly nodes: NodeDirectory;
  readonly readiness: ReadinessTracker;
  private readonly closers: (() => unknown)[] = [];
  private readonly silent = new Set<string>();
  private readonly sessions = new Map<string, number>();

  private constructor(
    readonly clock: ManualClock,
    readonly state: ClusterState,
  ) {
    this.nodes = new NodeDirectory({ clock, log: silentLog, leaseMs: LEASE_MS });
    this.nodes.start([]);
    const model = new ClusterModel(this);
    this.readiness = new ReadinessTracker(state, this.nodes, clock);
    this.closers.push(
      () => this.nodes.close(),
      () => model.close(),
      () => this.readiness.close(),
    );
    this.renewLeases();
  }

  static async open({ nodes = [] }: { readonly nodes?: readonly string[] } = {}): Promise<TestBed> {
    const clock = new ManualClock();
    const state = await openClusterState({
      store: createMemoryStateStore({ clock, historyLimit: 10_000 }),
      clock,
      random: createSeededRandom(1),
      log: silentLog,
      holder: 'test',
    });
    freezeRecords(state);
    const bed = new TestBed(clock, state);
    for (const id of nodes) await bed.addNode(id);
    return bed;
  }

  /** The dependencies of a controller, with additions or overrides. */
  dependencies<Extra extends object>(extra: Extra) {
    const { state, nodes, clock, random, log, cluster, readiness } = this;
    return { state, nodes, clock, random, log, cluster, readiness, ...extra };
  }

  /** Registers a controller, which {@link close} then closes before the test bed. */
  use<Controller extends { close(): unknown }>(controller: Controller): Controller {
    this.closers.unshift(() => controller.close());
    return controller;
  }

  async close(): Promise<void> {
    for (const close of this.closers) await close();
    await this.state.close();
  }

  /** Runs all work that is due, and advances the virtual clock by `ms`. */
  advance(ms = 0): Promise<void> {
    return this.clock.advance(ms);
  }

  /** Adds a node with 4 CPUs and 8 GiB, and starts its session. */
  async addNode(id: string, changes: Fields<typeof NodeRecordSchema> = {}): Promise<void> {
    const node = create(NodeRecordSchema, {
      id,
      createdAt: timestampFromMs(this.clock.wallTime()),
      hello: {
        nodeId: id,
        capacity: { cpuMillis: 4_000, memoryBytes: 8n * 1024n ** 3n },
        capabilities: ['runtime.process'],
      },
      ...changes,
    });
    await this.state.commitObserved(this.state.transaction().put('node', id, node));
    this.connect(id);
  }

  /** Starts a session of a node and renews its lease from then on. */
  connect(nodeId: string): void {
    this.silent.delete(nodeId);
    this.sessions.set(nodeId, this.nodes.startSession(nodeId));
  }

  /** Breaks the connection of a node and ends the renewal of its lease. */
  disconnect(nodeId: string): void {
    this.silent.add(nodeId);
    this.nodes.endSession(nodeId, this.sessions.get(nodeId) ?? 0);
  }

  /** Ends the renewal of the leases of nodes. Their connections stay. */
  silence(...nodeIds: readonly string[]): void {
    for (const nodeId of nodeIds) this.silent.add(nodeId);
  }

  node(id: string): NodeRecord {
    return this.storedNode(id).value;
  }

  async changeNode(id: string, changes: MessageInitShape<typeof NodeRecordSchema>): Promise<void> {
    const read = this.storedNode(id);
    const next = Object.assign(
      clone(NodeRecordSchema, read.value),
      pick(create(NodeRecordSchema, changes), Object.keys(changes)),
    );
    await this.state.commitObserved(
      this.state.transaction().require('node', id, read).put('node', id, next),
    );
  }

  /** Records that a lost node has returned, as the session of its agent does. */
  async returnNode(id: string): Promise<void> {
    this.connect(id);
    const transaction = this.state.transaction();
    await this.state.commitObserved(
      putNodeReturn(transaction, this.state.view(), this.storedNode(id)),
    );
  }

  /** Creates a workload `default/<uid>` that runs a process. */
  async createWorkload(
    changes: MessageInitShape<typeof WorkloadSpecSchema> = {},
    uid = 'web',
  ): Promise<void> {
    const spec = aSpec(changes);
    const nowMs = this.clock.wallTime();
    const workload = create(WorkloadRecordSchema, {
      uid,
      namespace: 'default',
      name: uid,
      spec,
      generation: 1n,
      version: 1,
      createdAt: timestampFromMs(nowMs),
    });
    await this.state.commitObserved(
      this.state
        .transaction()
        .put('workload', uid, workload)
        .put('name', toNameKeyId('default', uid), create(WorkloadRecordSchema, { uid }))
        .put(
          'version',
          toVersionKeyId(uid, 1),
          createVersionRecord(spec, { version: 1, nowMs, earlier: [], pins: NO_PINS }),
        )
        .put('control', uid, create(ControlRecordSchema, { uid, nextSequence: 1n }))
        .event({ reason: 'WorkloadCreated', namespace: 'default', workload: uid }),
    );
  }

  workload(uid = 'web'): WorkloadRecord {
    return this.storedWorkload(uid).value;
  }

  control(uid = 'web'): ControlRecord {
    return required(this.state.view().control(uid), `control record of ${uid}`).value;
  }

  async changeControl(changes: MessageInitShape<typeof ControlRecordSchema>): Promise<void> {
    const read = required(this.state.view().control('web'), 'control record');
    const next = Object.assign(
      clone(ControlRecordSchema, read.value),
      pick(create(ControlRecordSchema, changes), Object.keys(changes)),
    );
    await this.state.commitObserved(
      this.state.transaction().require('control', 'web', read).put('control', 'web', next),
    );
  }

  /** Replaces the spec of a workload. */
  async updateWorkload(
    changes: MessageInitShape<typeof WorkloadSpecSchema>,
    uid = 'web',
  ): Promise<void> {
    const transaction = this.state.transaction();
    putSpecUpdate(transaction, this.state.view(), this.storedWorkload(uid), {
      spec: aSpec(changes),
      requestId: '',
      nowMs: this.clock.wallTime(),
    });
    await this.state.commitObserved(transaction);
  }

  async deleteWorkload(uid = 'web'): Promise<void> {
    const read = this.storedWorkload(uid);
    const next = clone(WorkloadRecordSchema, read.value);
    next.deletionRequestedAt = timestampFromMs(this.clock.wallTime());
    next.generation += 1n;
    await this.state.commitObserved(
      this.state.transaction().require('workload', uid, read).put('workload', uid, next),
    );
  }

  /** The replicas of a workload, oldest first. */
  replicas(uid = 'web'): readonly ReplicaRecord[] {
    return [...this.state.view().replicasOf(uid)]
      .map(({ value }) => value)
      .sort((a, b) => Number(a.sequence - b.sequence));
  }

  /**
   * Writes replicas of the workload `web` that run ready on node-1.
   * @param changes - Returns the fields of a replica that differ, by its index from 0.
   */
  async addReplicas(
    count: number,
    changes: (index: number) => Fields<typeof ReplicaRecordSchema> = () => ({}),
  ): Promise<void> {
    for (let from = 0; from < count; from += 90) {
      const transaction = this.state.transaction();
      for (let index = from; index < Math.min(count, from + 90); index += 1) {
        const sequence = BigInt(index + 1);
        transaction.createReplica(
          create(ReplicaRecordSchema, {
            id: `web-${sequence}`,
            uid: 'web',
            sequence,
            slot: index,
            version: 1,
            nodeId: 'node-1',
            phase: Phase.RUNNING,
            ready: true,
            desiredRunning: true,
            containerId: `container-${sequence}`,
            ...changes(index),
          }),
        );
      }
      await this.state.commitObserved(transaction);
    }
  }

  /** Changes a replica in a commit of an observation, as a report of its agent does. */
  async changeReplica(id: string, changes: Parameters<typeof copyReplica>[1]): Promise<void> {
    const read = required(this.state.view().replica(id), `replica ${id}`);
    await this.state.commitObserved(
      this.state.transaction().updateReplica(read, copyReplica(read.value, changes)),
    );
  }

  /** Assigns every waiting replica to `nodeId`, and reports all wanted replicas as ready. */
  async runAll(nodeId = 'node-1', uid = 'web'): Promise<void> {
    for (const replica of this.replicas(uid)) {
      if (!replica.desiredRunning || replica.phase > Phase.RUNNING || replica.ready) continue;
      await this.changeReplica(replica.id, {
        nodeId: replica.nodeId === '' ? nodeId : replica.nodeId,
        phase: Phase.RUNNING,
        ready: true,
        reason: '',
        containerId: `container-${replica.id}`,
      });
    }
  }

  /** Reports every replica that was ordered to stop as stopped. */
  async confirmStops(uid = 'web'): Promise<void> {
    for (const { id, desiredRunning, phase } of this.replicas(uid))
      if (!desiredRunning && phase <= Phase.STOPPING)
        await this.changeReplica(id, { phase: Phase.STOPPED, ready: false });
  }

  /** Returns the events with a reason, oldest first. */
  events(reason: string): readonly Event[] {
    return this.state
      .view()
      .events()
      .filter((event) => event.reason === reason);
  }

  /** Runs `action` before the next commit of a controller, after the decision was made. */
  beforeNextCommit(action: () => Promise<void>): void {
    const commit = this.state.commit.bind(this.state);
    this.state.commit = async (transaction) => {
      this.state.commit = commit;
      await action();
      return commit(transaction);
    };
  }

  /**
   * Records the number of writes of every further commit of a controller.
   * @returns The numbers, to which each commit adds one.
   */
  recordCommitSizes(): readonly number[] {
    const sizes: number[] = [];
    const commit = this.state.commit.bind(this.state);
    this.state.commit = (transaction) => {
      sizes.push(transaction.size);
      return commit(transaction);
    };
    return sizes;
  }

  private renewLeases(): void {
    const timer = this.clock.setTimer(RENEWAL_MS, () => {
      for (const nodeId of this.sessions.keys())
        if (!this.silent.has(nodeId)) this.nodes.renewLease(nodeId);
      this.closers.splice(this.closers.indexOf(cancel), 1);
      this.renewLeases();
    });
    const cancel = (): void => timer.cancel();
    this.closers.push(cancel);
  }

  private storedNode(id: string): Stored<NodeRecord> {
    return required(this.state.view().node(id), `node ${id}`);
  }

  private storedWorkload(uid: string): Stored<WorkloadRecord> {
    return required(this.state.view().workload(uid), `workload ${uid}`);
  }
}

/** A spec for the process runtime. Override what the test is about. */
export function aSpec(changes: MessageInitShape<typeof WorkloadSpecSchema> = {}): WorkloadSpec {
  return create(WorkloadSpecSchema, { command: ['serve'], ...changes });
}

function required<Value>(value: Value | undefined, name: string): Value {
  if (value === undefined) throw new Error(`${name} does not exist`);
  return value;
}

function pick<Message extends object>(message: Message, keys: readonly string[]): Partial<Message> {
  return Object.fromEntries(
    Object.entries(message).filter(([key]) => keys.includes(key)),
  ) as Partial<Message>;
}
