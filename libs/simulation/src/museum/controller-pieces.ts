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
import type { MuseumPiece } from './museum-piece.js';

/** Bugs of those who decide. */
export const CONTROLLER_PIECES: readonly MuseumPiece[] = [
  {
    name: "lost assignments because a lagging server's older list made clients kill live work",
    story:
      'After a change of leaders a server that lagged behind gave clients an older list of their assignments. They took what was missing in it as ended, and killed live work.',
    plant:
      'for 2 s after a restart of the coordinator the API does not find the records of replicas that are younger than 10 s',
    planted: () => ({
      state: (state, reader, clock) => (reader === 'api' ? withoutTheYoung(state, clock) : state),
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
    found: /^15: node-\d+ was ordered to stop \S+, and its record says that it is to run there/,
    seed: 2,
  },
  {
    name: 'too many replicas because a controller forgot its own writes',
    story:
      'A controller counted replicas in a cache that did not show yet what it had just created, and created them again: one pass after the other.',
    plant: 'of a workload the controllers see a replica only when they look for the third time',
    planted: () => ({
      state: (state, reader) => (reader === 'controllers' ? withoutOwnWrites(state) : state),
    }),
    plan: { nodes: 4, users: 2, turmoilMs: 9_000, pauseMs: [200, 900], weights: {}, drift: false },
    checker: 'checks/commit-checkers.ts',
    found: /^\S+ has \d+ live replicas, \d+ are the most it may have/,
    seed: 2,
  },
  {
    name: 'mass rescheduling when the control plane restarts',
    story:
      'Leases lived in memory or ran on while nobody could renew them. When the control plane came back every node had expired, and everything that ran was moved.',
    plant: 'a node that has not come back yet since the start counts as lost',
    planted: () => ({ controllers: withoutGrace }),
    plan: {
      nodes: 4,
      users: 2,
      turmoilMs: 16_000,
      pauseMs: [1_000, 2_500],
      weights: { killCoordinator: 1 },
      drift: false,
    },
    checker: 'checks/false-losses.ts',
    found: /^17: \S+ was given up, and node-\d+ has been well all the time/,
    seed: 3,
  },
  {
    name: 'minAvailable broken by rollout and drain, each within its own budget',
    story:
      'A rollout may take some replicas down, and so may a drain. Each kept to the limit, counted what it had taken down itself, and together they took a service below its floor.',
    plant:
      'beside the controllers a drain stops as many ready replicas as the limits allow, and counts only those that it has stopped',
    planted: () => ({ controllers: withDrainOfItsOwn }),
    plan: { nodes: 4, users: 3, turmoilMs: 12_000, pauseMs: [200, 900], weights: {}, drift: false },
    checker: 'checks/commit-checkers.ts',
    found: /^\S+ was taken to \d+ ready by choice, \d+ must stay/,
    seed: 3,
  },
  {
    name: 'rollouts stuck for ever on one dead node',
    story:
      'A rollout waited until the old replica on a dead node confirmed its end. Nobody was there to confirm, and it waited until somebody deleted the node by hand.',
    plant: 'what a lost node held is never given up',
    planted: () => ({ controllers: withoutGivingUp }),
    plan: {
      nodes: 5,
      users: 2,
      turmoilMs: 9_000,
      pauseMs: [500, 2_000],
      weights: { machineVanishes: 1 },
      drift: false,
    },
    checker: 'checks/unconverged.ts',
    found: /^11: not converged with \S+ destroyed 60 s after the healing/,
    seed: 8,
  },
];

const LAG_MS = 2_000;
const YOUNG_MS = 10_000;

function withoutTheYoung(state: ClusterState, clock: Clock): ClusterState {
  const startedAt = clock.now();
  return withView(state, (view) => {
    if (state.epoch === 1n || clock.now() - startedAt > LAG_MS) return {};
    return {
      replica: (id) => {
        const found = view.replica(id);
        return found === undefined || ageOf(found, clock) < YOUNG_MS ? undefined : found;
      },
    };
  });
}

/** Looks at a new replica that do not show it. */
const BLIND_LOOKS = 2;

function withoutOwnWrites(state: ClusterState): ClusterState {
  const looks = new Map<string, number>();
  const isSeen = ({ value: { id } }: Stored<ReplicaRecord>): boolean => {
    const look = (looks.get(id) ?? 0) + 1;
    looks.set(id, look);
    return look > BLIND_LOOKS;
  };
  return withView(state, (view) => ({
    replicasOf: (uid) => [...view.replicasOf(uid)].filter(isSeen),
  }));
}

function withoutGrace(
  controllers: Controllers,
  { state }: { readonly state: ClusterState },
): Controllers {
  const { nodes } = controllers;
  const status = nodes.status.bind(nodes);
  nodes.status = (nodeId) => {
    const found = status(nodeId);
    return found.phase === NodePhase.UNKNOWN ? { ...found, phase: NodePhase.LOST } : found;
  };
  // tells everybody to look again
  for (const { value } of state.view().nodes()) nodes.confirmLost(value.id);
  return controllers;
}

function withoutGivingUp(controllers: Controllers): Controllers {
  const { nodes } = controllers;
  const reason = 'the end of what they held is not confirmed';
  nodes.replacement = () => ({
    kind: 'holding',
    sinceMs: 0,
    untilMs: Number.MAX_SAFE_INTEGER,
    silent: 1,
    of: 1,
    reason,
  });
  return controllers;
}

function withDrainOfItsOwn(
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
      const due = replicas.filter(
        ({ value }) =>
          value.ready &&
          value.desiredRunning &&
          isLive(value) &&
          view.node(value.nodeId)?.value.draining === true,
      );
      for (const replica of due.slice(0, Math.max(0, want - minAvailable - leaving)))
        void evict(replica);
    }
  });
  return controllers;
}

/** A state whose view differs in some answers. */
function withView(
  state: ClusterState,
  differ: (view: ClusterView) => Partial<ClusterView>,
): ClusterState {
  return Object.create(state, {
    view: {
      value: () => Object.assign(Object.create(state.view()), differ(state.view())) as ClusterView,
    },
  }) as ClusterState;
}

/** Since its creation, milliseconds. */
function ageOf({ value: { createdAt } }: Stored<ReplicaRecord>, clock: Clock): number {
  return createdAt === undefined
    ? Number.POSITIVE_INFINITY
    : clock.wallTime() - timestampMs(createdAt);
}
