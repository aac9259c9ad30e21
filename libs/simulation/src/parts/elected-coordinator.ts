import { createRouterTransport, type Transport } from '@connectrpc/connect';
import {
  createCoordinatorClient,
  createErrorInterceptor,
  toConnectError,
  type CoordinatorClient,
} from '@cloudless/api';
import { RoleRouter, createLeaderDirectory, type LeaderDirectory } from '@cloudless/api-server';
import type { Clock, Log, Random } from '@cloudless/base';
import {
  NotLeaderError,
  openClusterState,
  type ClusterState,
  type RoleChange,
} from '@cloudless/cluster-state';
import { freezeRecords } from '@cloudless/cluster-state/testing';
import type { Controllers } from '@cloudless/controllers';
import type { Revision, StateStore } from '@cloudless/state-store';
import { ReadySince } from '../checks/ready-since.js';
import type { InjectedBug } from '../sim-cluster/injected-bug.js';
import { openFollowerPart, type FollowerPart } from './follower-part.js';
import { startLeaderPart, validation, type LeaderPart } from './leader-part.js';
import { collectNodeFacts, type NodeFacts } from './node-facts.js';
import { PeerConnections, type Peer, type PeerConnectionsOptions } from './peer-connection.js';
import type { ServingCoordinator } from './serving-coordinator.js';
import { CONNECTION_HEADER, type SimConnection } from './sim-connection.js';
import type { SimLink } from './sim-link.js';
import type { SimProcess } from './sim-process.js';
import type { SimStore } from './sim-store.js';
import { delayItems } from './watch-delay.js';

export interface ElectedCoordinatorOptions extends Pick<
  PeerConnectionsOptions,
  'linkTo' | 'peerAt'
> {
  readonly id: string;
  /** URL at which agents, users and other coordinators reach this one. */
  readonly address: string;
  readonly process: SimProcess;
  readonly store: SimStore;
  /** The network between this coordinator and the store. */
  readonly storeLink: SimLink;
  readonly random: Random;
  readonly log: Log;
  readonly leaseMs: number;
  /** Time within which an agent that left may return, milliseconds. */
  readonly leaveGraceMs: number;
  /** Range of the virtual addresses of services. Undefined: the world has no services. */
  readonly serviceCidr: string | undefined;
  /** Returns the delay of the next batch of the view, milliseconds. */
  readonly watchDelayMs: () => number;
  /** Clock of the world, for delays. */
  readonly time: Clock;
  readonly onCommit: (revision: Revision, nodeFacts: NodeFacts) => void;
  readonly onFault: (rpc: string, reason: unknown) => void;
  readonly onRoleChange: (change: RoleChange, coordinator: ElectedCoordinator) => void;
  readonly injected: InjectedBug | undefined;
  /** False: the coordinator refuses all calls while it does not lead, and names the leader. */
  readonly forwards: boolean;
}

/** What exists during one leadership. */
interface Term {
  readonly state: ClusterState;
  readonly part: LeaderPart;
  readonly endReadySince: () => void;
}

/** Parts that a coordinator has from its start to its end, in every role. */
interface Routing {
  readonly router: RoleRouter;
  readonly leaders: LeaderDirectory;
  readonly peers: PeerConnections;
  readonly transport: Transport;
}

/**
 * One coordinator process of several: it follows the shared store, takes part in the election, and
 * has controllers and sessions while it leads. Otherwise it serves reads, and forwards other calls to
 * the leader over the simulated network.
 */
export class ElectedCoordinator implements ServingCoordinator, Peer {
  private readonly connections = new Map<string, SimConnection>();
  private connectionCount = 0;
  private readySince: ReadySince | undefined;
  private store: StateStore | undefined;
  private followed: ClusterState | undefined;
  private election: ReturnType<ClusterState['joinElection']> | undefined;
  private term: Term | undefined;
  private routing: Routing | undefined;
  private follower: FollowerPart | undefined;
  /** Epoch of the current leadership, from the moment at which its parts may commit. */
  private epoch: bigint | undefined;
  /** Controllers of the current leadership, from the moment at which they may commit. */
  private controllersOfTerm: Controllers | undefined;

  private constructor(private readonly options: ElectedCoordinatorOptions) {}

  /** Starts a coordinator process. Resolves when it follows the store, rejects when it cannot. */
  static async start(options: ElectedCoordinatorOptions): Promise<ElectedCoordinator> {
    const coordinator = new ElectedCoordinator(options);
    await coordinator.open();
    return coordinator;
  }

  get process(): SimProcess {
    return this.options.process;
  }

  /** The state and the controllers of the current leadership; undefined on a follower. */
  get leadership():
    { readonly state: ClusterState; readonly controllers: Controllers } | undefined {
    if (this.term === undefined || !this.term.state.isLeading) return undefined;
    const { state, part } = this.term;
    return { state, controllers: part.controllers };
  }

  get client(): CoordinatorClient {
    return createCoordinatorClient(this.transport);
  }

  get transport(): Transport {
    return this.routing?.transport ?? this.term?.part.transport ?? this.refusingTransport();
  }

  accept(create: (id: string) => SimConnection): SimConnection {
    const id = `${this.process.name}/${(this.connectionCount += 1)}`;
    const connection = create(id);
    this.connections.set(id, connection);
    connection.onClose(() => this.connections.delete(id));
    return connection;
  }

  /** Hands the leadership over, if this coordinator has it. */
  async stepDown(): Promise<void> {
    await this.election?.stepDown();
  }

  private async open(): Promise<void> {
    const { id, address, process, random, log, injected } = this.options;
    const { clock } = process;
    const reached = this.reachStore();
    const store = injected?.store?.(reached) ?? reached;
    this.store = store;
    const wrappedClock = injected?.coordinatorClock?.(clock) ?? clock;
    const state = await openClusterState({
      ...{ store, random, log, leadership: 'follow' },
      clock: wrappedClock,
      holder: process.name,
    });
    freezeRecords(state);
    this.followed = state;
    if (this.options.forwards) this.routing = this.openRouting(state);
    this.follow(state);
    state.onRoleChange((change) => this.changeRole(change, wrappedClock));
    this.election = state.joinElection({ address, coordinatorId: id });
  }

  private changeRole(change: RoleChange, clock: Clock): void {
    const { term } = this;
    if (change.role === 'follower' && this.options.injected?.keepsLeading === true)
      return this.options.onRoleChange(change, this);
    this.term = undefined;
    this.controllersOfTerm = undefined;
    this.epoch = undefined;
    if (change.role === 'leader') {
      this.term = this.lead(change.term, clock);
      this.routing?.router.serve({ role: 'leader', calls: this.term.part.api.calls });
      this.follower?.close();
      this.follower = undefined;
    } else if (this.followed !== undefined) this.follow(this.followed);
    this.options.onRoleChange(change, this);
    if (term !== undefined) void this.close(term);
  }

  /** Connects the handlers of both roles with the network, as the program does. */
  private openRouting(state: ClusterState): Routing {
    const { id, process, log, time, linkTo, peerAt, onFault } = this.options;
    const { clock } = process;
    const leaders = createLeaderDirectory(state);
    const peers = new PeerConnections({ time, process, linkTo, peerAt });
    const router = new RoleRouter({
      ...{ state, clock, log, leaders, coordinatorId: id, connect: peers.connect },
      getClient: () => undefined,
    });
    const transport = createRouterTransport(router.registerRoutes, {
      router: { interceptors: [createErrorInterceptor(onFault), validation] },
    });
    return { router, leaders, peers, transport };
  }

  private follow(state: ClusterState): void {
    const { routing, options, follower } = this;
    if (routing === undefined || follower !== undefined) return;
    const { id: coordinatorId, process, log, random } = options;
    const { leaders, peers } = routing;
    const { connect } = peers;
    const deps = { state, random, clock: process.clock, log, leaders, coordinatorId, connect };
    this.follower = openFollowerPart(deps);
    routing.router.serve(this.follower);
  }

  private lead(term: Extract<RoleChange, { role: 'leader' }>['term'], clock: Clock): Term {
    const { random, log, leaseMs, leaveGraceMs, serviceCidr, injected, onFault } = this.options;
    this.epoch = term.epoch;
    const ofTerm = (this.followed as ClusterState).inTerm(term);
    freezeRecords(ofTerm);
    const state = injected?.term?.(ofTerm, this.store as StateStore) ?? ofTerm;
    const readySince = new ReadySince(
      [...state.view().replicas()].map(({ value }) => value),
      clock.now(),
    );
    this.readySince = readySince;
    const endReadySince = state.subscribe((changes) => readySince.apply(changes, clock.now()));
    const part = startLeaderPart({
      ...{ state, clock, random, log, leaseMs, leaveGraceMs, serviceCidr, onFault },
      getConnection: ({ requestHeader }) =>
        this.connections.get(requestHeader.get(CONNECTION_HEADER) ?? ''),
      wrapState: injected?.state,
      wrapControllers: injected?.controllers,
      onControllers: (controllers) => (this.controllersOfTerm = controllers),
    });
    return { state, part, endReadySince };
  }

  /** Ends the sessions, then the control loops, as the program does. */
  private async close({ part, endReadySince }: Term): Promise<void> {
    endReadySince();
    await part.api.close();
    await part.controllers.close();
  }

  private refusingTransport(): Transport {
    const refuse = (): Promise<never> =>
      Promise.reject(toConnectError(new NotLeaderError(this.followed?.leader())));
    return { unary: refuse, stream: refuse };
  }

  private reachStore(): StateStore {
    const { store, process, storeLink, onCommit, time, watchDelayMs } = this.options;
    const client = store.connect({
      process,
      link: storeLink,
      nodeFacts: () => this.currentNodeFacts(),
      onCommit,
    });
    return {
      ...client,
      watch: (request) =>
        delayItems(client.watch(request)[Symbol.asyncIterator]() as AsyncIterableIterator<never>, {
          process,
          time,
          delayMs: watchDelayMs,
        }),
    };
  }

  private currentNodeFacts(): NodeFacts {
    const { followed, controllersOfTerm, epoch } = this;
    const facts = collectNodeFacts(
      this.process.clock,
      {
        ...(followed === undefined ? {} : { state: followed }),
        ...(controllersOfTerm === undefined ? {} : { controllers: controllersOfTerm }),
      },
      this.readySince,
    );
    return epoch === undefined ? facts : { ...facts, epoch };
  }
}
