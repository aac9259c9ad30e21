import { create } from '@bufbuild/protobuf';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  ReplicaStatusSchema,
  ReplicaStatus_Phase,
  RolloutFailureSchema,
  RolloutStatusSchema,
  RolloutStatus_Phase,
  VersionInfoSchema,
  WatchWorkloadsResponse_Kind as Kind,
  WorkloadStatus_Phase,
} from '@cloudless/api';
import type { ReplicaStatus, Workload } from '@cloudless/api';
import { NOW_MS, aWorkload } from './run-cli.js';
import type { FakeCoordinator } from './run-cli.js';

/**
 * Creates `default/web` with four ready replicas during a rollout from version 1 to version 2.
 * @param rollout - Fields of the rollout status that differ.
 * @param counts - `updated`: replicas of version 2, by default 1. `old`: replicas of version 1, by
 *   default the rest of four.
 */
export function aRollout(
  rollout: MessageInitShape<typeof RolloutStatusSchema> = {},
  { updated = 1, old = 4 - updated }: { readonly updated?: number; readonly old?: number } = {},
): Workload {
  const replicas = [...Array(old).fill(1), ...Array(updated).fill(2)].map((version: number, slot) =>
    create(ReplicaStatusSchema, {
      id: `00000000000000aa-${slot + 1}`,
      slot,
      version,
      phase: ReplicaStatus_Phase.RUNNING,
      ready: true,
      nodeId: 'node1',
      createdAt: timestampFromMs(NOW_MS - 60_000),
    }),
  );
  return aWorkload({
    status: {
      phase: WorkloadStatus_Phase.UPDATING,
      version: 2,
      activeVersion: 1,
      desiredReplicas: 4,
      totalReplicas: replicas.length,
      readyReplicas: replicas.length,
      updatedReplicas: updated,
      minAvailable: 3,
      replicas,
      versions: [
        create(VersionInfoSchema, {
          version: 1,
          active: true,
          summary: 'web:1',
          createdAt: timestampFromMs(NOW_MS - 7_200_000),
        }),
        create(VersionInfoSchema, {
          version: 2,
          summary: 'web:2',
          createdAt: timestampFromMs(NOW_MS - 60_000),
        }),
      ],
      rollout: create(RolloutStatusSchema, {
        phase: RolloutStatus_Phase.IN_PROGRESS,
        version: 2,
        fromVersion: 1,
        startedAt: timestampFromMs(NOW_MS - 60_000),
        ...rollout,
      }),
    },
  });
}

/** The failure of version 2: a new replica failed three times. */
export const FAILURE = create(RolloutFailureSchema, {
  reason: 'new replicas failed 3 times',
  replicaId: '00000000000000aa-9',
  nodeId: 'node2',
  exitCode: 1,
  lastLines: ['starting', 'no such file: config.json'],
  version: 2,
});

/**
 * One item of a scripted watch: a state of the workload, the SYNCED item, the deletion of the
 * workload (optionally with replicas that may still run), or a broken connection.
 */
export type WatchStep =
  Workload | 'synced' | 'gone' | { readonly gone: readonly ReplicaStatus[] } | 'lost';

/**
 * Creates a watch that sends the items, then stays silent until the call ends. A call after `lost`
 * continues with the next item.
 */
export function createWatch(
  ...states: WatchStep[]
): NonNullable<FakeCoordinator['watchWorkloads']> {
  const remaining = [...states];
  return async function* (_request, { signal }) {
    for (let state = remaining.shift(); state !== undefined; state = remaining.shift()) {
      if (state === 'lost') throw new ConnectError('no leader', Code.Unavailable);
      if (state === 'synced') yield { kind: Kind.SYNCED };
      else if (state === 'gone') yield { kind: Kind.DELETED, workload: aWorkload() };
      else if ('gone' in state)
        yield {
          kind: Kind.DELETED,
          workload: aWorkload({ status: { replicas: [...state.gone] } }),
        };
      else yield { kind: Kind.PUT, workload: state };
    }
    await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
  };
}
