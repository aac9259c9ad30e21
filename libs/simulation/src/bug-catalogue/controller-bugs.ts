import { timestampMs } from '@bufbuild/protobuf/wkt';
import { NodeStatus_Phase as NodePhase } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import type { Clock } from '@cloudless/base';
import {
  copyReplica,
  isLive,
  type ClusterState,
  type ClusterView,
  type Stored,
} from '@cloudless/cluster-state';
import type { Controllers } from '@cloudless/controllers';
import { limitsOf } from '../checks/rollout-facts.js';
import type { KnownBug } from './known-bug.js';

/** Bugs in controllers. */
export const CONTROLLER_BUGS: readonly KnownBug[] = [
  {
    name: 'running replicas stopped because a lagging server returned an older list',
    story:
      'After a leader change, a lagging server returned an older list of assignments. Clients treated the missing entries as ended and killed running work.',
    injection:
      'for 2 s after a coordinator restart the API does not find the records of replicas younger than 10 s',
    inject: () => ({
      state: (state, reader, clock) => (reader === 'api' ? hideYoungReplicas(state, clock) : state),
    }),
    plan: {
      nodes: 4,
      users: 2,
      turmoilMs: 9_000,
      pauseMs: [200, 900],
      weights: { killCoordinator: 1 },
      drift: false,
    },
    checker: 'checks/container-checker.ts',
    expectedViolation:
      /^15: node-\d+ was ordered to stop \S+, but its record wants it to run there/,
    seed: 2,
  },
  {
    name: 'too many replicas because a controller did not see its own writes',
    story:
      'A controller counted replicas in a cache that did not yet contain its own creations, and created the same replicas again in every pass.',
    injection: 'the controllers see a new replica only in their third read of the workload',
    inject: () => ({
      state: (state, reader) => (reader === 'controllers' ? hideOwnWrites(state) : state),
    }),
    plan: { nodes: 4, users: 2, turmoilMs: 9_000, pauseMs: [200, 900], weights: {}, drift: false },
    checker: 'checks/commit-checkers.ts',
    expectedViolation:
      /^\S+ has \d+ (live replicas, but its ceiling is|replicas of version \d+, but its step allows) \d+/,
    seed: 2,
  },
  {
    name: 'mass rescheduling after a control plane restart',
    story:
      'Leases were kept in memory, or expired while no server could renew them. After the control plane returned, every node counted as lost and all running work was moved.',
    injection: 'a node that has not reconnected since the coordinator start counts as lost',
    inject: () => ({ controllers: ignoreReconnectGrace }),
    plan: {
      nodes: 4,
      users: 2,
      turmoilMs: 16_000,
      pauseMs: [1_000, 2_500],
      weights: { killCoordinator: 1 },
      drift: false,
    },
    checker: 'checks/false-losses.ts',
    expectedViolation: /^17: \S+ was declared lost, but node-\d+ was healthy all the time/,
    seed: 3,
  },
  {
    name: 'min_available violated by a rollout and a drain with separate budgets',
    story:
      'A rollout and a drain may each stop some replicas. Each counted only its own stops, and together they took a service below min_available.',
    injection:
      'an additional drain stops as many ready replicas as the limits allow and counts only its own stops',
    inject: () => ({ controllers: addSeparateDrain }),
    plan: { nodes: 4, users: 3, turmoilMs: 12_000, pauseMs: [200, 900], weights: {}, drift: false },
    checker: 'checks/commit-checkers.ts',
    expectedViolation:
      /^\S+ has \d+ ready replicas after a voluntary stop, but min_available is \d+/,
    seed: 3,
  },
  {
    name: 'rollout blocked forever by one dead node',
    story:
      'A rollout waited for the old replica on a dead node to confirm its stop. No agent could confirm, so the rollout waited until an operator deleted the node.',
    injection: 'replicas of a lost node are never declared lost',
    inject: () => ({ controllers: neverDeclareLost }),
    plan: {
      nodes: 5,
      users: 2,
      turmoilMs: 9_000,
      pauseMs: [500, 2_000],
      weights: { machineVanishes: 1 },
      drift: false,
    },
    checker: 'checks/convergence.ts',
    expectedViolation: /^11: not converged with \S+ destroyed 60 s after all faults ended/,
    seed: 8,
  },
];

/** Time after a coordinator start in which its API lags, milliseconds. */
const LAG_MS = 2_000;
/** Replicas younger than this are missing while the API lags, milliseconds. */
const YOUNG_MS = 10_000;

function hideYoungReplicas(state: ClusterState, clock: Clock): ClusterState {
  const startedAt = clock.now();
  return overrideView(state, (view) => {
    if (state.epoch === 1n || clock.now() - startedAt > LAG_MS) return {};
    return {
      replica: (id) => {
        const found = view.replica(id);
        return found === undefined || ageOf(found, clock) < YOUNG_MS ? undefined : found;
      },
    };
  });
}

/** Number of reads that do not show a new replica. */
const HIDDEN_READS = 2;

function hideOwnWrites(state: ClusterState): ClusterState {
  const reads = new Map<string, number>();
  const isSeen = ({ value: { id } }: Stored<ReplicaRecord>): boolean => {
    const readCount = (reads.get(id) ?? 0) + 1;
    reads.set(id, readCount);
    return readCount > HIDDEN_READS;
  };
  return overrideView(state, (view) => ({
    replicasOf: (uid) => [...view.replicasOf(uid)].filter(isSeen),
  }));
}

export function ignoreReconnectGrace(
  controllers: Controllers,
  { state }: { readonly state: ClusterState },
): Controllers {
  const { nodes } = controllers;
  const status = nodes.status.bind(nodes);
  nodes.status = (nodeId) => {
    const found = status(nodeId);
    return found.phase === NodePhase.UNKNOWN ? { ...found, phase: NodePhase.LOST } : found;
  };
  // Wakes all reconcilers.
  for (const { value } of state.view().nodes()) nodes.confirmLost(value.id);
  return controllers;
}

function neverDeclareLost(controllers: Controllers): Controllers {
  const { nodes } = controllers;
  const reason = 'the end of what they held is not confirmed';
  nodes.checkReplacementBrake = () => ({
    kind: 'holding',
    sinceMs: 0,
    untilMs: Number.MAX_SAFE_INTEGER,
    silentCount: 1,
    nodeCount: 1,
    reason,
  });
  return controllers;
}

function addSeparateDrain(
  controllers: Controllers,
  { state }: { readonly state: ClusterState },
): Controllers {
  const evicted = new Set<string>();
  const evict = async (replica: Stored<ReplicaRecord>): Promise<void> => {
    const { value } = replica;
    const stopped = copyReplica(value, {
      desiredRunning: false,
      stopReason: 'drained',
      orderRevision: state.view().revision,
    });
    evicted.add(value.id);
    await state
      .commit(state.transaction().updateReplica(replica, stopped))
      .catch(() => evicted.delete(value.id));
  };
  state.subscribe(() => {
    const view = state.view();
    for (const { value: workload } of view.workloads()) {
      const { want, minAvailable } = limitsOf(view, workload);
      const replicas = [...view.replicasOf(workload.uid)];
      const leaving = replicas.filter(({ value }) => evicted.has(value.id) && isLive(value)).length;
      const evictable = replicas.filter(
        ({ value }) =>
          value.ready &&
          value.desiredRunning &&
          isLive(value) &&
          view.node(value.nodeId)?.value.draining === true,
      );
      for (const replica of evictable.slice(0, Math.max(0, want - minAvailable - leaving)))
        void evict(replica);
    }
  });
  return controllers;
}

/** Returns a state with some methods of its view replaced. */
export function overrideView(
  state: ClusterState,
  override: (view: ClusterView) => Partial<ClusterView>,
): ClusterState {
  return Object.create(state, {
    view: {
      value: () =>
        Object.assign(Object.create(state.view()), override(state.view())) as ClusterView,
    },
  }) as ClusterState;
}

/** Returns the milliseconds since the creation of a replica; infinity when the time is unknown. */
function ageOf({ value: { createdAt } }: Stored<ReplicaRecord>, clock: Clock): number {
  return createdAt === undefined
    ? Number.POSITIVE_INFINITY
    : clock.wallTime() - timestampMs(createdAt);
}
