import type { MessageInitShape } from '@bufbuild/protobuf';
import { createContextKey, createRouterTransport, type Transport } from '@connectrpc/connect';
import {
  createAdminClient,
  createCoordinatorClient,
  createErrorInterceptor,
  createValidationInterceptor,
  type AdminClient,
  type CoordinatorClient,
  type HelloSchema,
} from '@cloudless/api';
import { createApiServer, type ApiServer } from '@cloudless/api-server';
import {
  definedFields,
  createSeededRandom,
  noMeter,
  silentLog,
  sleep,
  type Log,
  type Meter,
  type Random,
} from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { openClusterState, type ClusterState } from '@cloudless/cluster-state';
import { freezeRecords } from '@cloudless/cluster-state/testing';
import {
  explainImpossibleLimits,
  startControllers,
  type Controllers,
  type RetentionLimits,
} from '@cloudless/controllers';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { ScriptedAgent } from './scripted-agent.js';

/** Options of a {@link TestCluster}. */
export interface TestClusterOptions {
  readonly seed?: number;
  readonly log?: Log;
  readonly leaseMs?: number;
  /** Time within which an agent that left may return, milliseconds. Default 60 000. */
  readonly leaveGraceMs?: number;
  /**
   * Returns the delay of the next commit, milliseconds. A later commit with a shorter delay
   * overtakes an earlier commit. Default: 0.
   */
  readonly commitDelayMs?: () => number;
  /** Number of changes that the store's history retains. Default: the memory store's default. */
  readonly historyLimit?: number;
  /** Default: no metrics. */
  readonly meter?: Meter;
  /** Remote address of callers. Default: none. */
  readonly callerAddress?: string | (() => string);
  /** Retention limits of the store where they differ from the defaults. */
  readonly retention?: Partial<RetentionLimits>;
  /** Runs whenever a coordinator starts, before its controllers make a first commit. */
  readonly onStateOpened?: (state: ClusterState) => void;
}

/**
 * A cluster in one process on virtual time: the real API, controllers and in-memory store. A test
 * scripts the agents and their replicas. Time moves only when the test advances the clock.
 */
export class TestCluster {
  readonly clock = new ManualClock();
  /** Store of the next coordinator; a test may replace it. */
  store: StateStore;
  readonly agents = new Map<string, ScriptedAgent>();
  /**
   * The random source of all coordinators of the cluster, so that a new coordinator does not draw
   * the ids of an earlier coordinator again.
   */
  private readonly random: Random;
  private constructor(
    private readonly options: TestClusterOptions,
    store: StateStore,
    clock: ManualClock,
  ) {
    const txn = store.txn.bind(store);
    this.store = Object.assign(Object.create(store) as StateStore, {
      txn: async (...args: Parameters<StateStore['txn']>) => {
        this.attemptedTransactions += 1;
        const delayMs = options.commitDelayMs?.() ?? 0;
        if (delayMs > 0) await sleep(clock, delayMs, new AbortController().signal);
        return txn(...args);
      },
    });
    this.clock = clock;
    this.random = createSeededRandom(options.seed ?? 1);
  }

  /** Number of transactions that were attempted on the store. */
  attemptedTransactions = 0;

  private running:
    | {
        readonly state: ClusterState;
        readonly controllers: Controllers;
        readonly api: ApiServer;
        readonly transport: Transport;
      }
    | undefined;

  static async start(options: TestClusterOptions = {}): Promise<TestCluster> {
    const clock = new ManualClock();
    const { historyLimit } = options;
    const store = createMemoryStateStore({
      clock,
      ...definedFields({ historyLimit }),
    });
    const cluster = new TestCluster(options, store, clock);
    await cluster.startCoordinator();
    return cluster;
  }

  get client(): CoordinatorClient {
    return createCoordinatorClient(this.parts.transport);
  }

  get admin(): AdminClient {
    return createAdminClient(this.parts.transport);
  }

  /** Transport of calls to the running coordinator. */
  get transport(): Transport {
    return this.parts.transport;
  }

  get state(): ClusterState {
    return this.parts.state;
  }

  /** Controllers of the running coordinator. */
  get controllers(): Controllers {
    return this.parts.controllers;
  }

  /** Starts a new coordinator on the store. */
  async startCoordinator(): Promise<void> {
    const { clock, random } = this;
    const log = this.options.log ?? silentLog;
    const { leaseMs = 3_000, meter = noMeter, retention = {} } = this.options;
    const state = await openClusterState({
      store: this.store,
      clock,
      random,
      log,
      holder: 'simulated',
      meter,
    });
    freezeRecords(state);
    this.options.onStateOpened?.(state);
    const controllers = startControllers({
      state,
      clock,
      random,
      log,
      leaseMs,
      meter,
      retention,
      ...definedFields({ leaveGraceMs: this.options.leaveGraceMs }),
    });
    const api = createApiServer({
      state,
      clock,
      random,
      log,
      nodes: controllers.nodes,
      presenter: controllers.presenter,
      dryRun: controllers.dryRun,
      whatIf: controllers.whatIf,
      placements: controllers.placements,
      network: controllers.network,
      explainImpossibleLimits,
      getConnection: (context) =>
        context.values.get(agentConnection) ?? callerAt(this.options.callerAddress),
      meter,
      version: 'simulated',
      timings: { leaseMs, pingMs: leaseMs / 3, usageMs: 10_000 },
    });
    const transport = createRouterTransport(api.registerRoutes, {
      router: {
        interceptors: [
          createErrorInterceptor((rpc, reason) =>
            log.error('call failed inside', { rpc, reason: String(reason) }),
          ),
          createValidationInterceptor(),
        ],
      },
    });
    this.running = { state, controllers, api, transport };
  }

  /** Ends the coordinator. The sessions of agents stay open on their side. */
  async stopCoordinator(): Promise<void> {
    const { api, controllers, state } = this.parts;
    this.running = undefined;
    await api.close();
    await controllers.close();
    await state.close();
  }

  /** Replaces the coordinator; every agent has to reconnect. */
  async restartCoordinator(): Promise<void> {
    await this.stopCoordinator();
    for (const agent of this.agents.values()) agent.disconnect();
    await this.startCoordinator();
  }

  /**
   * Adds a node whose agent connects at once.
   * @param hello - Fields of its Hello. Default: 4 cores, 8 GiB, the process runtime.
   */
  async addNode(
    nodeId: string,
    hello: MessageInitShape<typeof HelloSchema> = {},
  ): Promise<ScriptedAgent> {
    const agent = new ScriptedAgent(nodeId, hello, this.clock);
    this.agents.set(nodeId, agent);
    await this.complete(() => agent.connect(this.parts.transport));
    await this.clock.advance(1);
    return agent;
  }

  /** Opens a new session for an agent whose session has ended. */
  async reconnect(nodeId: string): Promise<void> {
    const agent = this.agents.get(nodeId);
    if (agent === undefined) throw new Error(`there is no node ${nodeId}`);
    await this.complete(() => agent.connect(this.parts.transport));
  }

  /** Advances virtual time in steps; at each step every connected agent renews its lease. */
  async advance(durationMs: number, stepMs = 10): Promise<void> {
    for (let passed = 0; passed < durationMs; passed += stepMs) {
      for (const agent of this.agents.values()) agent.ping(this.parts.controllers.nodes);
      await this.clock.advance(Math.min(stepMs, durationMs - passed));
    }
  }

  /**
   * Completes a call, advancing virtual time as far as needed.
   * @throws The error of the call, or an error when the call takes more than 30 virtual seconds.
   */
  async complete<Result>(call: () => Promise<Result>): Promise<Result> {
    let outcome: { readonly value: Result } | { readonly reason: unknown } | undefined;
    call().then(
      (value) => (outcome = { value }),
      (reason: unknown) => (outcome = { reason }),
    );
    for (let turn = 0; outcome === undefined && turn < MAX_CALL_MS; turn += 1)
      await this.clock.advance(1);
    if (outcome === undefined) throw new Error('the call did not end');
    if ('reason' in outcome) throw outcome.reason;
    return outcome.value;
  }

  private get parts() {
    if (this.running === undefined) throw new Error('no coordinator runs');
    return this.running;
  }
}

/** Longest duration of a call, virtual milliseconds; a longer call would never end. */
const MAX_CALL_MS = 30_000;

/** Scripted agents have no connection: their sessions end with their stream. */
const agentConnection = createContextKey<undefined>(undefined);

/** The connection of a caller with this address; undefined without an address. */
function callerAt(address: TestClusterOptions['callerAddress']) {
  const neverNotify = () => () => undefined;
  if (address === undefined) return undefined;
  return {
    remoteAddress: typeof address === 'string' ? address : address(),
    onPing: neverNotify,
    onClose: neverNotify,
  };
}
