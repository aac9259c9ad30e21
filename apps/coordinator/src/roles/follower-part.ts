import {
  LivenessMirror,
  createReadServer,
  type LivenessMirrorDeps,
  type RolePart,
  type SecretKeys,
} from '@cloudless/api-server';
import type { ClusterState } from '@cloudless/cluster-state';
import { openReadModel } from '@cloudless/controllers';
import type { CoordinatorMachine } from '../coordinator-machine.js';
import type { CallAuthentication } from '../identity/call-authentication.js';

/** The dependencies of a follower part. */
export interface FollowerPartDeps extends Pick<LivenessMirrorDeps, 'leaders' | 'connect'> {
  readonly machine: CoordinatorMachine;
  readonly state: ClusterState;
  /** Id of this coordinator. */
  readonly coordinatorId: string;
  readonly secretKeys: SecretKeys;
  /** Absent without TLS. */
  readonly access?: CallAuthentication | undefined;
}

/** The parts of a follower: a copy of the live status of nodes, and the handlers of reads. */
export interface FollowerPart extends RolePart {
  readonly nodes: { readonly aliveCount: number };
  /** Returns warnings for operators, one sentence each. */
  listWarnings(): readonly string[];
  close(): void;
}

/** Opens the follower part of a coordinator. Close it when the coordinator becomes the leader. */
export function openFollowerPart(deps: FollowerPartDeps): FollowerPart {
  const { machine, state, access, coordinatorId, leaders, connect } = deps;
  const { clock, random, version } = machine;
  const log = machine.log.child({ component: 'follower' });
  const mirror = new LivenessMirror({ clock, log, leaders, coordinatorId, connect });
  const model = openReadModel({ state, nodes: mirror, clock });
  const { presenter, placements } = model;
  const reads = createReadServer({
    ...{ state, clock, random, log, version, coordinatorId, nodes: mirror, presenter, placements },
    secretKeys: deps.secretKeys,
    ...access?.apiDeps,
  });
  return {
    role: 'follower',
    calls: reads.calls,
    nodes: {
      get aliveCount() {
        return [...state.view().nodes()].filter(({ value }) => mirror.isAlive(value.id)).length;
      },
    },
    listWarnings: () =>
      mirror.isFresh
        ? []
        : ['this coordinator does not reach the leader: the status of nodes is the last known'],
    close: () => {
      reads.close();
      model.close();
      mirror.close();
    },
  };
}
