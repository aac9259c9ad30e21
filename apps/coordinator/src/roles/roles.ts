import type { ConnectRouter } from '@connectrpc/connect';
import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { createLeaderDirectory } from '@cloudless/api-server';
import { errorFields } from '@cloudless/base';
import { CoordinatorRecordSchema } from '@cloudless/api/store';
import { CoordinatorPresence, type ClusterState } from '@cloudless/cluster-state';
import type { StateStore } from '@cloudless/state-store';
import type { CoordinatorMachine } from '../coordinator-machine.js';
import { openLeaderPart, type LeaderPart, type LeaderPartDeps } from '../leader-part.js';
import { openFollowerPart } from './follower-part.js';
import type { ElectionMembership } from './election-membership.js';
import type { LeaderConnections } from './leader-connections.js';
import { RoleSwitch } from './role-switch.js';

/** The handlers of the calls of a coordinator, as leader and as follower. */
export interface Roles {
  readonly registerRoutes: (router: ConnectRouter) => void;
  readonly nodes: { readonly aliveCount: number };
  /** Returns warnings for operators, one sentence each. */
  listWarnings(): readonly string[];
  /**
   * Runs `work` now when this coordinator leads, or else at the start of each of its leaderships,
   * when a failure is logged.
   * @param work - Gets the state that commits only in this leadership.
   */
  whenLeading(work: (state: ClusterState) => Promise<void>): Promise<void>;
  /**
   * Leaves the election for good: this coordinator leads never again. Before, hands the leadership
   * over when this coordinator leads and another one can.
   */
  leave(): Promise<void>;
  close(): Promise<void>;
}

/** The roles of a coordinator that leads from its start to its end. */
export function createFixedRole(leader: LeaderPart): Roles {
  return {
    registerRoutes: leader.api.registerRoutes,
    nodes: leader.nodes,
    listWarnings: () => leader.listWarnings(),
    whenLeading: (work) => work(leader.state),
    leave: async () => undefined,
    close: () => leader.close(),
  };
}

/** The roles of a coordinator that leads when it is elected, and follows at other times. */
export function createElectedRoles({
  membership,
  connections,
  ...deps
}: LeaderPartDeps & {
  readonly membership: ElectionMembership;
  /** Closed together with the roles. */
  readonly connections: LeaderConnections;
}): Roles {
  const { config, machine, state, access } = deps;
  const { name: coordinatorId } = config;
  const works: ((state: ClusterState) => Promise<void>)[] = [];
  const log = machine.log.child({ component: 'roles' });
  const runLogged = (work: (state: ClusterState) => Promise<void>, leading: ClusterState): void =>
    void work(leading).catch((reason: unknown) =>
      log.warn('work at the start of the leadership failed', errorFields(reason)),
    );
  const leaders = createLeaderDirectory(state);
  const roles: RoleSwitch = new RoleSwitch({
    ...{ machine, state, leaders, coordinatorId, access, connections, term: membership.term },
    election: membership,
    openLeader: (leading) => {
      const part = openLeaderPart({
        ...deps,
        state: leading,
        // The call that asks for the hand-over runs until its end.
        handOver: () => roles.handOver(1),
      });
      for (const work of works) runLogged(work, leading);
      return part;
    },
    openFollower: () => {
      const { connect } = connections;
      const { secretKeys } = deps;
      return openFollowerPart({
        ...{ machine, state, coordinatorId, access, secretKeys, leaders, connect },
      });
    },
  });
  return {
    registerRoutes: roles.router.registerRoutes,
    nodes: {
      get aliveCount() {
        return roles.part?.nodes.aliveCount ?? 0;
      },
    },
    listWarnings: () => [
      ...(roles.knownLeader === undefined
        ? ['no coordinator leads at the moment: changes wait or are refused']
        : []),
      ...(roles.part?.listWarnings() ?? []),
    ],
    whenLeading: async (work) => {
      works.push(work);
      const { leaderState } = roles;
      if (leaderState !== undefined) runLogged(work, leaderState);
    },
    leave: async () => {
      // A coordinator that closes must not become the successor of another one.
      if (!state.isLeading) return membership.leave();
      const successor = await roles.handOver();
      await membership.leave();
      if (successor !== undefined)
        log.info('leadership handed over', { leader: successor.coordinatorId });
    },
    close: async () => {
      await roles.close();
      connections.close();
    },
  };
}

/**
 * Resolves when the record of the certificate authority exists, or when this coordinator leads and
 * therefore creates the record.
 * @param join - Called in a cluster without the record, in which this coordinator has to take part in
 *   the election before it serves.
 * @throws the error of `join`, and the reason when the state ends.
 */
export async function waitForAuthority(
  state: ClusterState,
  join: () => Promise<void>,
): Promise<void> {
  const hasAuthority = (): boolean => state.view().certificateAuthority() !== undefined;
  if (!hasAuthority()) await join();
  await new Promise<void>((resolve, reject) => {
    const isReady = (): boolean => hasAuthority() || state.isLeading;
    const look = (): void => {
      if (isReady()) finish(resolve);
    };
    const unsubscribes: (() => void)[] = [];
    const finish = (end: () => void): void => {
      for (const unsubscribe of unsubscribes) unsubscribe();
      end();
    };
    unsubscribes.push(state.subscribe(look), state.onRoleChange(look));
    unsubscribes.push(state.onEnd((reason) => finish(() => reject(reason))));
    look();
  });
}

/** Shows in the store that this coordinator runs. Close the result at its end. */
export function startPresence(
  store: StateStore,
  { clock, random, log, version }: CoordinatorMachine,
  facts: { readonly id: string; readonly address: string; readonly holder: string },
): CoordinatorPresence {
  const startedAt = timestampFromMs(clock.wallTime());
  const record = create(CoordinatorRecordSchema, { ...facts, version, startedAt });
  return new CoordinatorPresence({
    ...{ store, clock, random, record },
    log: log.child({ component: 'presence' }),
  });
}
