import {
  create,
  toBinary,
  type DescMessage,
  type MessageInitShape,
  type MessageShape,
} from '@bufbuild/protobuf';
import { BinaryWriter } from '@bufbuild/protobuf/wire';
import {
  type HandlerContext,
  createContextKey,
  createRouterTransport,
  type ConnectRouter,
  type Interceptor,
  type Transport,
} from '@connectrpc/connect';
import {
  ExplainWorkloadResponseSchema,
  ProposeMovesResponseSchema,
  ReplicaStatusSchema,
  ReplicaStatus_Phase as Phase,
  SimulateClusterResponseSchema,
  WorkloadPlanSchema,
  WorkloadSchema,
  WorkloadStatusSchema,
  setEncodedFields,
  createAdminClient,
  createCoordinatorClient,
  createErrorInterceptor,
  createValidationInterceptor,
  type AdminClient,
  type CoordinatorClient,
  type Event,
  type HelloSchema,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  NodeRecordSchema,
  ReplicaRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
  type ReplicaRecord,
} from '@cloudless/api/store';
import { createSeededRandom, runAtOnce, silentLog, type Log, type Random } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import {
  copyReplica,
  openClusterState,
  toNameKeyId,
  toVersionKeyId,
  type ClusterState,
  type ClusterView,
  type LeadershipTerm,
} from '@cloudless/cluster-state';
import { freezeRecords } from '@cloudless/cluster-state/testing';
import { createKeyEncryption } from '@cloudless/secrets';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { Authenticator, type AuthenticatedConnection } from '../access/authenticator.js';
import type { ApiCaller } from '../access/caller.js';
import type { IdentityPort } from '../access/identity-port.js';
import { createApiServer, createReadServer, type ApiServer, type ReadServer } from '../handlers.js';
import type {
  ApiServerDeps,
  CallConnection,
  DryRunPlannerPort,
  NodeAllocation,
  SimulatedState,
  WorkloadPresenterPort,
} from '../ports.js';
import { SecretKeys } from '../secret/secret-keys.js';
import { FakeFeed } from './fake-feed.js';
import { FakeNodes } from './fake-nodes.js';
import { CONNECTION_HEADER, ScriptedAgent } from './scripted-agent.js';

const callerKey = createContextKey<ApiCaller | undefined>(undefined);

/** A connection of a client that a test pings and closes. */
export class FakeConnection implements CallConnection, AuthenticatedConnection {
  private readonly pingListeners = new Set<() => void>();
  private readonly closeListeners = new Set<() => void>();

  /** Certificates of the client; a test sets them. */
  peer: { readonly chainDer: readonly Uint8Array[] } | undefined;
  isDrained = false;

  constructor(readonly remoteAddress: string) {}

  get id(): string {
    return this.remoteAddress;
  }

  drain(): void {
    this.isDrained = true;
  }

  onPing(listener: () => void): () => void {
    this.pingListeners.add(listener);
    return () => this.pingListeners.delete(listener);
  }

  onClose(listener: () => void): () => void {
    this.closeListeners.add(listener);
    return () => this.closeListeners.delete(listener);
  }

  ping(): void {
    for (const listener of this.pingListeners) listener();
  }

  close(): void {
    for (const listener of this.closeListeners) listener();
  }
}

/** Returns keys of secrets with a key-encryption key that is always the same. */
export function createTestSecretKeys(): SecretKeys {
  const kek = createSeededRandom(7).bytes(32);
  return new SecretKeys({ current: createKeyEncryption('file', kek, createSeededRandom(8)) });
}

/** Allocation of a node without replicas. */
export const NO_ALLOCATION: NodeAllocation = {
  ...{ cpuMillis: 0, memoryBytes: 0, storageBytes: 0, bandwidthBps: 0, gpus: 0 },
  ...{ custom: {}, replicas: 0 },
};

/**
 * All handlers of the API over a memory store, without controllers: only the test and the reports
 * of scripted agents change replicas. Close the test bed after the test.
 * @example
 * ```ts
 * const bed = await ApiTestBed.open();
 * await bed.putReplica('w-0', { nodeId: 'node-1' });
 * const agent = await bed.connectAgent('node-1');
 * agent.sendInventory();
 * await bed.settle();
 * expect(agent.orders).toEqual(['start w-0']);
 * await bed.close();
 * ```
 */
export class ApiTestBed {
  readonly nodes = new FakeNodes();
  readonly network = new FakeFeed();
  readonly client: CoordinatorClient;
  readonly admin: AdminClient;
  readonly transport: Transport;
  /** Log messages of level warn and error. */
  readonly problems: string[] = [];
  readonly api: ApiServer;
  private readonly connections = new Map<string, FakeConnection>();

  /** Authenticates all calls; undefined without identities. */
  readonly authenticator: Authenticator | undefined;
  /** The callers of all calls so far, with identities. */
  readonly callers: ApiCaller[] = [];
  /** Uses of newest certificates: `<kind> <id> <serial>`. */
  readonly usedCredentials: string[] = [];

  private constructor(
    readonly clock: ManualClock,
    readonly store: StateStore,
    readonly state: ClusterState,
    readonly identity: IdentityPort | undefined,
    readonly secretKeys: SecretKeys,
    readonly random: Random,
  ) {
    const log: Log = {
      ...silentLog,
      warn: (message) => this.problems.push(message),
      error: (message) => this.problems.push(message),
    };
    if (identity !== undefined) {
      this.authenticator = new Authenticator({
        ...{ state, clock, log, identity },
        onNodeCertificateUsed: (nodeId, serial) =>
          this.usedCredentials.push(`node ${nodeId} ${serial}`),
      });
    }
    this.api = createApiServer({ ...this.createPorts(), log });
    this.transport = createRouterTransport(this.api.registerRoutes, {
      router: {
        interceptors: [
          createErrorInterceptor((rpc, reason) => this.problems.push(`${rpc}: ${String(reason)}`)),
          createValidationInterceptor(),
          this.createAuthorizer(),
        ],
      },
    });
    this.client = createCoordinatorClient(this.transport);
    this.admin = createAdminClient(this.transport);
  }

  /** @param options - `historyLimit`: changes that the store keeps for watches. Default: that of the
   * store. */
  static async open({
    clock = new ManualClock(),
    historyLimit,
    identity,
    isElected = false,
    secretKeys = createTestSecretKeys(),
    seed = 2,
    store = createMemoryStateStore({
      clock,
      ...(historyLimit === undefined ? {} : { historyLimit }),
    }),
  }: {
    readonly clock?: ManualClock;
    readonly historyLimit?: number;
    /** Default: a cluster without TLS. */
    readonly identity?: IdentityPort;
    /** True: leads by an election, in its first term. Default: takes the leadership at its start. */
    readonly isElected?: boolean;
    /** Default: with a key-encryption key. */
    readonly secretKeys?: SecretKeys;
    /** Of the random numbers of the API. Give each coordinator of one store another. Default: 2. */
    readonly seed?: number;
    /** Default: an empty store. */
    readonly store?: StateStore;
  } = {}): Promise<ApiTestBed> {
    const opened = await openClusterState({
      store,
      clock,
      random: createSeededRandom(1),
      log: silentLog,
      holder: 'test',
      leadership: isElected ? 'follow' : 'takeAtStart',
    });
    const state = isElected ? await elect(opened, clock) : opened;
    freezeRecords(state);
    return new ApiTestBed(clock, store, state, identity, secretKeys, createSeededRandom(seed));
  }

  /**
   * Enrols a node and opens a session of its agent. The node counts as alive once the test has sent
   * the inventory: `agent.sendInventory()`.
   * @param hello - Fields that replace the default ones.
   */
  async connectAgent(
    nodeId: string,
    hello: MessageInitShape<typeof HelloSchema> = {},
  ): Promise<ScriptedAgent> {
    const instanceId = `instance-of-${nodeId}-0123456789`;
    const { clusterId } = await this.client.enrollNode({ nodeId, instanceId });
    const agent = new ScriptedAgent(this.transport, nodeId, {
      protocolMin: 1,
      protocolMax: 1,
      nodeId,
      instanceId,
      clusterId,
      ...hello,
    });
    await this.settle();
    return agent;
  }

  /** Returns the connection of all calls that name it in the header {@link CONNECTION_HEADER}. */
  connection(name: string): FakeConnection {
    const known = this.connections.get(name) ?? new FakeConnection(`10.0.0.${name.length}`);
    this.connections.set(name, known);
    return known;
  }

  /**
   * Stores a replica, and its workload `web-<uid>` unless that exists.
   * @param id - `<uid>-<number>`, such as `w-0`.
   * @param fields - Default: assigned to node-1, with a start order.
   */
  async putReplica(
    id: string,
    fields: MessageInitShape<typeof ReplicaRecordSchema> = {},
  ): Promise<void> {
    const [uid = '', number = '0'] = id.split('-');
    const transaction = this.state.transaction();
    if (this.state.view().workload(uid) === undefined) {
      const workload = { uid, namespace: 'default', name: `web-${uid}`, version: 1 };
      transaction
        .put('workload', uid, create(WorkloadRecordSchema, { ...workload, generation: 1n }))
        .put('name', toNameKeyId('default', workload.name), create(WorkloadRecordSchema, { uid }))
        .put('control', uid, create(ControlRecordSchema, { uid, nextSequence: 1n }))
        .put(
          'version',
          toVersionKeyId(uid, 1),
          create(VersionRecordSchema, { version: 1, template: { command: ['serve'] } }),
        );
    }
    transaction.createReplica(
      create(ReplicaRecordSchema, {
        id,
        uid,
        sequence: BigInt(number),
        version: 1,
        nodeId: 'node-1',
        desiredRunning: true,
        phase: Phase.ASSIGNED,
        ...fields,
      }),
    );
    await this.state.commit(transaction);
  }

  /** Changes a replica as a controller would. */
  async updateReplica(id: string, changes: Parameters<typeof copyReplica>[1]): Promise<void> {
    const stored = this.state.view().replica(id);
    if (stored === undefined) throw new Error(`no replica ${id}`);
    const next = copyReplica(stored.value, changes);
    await this.state.commit(this.state.transaction().updateReplica(stored, next));
  }

  /**
   * Returns the record of a replica.
   * @throws when there is none.
   */
  replica(id: string): ReplicaRecord {
    const stored = this.state.view().replica(id);
    if (stored === undefined) throw new Error(`no replica ${id}`);
    return stored.value;
  }

  /** Stores a node record, without a session of its agent. */
  async putNode(id: string, fields: MessageInitShape<typeof NodeRecordSchema> = {}): Promise<void> {
    const record = create(NodeRecordSchema, { id, ...fields });
    await this.state.commit(this.state.transaction().put('node', id, record));
  }

  /** Returns the events with this reason, or all events, oldest first. */
  events(reason?: string): readonly Event[] {
    return this.state
      .view()
      .events()
      .filter((event) => reason === undefined || event.reason === reason);
  }

  /** All audit records as `<method> <result>`, oldest first. */
  get auditRecords(): readonly string[] {
    return this.events().flatMap(({ reason, audit }) =>
      audit === undefined ? [] : [`${reason} ${audit.result}`],
    );
  }

  /** Creates the handlers of a coordinator that follows, over `state`. Close them. */
  createReadServer(state: ClusterState = this.state): ReadServer {
    return createReadServer({ ...this.createPorts(), state, log: silentLog });
  }

  /** Authenticates each call, as the RPC server does with identities. */
  createAuthorizer(authenticator = this.authenticator): Interceptor {
    return (next) => (request) => {
      if (authenticator === undefined) return next(request);
      const { method, header } = request;
      const name = header.get(CONNECTION_HEADER);
      const connection = name === null ? undefined : this.connection(name);
      const caller = authenticator.authorize({ method, connection, header });
      this.callers.push(caller);
      request.contextValues.set(callerKey, caller);
      return next(request);
    };
  }

  /** Returns the client of a call that {@link createAuthorizer} has authenticated. */
  readonly getCaller = (context: HandlerContext): ApiCaller | undefined =>
    context.values.get(callerKey);

  /** Registers all handlers on a router. */
  registerRoutes(router: ConnectRouter): void {
    this.api.registerRoutes(router);
  }

  /** Runs all timers and promises that are due now. */
  settle(): Promise<void> {
    return this.clock.advance(0);
  }

  /**
   * Ends the API and the state, and checks the log.
   * @param problems - Expected log messages of level warn and error. Default: none.
   */
  async close({ problems = [] as readonly string[] } = {}): Promise<void> {
    expect(this.problems).toEqual(problems);
    await this.stop();
  }

  /** Ends the API and the state without checking the log. */
  async stop(): Promise<void> {
    await this.api.close();
    await this.state.close();
  }

  private createPorts(): Omit<ApiServerDeps, 'log'> {
    const { state, clock, identity, authenticator } = this;
    const presenter: Pick<WorkloadPresenterPort, 'present' | 'presentReplica'> = {
      present: ({ namespace, name, uid, spec, generation }, full, listed) =>
        create(WorkloadSchema, {
          namespace,
          name,
          uid,
          generation,
          ...(spec === undefined ? {} : { spec }),
          status: create(WorkloadStatusSchema, {
            replicas: full
              ? Array.from(
                  listed?.replicas ??
                    Array.from(state.view().replicasOf(uid), ({ value }) => value),
                  ({ id }) => create(ReplicaStatusSchema, { id }),
                )
              : [],
            omittedReplicas: listed?.omitted ?? 0,
          }),
        }),
      presentReplica: ({ id }) => create(ReplicaStatusSchema, { id }),
    };
    const planner: DryRunPlannerPort = {
      *planChange({ namespace, name, current }) {
        return create(WorkloadPlanSchema, {
          ...{ namespace, name, generation: current?.generation ?? 0n },
        });
      },
      putNode: () => undefined,
      *planDeletion({ namespace, name, generation }) {
        return create(WorkloadPlanSchema, { namespace, name, generation });
      },
      *planRollout(action, { namespace, name, generation }) {
        return create(WorkloadPlanSchema, { namespace, name, generation, action });
      },
      *planMoves() {
        return [];
      },
    };
    return {
      ...(identity === undefined || authenticator === undefined
        ? {}
        : {
            identity,
            getCaller: (context) => context.values.get(callerKey),
            replaceCredential: (caller, facts) => authenticator.replaceCredential(caller, facts),
            identifyCertificate: authenticator.identifyCertificate,
          }),
      state,
      secretKeys: this.secretKeys,
      network: this.network,
      clock,
      random: this.random,
      nodes: this.nodes,
      presenter: {
        ...presenter,
        presentWithEncodedReplicas: (record) => {
          const workload = presenter.present(record, true);
          const { status = create(WorkloadStatusSchema) } = workload;
          const replicas = status.replicas.splice(0);
          const encoded = toBinary(
            WorkloadStatusSchema,
            create(WorkloadStatusSchema, { replicas }),
          );
          setEncodedFields(status, encoded);
          return workload;
        },
        encode: (record, full) => encodeDelimited(WorkloadSchema, presenter.present(record, full)),
        encodeReplica: (replica) =>
          encodeDelimited(ReplicaStatusSchema, presenter.presentReplica(replica)),
        describeWeights:
          () =>
          ({ version }) =>
            version === 1 ? 100 : 900,
      },
      dryRun: {
        predict: (predict) => Promise.resolve().then(() => runAtOnce(predict(planner))),
        predictAtOnce: (predict) => runAtOnce(predict(planner)),
        explain: ({ namespace, name }) =>
          create(ExplainWorkloadResponseSchema, { namespace, name }),
      },
      whatIf: {
        openCurrent: () => createSimulatedState(state.view()),
        openRevision: () => Promise.resolve(createSimulatedState(state.view())),
        proposeMoves: () => Promise.resolve(create(ProposeMovesResponseSchema)),
        *encodeSnapshot() {
          yield new Uint8Array([1]);
          yield new Uint8Array([2, 3]);
        },
      },
      placements: {
        getAllocated: (nodeId) => ({
          ...NO_ALLOCATION,
          replicas: [...state.view().replicasOn(nodeId)].length,
        }),
      },
      explainImpossibleLimits: () => undefined,
      getConnection: ({ requestHeader }) => {
        const name = requestHeader.get(CONNECTION_HEADER);
        return name === null ? undefined : this.connection(name);
      },
      version: '0.0.0-test',
      timings: { leaseMs: 3_000, pingMs: 1_000, usageMs: 10_000 },
    };
  }
}

/** Encodes a message behind its length as a varint. */
function encodeDelimited<Desc extends DescMessage>(
  schema: Desc,
  message: MessageShape<Desc>,
): Uint8Array {
  return new BinaryWriter().bytes(toBinary(schema, message)).finish();
}

/** A state whose simulation returns the number of changes of each kind as the summary. */
function createSimulatedState(view: ClusterView): SimulatedState {
  return {
    view,
    close: () => undefined,
    simulate: ({ nodes, addedNodes, workloads, deletions }) =>
      Promise.resolve(
        create(SimulateClusterResponseSchema, {
          revision: view.revision,
          totalWorkloads: workloads.length + deletions.length,
          totalMoves: nodes.length + addedNodes.length,
        }),
      ),
  };
}

/** Lets the only coordinator of a store win an election, and returns the state of its term. */
async function elect(state: ClusterState, clock: ManualClock): Promise<ClusterState> {
  const terms: LeadershipTerm[] = [];
  state.onRoleChange((change) => {
    if (change.role === 'leader') terms.push(change.term);
  });
  state.joinElection({ address: 'http://c1', coordinatorId: 'c1' });
  for (;;) {
    const [term] = terms;
    if (term !== undefined) return state.inTerm(term);
    await clock.advance(ELECTION_STEP_MS);
  }
}

const ELECTION_STEP_MS = 10;
