import {
  LivenessMirror,
  createReadServer,
  type LivenessMirrorDeps,
  type RolePart,
} from '@cloudless/api-server';
import type { Random } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import { openReadModel } from '@cloudless/controllers';

export interface FollowerPartOptions extends LivenessMirrorDeps {
  readonly state: ClusterState;
  readonly random: Random;
}

/** Parts of a coordinator that follows: the copy of the live status of nodes, and the reads. */
export interface FollowerPart extends RolePart {
  close(): void;
}

/** Opens the follower part of a coordinator, as the program does. */
export function openFollowerPart({ state, random, ...deps }: FollowerPartOptions): FollowerPart {
  const { clock, log, coordinatorId } = deps;
  const mirror = new LivenessMirror(deps);
  const model = openReadModel({ state, nodes: mirror, clock });
  const { presenter, placements } = model;
  const reads = createReadServer({
    ...{ state, clock, random, log, coordinatorId, nodes: mirror, presenter, placements },
    version: 'simulated',
  });
  return {
    role: 'follower',
    calls: reads.calls,
    close: () => {
      reads.close();
      model.close();
      mirror.close();
    },
  };
}
