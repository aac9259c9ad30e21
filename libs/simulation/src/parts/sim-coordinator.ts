import type { Transport } from '@connectrpc/connect';
import { createCoordinatorClient, type CoordinatorClient } from '@cloudless/api';
import type { Clock, Log, Random } from '@cloudless/base';
import { openClusterState, type ClusterState } from '@cloudless/cluster-state';
import { freezeRecords } from '@cloudless/cluster-state/testing';
import type { Controllers } from '@cloudless/controllers';
import { createEngineStore, type Revision, type StateStore } from '@cloudless/state-store';
import { ReadySince } from '../checks/ready-since.js';
import type { InjectedBug } from '../sim-cluster/injected-bug.js';
import { startLeaderPart } from './leader-part.js';
import { collectNodeFacts, type NodeFacts } from './node-facts.js';
import { CONNECTION_HEADER, type SimConnection } from './sim-connection.js';
import type { SimDisk } from './sim-disk.js';
import type { SimProcess } from './sim-process.js';
import { delayItems } from './watch-delay.js';

export interface CoordinatorOptions {
  readonly process: SimProcess;
  readonly disk: SimDisk;
  readonly random: Random;
  readonly log: Log;
  readonly leaseMs: number;
  /** Time within which an agent that left may return, milliseconds. */
  readonly leaveGraceMs: number;
  /** Range of the virtual addresses of services. Undefined: the world has no services. */
  readonly serviceCidr: string | undefined;
  /**
   * Returns how long the view waits before it applies the next batch of changes, milliseconds; 0:
   * no delay.
   */
  readonly watchDelayMs: () => number;
  /** Clock of the world, for delays. */
  readonly time: Clock;
  readonly onCommit: (revision: Revision, nodeFacts: NodeFacts) => void;
  /** Called when an RPC fails with an internal error. */
  readonly onFault: (rpc: string, reason: unknown) => void;
  /** The `wrap` options replace a part of the coordinator, to inject a bug. */
  readonly wrapStore?: ((store: StateStore) => StateStore) | undefined;
  readonly wrapClock?: ((clock: Clock) => Clock) | undefined;
  readonly wrapState?: InjectedBug['state'];
  readonly wrapControllers?: InjectedBug['controllers'];
}

/**
 * One coordinator process: the real state, controllers and API on a disk that outlives the process.
 */
export class SimCoordinator {
  /** The store as this process opened it, for watchers of the world. */
  readonly engine: StateStore;
  private readonly connections = new Map<string, SimConnection>();
  private connectionCount = 0;
  private readySince: ReadySince | undefined;
  /** Filled during start, because the controllers may commit before their start has returned. */
  private readonly parts: {
    state?: ClusterState;
    controllers?: Controllers;
    transport?: Transport;
  } = {};

  private constructor(private readonly options: CoordinatorOptions) {
    const { process, disk } = options;
    this.engine = createEngineStore({
      storage: disk.openFor(process),
      clock: process.clock,
      historyLimit: disk.historyLimit,
      log: options.log,
    });
  }

  /** Starts a coordinator process. Resolves when it serves, rejects when the start failed. */
  static async start(options: CoordinatorOptions): Promise<SimCoordinator> {
    const coordinator = new SimCoordinator(options);
    await coordinator.open();
    return coordinator;
  }

  get process(): SimProcess {
    return this.options.process;
  }

  get state(): ClusterState {
    return requireStarted(this.parts.state);
  }

  get controllers(): Controllers {
    return requireStarted(this.parts.controllers);
  }

  get transport(): Transport {
    return requireStarted(this.parts.transport);
  }

  get client(): CoordinatorClient {
    return createCoordinatorClient(this.transport);
  }

  /** Creates a connection with an id by which calls over it are found. */
  accept(create: (id: string) => SimConnection): SimConnection {
    const id = String((this.connectionCount += 1));
    const connection = create(id);
    this.connections.set(id, connection);
    connection.onClose(() => this.connections.delete(id));
    return connection;
  }

  private async open(): Promise<void> {
    const {
      process,
      random,
      log,
      leaseMs,
      leaveGraceMs,
      serviceCidr,
      wrapStore,
      wrapClock,
      wrapState,
      wrapControllers,
      onFault,
    } = this.options;
    const clock = wrapClock === undefined ? process.clock : wrapClock(process.clock);
    const guarded = this.guardedStore();
    const store = wrapStore === undefined ? guarded : wrapStore(guarded);
    const state = await openClusterState({ store, clock, random, log, holder: process.name });
    freezeRecords(state);
    this.parts.state = state;
    const readySince = new ReadySince(
      [...state.view().replicas()].map(({ value }) => value),
      process.clock.now(),
    );
    this.readySince = readySince;
    state.subscribe((changes) => readySince.apply(changes, process.clock.now()));
    const { transport } = startLeaderPart({
      ...{ state, clock, random, log, leaseMs, leaveGraceMs, serviceCidr, onFault },
      ...{ wrapState, wrapControllers },
      getConnection: ({ requestHeader }) =>
        this.connections.get(requestHeader.get(CONNECTION_HEADER) ?? ''),
      onControllers: (controllers) => (this.parts.controllers = controllers),
    });
    this.parts.transport = transport;
  }

  /** Wraps the store: the process may die at every call, and commits report the node facts. */
  private guardedStore(): StateStore {
    const { process, onCommit, time, watchDelayMs } = this.options;
    const { engine } = this;
    return {
      get: (key) => process.call(() => engine.get(key)),
      range: (request) => process.call(() => engine.range(request)),
      revision: () => process.call(() => engine.revision()),
      txn: (compares, operations) => {
        const nodeFacts = this.currentNodeFacts();
        return process.call(async () => {
          const committed = await engine.txn(compares, operations);
          onCommit(committed.revision, nodeFacts);
          return committed;
        });
      },
      watch: (request) =>
        delayItems(process.iterate(engine.watch(request)), {
          process,
          time,
          delayMs: watchDelayMs,
        }),
      grantLease: (ttlMs) => process.call(() => engine.grantLease(ttlMs)),
      keepAlive: (lease) => process.call(() => engine.keepAlive(lease)),
      revokeLease: (lease) => process.call(() => engine.revokeLease(lease)),
      close: () => process.call(() => engine.close()),
    };
  }

  private currentNodeFacts(): NodeFacts {
    const { clock } = this.options.process;
    return collectNodeFacts(clock, this.parts, this.readySince);
  }
}

function requireStarted<Part>(part: Part | undefined): Part {
  if (part === undefined) throw new Error('the coordinator has not started');
  return part;
}
