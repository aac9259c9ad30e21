import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  ReplicaStatus_Phase as Phase,
  RestartPolicy_Policy as Restart,
  Rollout_Strategy as Strategy,
  RolloutStatus_Phase as RolloutPhase,
  WorkloadSpecSchema,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  ReplicaRecordSchema,
  RolloutRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
} from '@cloudless/api/store';
import { createCluster } from '@cloudless/scheduler';
import { movesStopFirst, toRolloutInput } from './rollout-input.js';

/**
 * Returns the available replicas that the planner gets for version 3 beside version 1, of which one
 * replica runs and one has finished.
 */
function findAvailable(control: MessageInitShape<typeof ControlRecordSchema>): readonly string[] {
  const value = create(ControlRecordSchema, { uid: 'w', activeVersion: 1, ...control });
  const view = {
    node: () => undefined,
    version: (_uid: string, version: number) => create(VersionRecordSchema, { version }),
    control: () => ({ value, revision: 1n }),
  };
  const sources = {
    ...{ view, cluster: createCluster(), clock: { wallTime: () => 0 } },
    nodes: { isAlive: () => true },
    readiness: { readyForMs: () => 60_000 },
  };
  const spec = { command: ['a'], restart: { policy: Restart.NEVER } };
  const workload = create(WorkloadRecordSchema, { uid: 'w', version: 3, spec });
  const replicas = [Phase.RUNNING, Phase.FAILED].map((phase) =>
    create(ReplicaRecordSchema, {
      ...{ id: `w-${Phase[phase]}`, uid: 'w', version: 1, phase, desiredRunning: true },
    }),
  );
  const { observed } = toRolloutInput(sources, workload, replicas, 2);
  return observed.replicas.filter(({ available }) => available).map(({ id }) => id);
}

describe('toRolloutInput', () => {
  const failed = { rolloutPhase: RolloutPhase.FAILED };
  it.each<{ name: string; control: MessageInitShape<typeof ControlRecordSchema> }>([
    {
      name: 'the rollout has failed',
      control: { ...failed, rollout: create(RolloutRecordSchema, { version: 3 }) },
    },
    {
      name: 'a user has paused the rollout',
      control: { rolloutPhase: RolloutPhase.IN_PROGRESS, pausedVersion: 3 },
    },
  ])('counts a finished replica of the active version as available while $name', ({ control }) => {
    expect(findAvailable(control)).toEqual(['w-RUNNING', 'w-FAILED']);
  });

  it.each<{ name: string; control: MessageInitShape<typeof ControlRecordSchema> }>([
    {
      name: 'the rollout is in progress',
      control: { rolloutPhase: RolloutPhase.IN_PROGRESS },
    },
    {
      name: 'a user has resumed the failed rollout',
      control: { ...failed, rollout: create(RolloutRecordSchema, { version: 3, retry: true }) },
    },
    {
      name: 'the rollout of an earlier version has failed',
      control: { ...failed, rollout: create(RolloutRecordSchema, { version: 2 }) },
    },
  ])('counts no finished replica of the active version when $name', ({ control }) => {
    expect(findAvailable(control)).toEqual(['w-RUNNING']);
  });
});

describe('movesStopFirst', () => {
  const inPlace = { maxSurge: 0, maxUnavailable: 1 };
  it.each([
    { name: 'the defaults', spec: {}, expected: false },
    { name: 'max_surge 0 with a min_available below the replicas', spec: { rollout: inPlace } },
    {
      name: 'max_surge 0 with an explicit min_available of all replicas',
      spec: { replicas: 3, rollout: { ...inPlace, minAvailable: 3 } },
      expected: false,
    },
    { name: 'max_surge 0 of several replicas', spec: { replicas: 3, rollout: { maxSurge: 0 } } },
    {
      name: 'RECREATE of several replicas',
      spec: { replicas: 3, rollout: { strategy: Strategy.RECREATE } },
    },
    {
      name: 'RECREATE of one replica, whose min_available is 1',
      spec: { rollout: { strategy: Strategy.RECREATE } },
      expected: false,
    },
    {
      name: 'RECREATE of one replica with max_unavailable 1',
      spec: { rollout: { strategy: Strategy.RECREATE, maxUnavailable: 1 } },
    },
    {
      name: 'BLUE_GREEN',
      spec: { rollout: { ...inPlace, strategy: Strategy.BLUE_GREEN } },
      expected: false,
    },
  ])('decides for $name', ({ spec, expected = true }) => {
    expect(movesStopFirst(create(WorkloadSpecSchema, spec))).toBe(expected);
  });
});
