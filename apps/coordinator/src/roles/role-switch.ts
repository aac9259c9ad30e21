import { RoleRouter, type KnownLeader, type LeaderDirectory } from '@cloudless/api-server';
import { errorFields, sleep, type Clock, type Log } from '@cloudless/base';
import { findNextInLine, type ClusterState } from '@cloudless/cluster-state';
import { connectionKey } from '@cloudless/rpc-node/server';
import type { CoordinatorMachine } from '../coordinator-machine.js';
import type { CallAuthentication } from '../identity/call-authentication.js';
import type { LeaderPart } from '../leader-part.js';
import type { FollowerPart } from './follower-part.js';
import type { LeaderConnections } from './leader-connections.js';

type Election = ReturnType<ClusterState['joinElection']>;

export interface RoleSwitchDeps {
  readonly machine: Pick<CoordinatorMachine, 'clock' | 'log'>;
  /** Opened with `leadership: 'follow'`. */
  readonly state: ClusterState;
  readonly election: Pick<Election, 'stepDown'>;
  readonly leaders: LeaderDirectory;
  /** The leadership of this coordinator at the start; undefined when it follows. */
  readonly term: Parameters<ClusterState['inTerm']>[0] | undefined;
  /** Id of this coordinator. */
  readonly coordinatorId: string;
  /** Absent without TLS. */
  readonly access?: CallAuthentication | undefined;
  readonly connections: Pick<LeaderConnections, 'connect'>;
  /**
   * Opens the leader part of a term. The coordinator steps down when this fails.
   * @param state - The state bound to the term.
   */
  readonly openLeader: (state: ClusterState) => LeaderPart;
  readonly openFollower: () => FollowerPart;
}

/** Time that running calls have to end before a hand-over, milliseconds. */
const DRAIN_MS = 150;
/** Time for which a coordinator that handed over waits for its successor, milliseconds. */
const SUCCESSOR_MS = 1_000;

/**
 * Opens and closes the parts of a coordinator as its role changes, and lets the router serve the
 * calls of the current role.
 */
export class RoleSwitch {
  readonly router: RoleRouter;
  private readonly unsubscribe: () => void;
  private readonly clock: Clock;
  private readonly log: Log;
  private leader: LeaderPart | undefined;
  private follower: FollowerPart | undefined;
  private closing: Promise<void> = Promise.resolve();
  private isClosed = false;
  /** True from the end of a term that is handed over until its lease was revoked. */
  private isHandingOver = false;

  constructor(private readonly deps: RoleSwitchDeps) {
    const { machine, state, access, coordinatorId, connections, leaders } = deps;
    this.clock = machine.clock;
    this.log = machine.log.child({ component: 'roles' });
    this.router = new RoleRouter({
      ...{ state, clock: this.clock, log: this.log, coordinatorId, leaders },
      ...access?.apiDeps,
      connect: connections.connect,
      getClient: (context) => {
        if (access === undefined) return undefined;
        const { remoteAddress = '' } = context.values.get(connectionKey) ?? {};
        return { remoteAddress, chainDer: access.getChain(context) };
      },
    });
    this.unsubscribe = state.onRoleChange((change) => {
      if (change.role === 'leader') this.lead(state.inTerm(change.term));
      else if (!this.isHandingOver) this.followLeader();
    });
    if (deps.term === undefined) this.followLeader();
    else this.lead(state.inTerm(deps.term));
  }

  /** The part of the current role. */
  get part(): LeaderPart | FollowerPart | undefined {
    return this.leader ?? this.follower;
  }

  /** The state of the leadership; undefined while this coordinator follows. */
  get leaderState(): ClusterState | undefined {
    return this.leader?.state;
  }

  /** The leader that this coordinator knows, also itself. */
  get knownLeader(): KnownLeader | undefined {
    return this.deps.leaders.leader();
  }

  /**
   * Hands the leadership over: starts no changes any more, lets those that run end, and revokes the
   * lease. Held calls are forwarded to the successor.
   * @param except - Number of running calls that wait for the hand-over themselves.
   * @returns The successor; undefined when this coordinator did not lead, or none has appeared.
   */
  async handOver(except = 0): Promise<KnownLeader | undefined> {
    const { state, election, leaders } = this.deps;
    if (!state.isLeading) return undefined;
    const { epoch } = state;
    void this.connectToNext();
    await this.router.drain(DRAIN_MS, except);
    // The end of the term must not wait for the follower part, which reads the whole state.
    this.isHandingOver = true;
    try {
      await election.stepDown();
    } finally {
      this.isHandingOver = false;
      if (!state.isLeading) this.followLeader();
    }
    const giveUpAtMs = this.clock.now() + SUCCESSOR_MS;
    for (;;) {
      const successor = leaders.leader();
      if (successor !== undefined && successor.epoch > epoch) return successor;
      if (this.clock.now() >= giveUpAtMs) return undefined;
      await sleep(this.clock, 10);
    }
  }

  /** Connects to the successor in advance, so that held calls do not wait for a TLS handshake. */
  private async connectToNext(): Promise<void> {
    const { state, coordinatorId, connections } = this.deps;
    const next = findNextInLine(state.view(), coordinatorId);
    if (next === undefined) return;
    const leader = { epoch: state.epoch, address: next.address, coordinatorId: next.id };
    try {
      await connections.connect(leader, new AbortController().signal);
    } catch (reason) {
      this.log.debug('successor not reached yet', {
        address: next.address,
        ...errorFields(reason),
      });
    }
  }

  async close(): Promise<void> {
    this.isClosed = true;
    this.unsubscribe();
    this.router.close();
    this.follower?.close();
    this.closeLeader();
    await this.closing;
  }

  private lead(state: ClusterState): void {
    if (this.isClosed) return;
    this.closeLeader();
    const { follower } = this;
    try {
      this.leader = this.deps.openLeader(state);
    } catch (reason) {
      this.log.error('leader part could not be opened, stepping down', errorFields(reason));
      // Without a leader part no change would be served until the end of the term.
      void this.deps.election.stepDown();
    }
    // The term may have ended meanwhile, for example because this process was stopped for a while.
    // The end was reported then, while the follower part was still in place.
    if (this.leader === undefined || !state.isLeading) return this.followLeader();
    this.follower = undefined;
    this.router.serve({ role: 'leader', calls: this.leader.api.calls });
    follower?.close();
  }

  private followLeader(): void {
    if (this.isClosed) return;
    if (this.follower === undefined) {
      this.follower = this.openFollower();
      this.router.serve(this.follower);
    }
    this.closeLeader();
  }

  /** @returns Undefined after a failure: all calls then go to the leader, also reads. */
  private openFollower(): FollowerPart | undefined {
    try {
      return this.deps.openFollower();
    } catch (reason) {
      this.log.error('follower part could not be opened', errorFields(reason));
      return undefined;
    }
  }

  private closeLeader(): void {
    const { leader } = this;
    this.leader = undefined;
    if (leader === undefined) return;
    const closed = leader
      .close()
      .catch((reason: unknown) =>
        this.log.error('leader part not closed in good order', errorFields(reason)),
      );
    this.closing = this.closing.then(() => closed);
  }
}
