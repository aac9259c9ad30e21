import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  WorkloadPlanSchema,
  WorkloadPlan_Action as Action,
  type WorkloadPlan,
} from '@cloudless/api';
import { describePlanDifference } from './plan-difference.js';

type Fields = MessageInitShape<typeof WorkloadPlanSchema>;

const aPlan = (fields: Omit<Fields, '$typeName'> = {}): WorkloadPlan =>
  create(WorkloadPlanSchema, {
    namespace: 'default',
    name: 'web',
    action: Action.UPDATE,
    generation: 4n,
    changes: [{ path: 'args', before: '', after: '["x"]' }],
    placements: [{ nodeId: 'n1', score: 0.5 }, { nodeId: 'n1' }, { nodeId: 'n2' }],
    steps: [{ description: 'create 1 of version 2', ready: 3, live: 4 }],
    lowestReady: 3,
    minAvailable: 2,
    highestLive: 4,
    ...fields,
  });

describe('describePlanDifference', () => {
  it.each<{ name: string; now: readonly WorkloadPlan[]; expected: string | undefined }>([
    { name: 'returns undefined for equal plans', now: [aPlan()], expected: undefined },
    {
      name: 'returns undefined for plans that differ only in scores',
      now: [aPlan({ placements: ['n1', 'n2', 'n1'].map((nodeId) => ({ nodeId })) })],
      expected: undefined,
    },
    {
      name: 'describes a changed action',
      now: [aPlan({ action: Action.CREATE })],
      expected: 'default/web: it was to be updated, it would be created now',
    },
    {
      name: 'describes a changed generation',
      now: [aPlan({ generation: 5n })],
      expected: 'default/web: generation 4 was planned, it is 5 now',
    },
    {
      name: 'describes a changed previous spec',
      now: [aPlan({ changes: [{ path: 'args', before: '["a"]', after: '["x"]' }] })],
      expected: 'default/web: the spec that the change is based on has changed',
    },
    {
      name: 'describes a changed step',
      now: [aPlan({ steps: [{ description: 'stop 1 of version 1', ready: 3, live: 4 }] })],
      expected:
        'default/web: step 1 was "create 1 of version 2", it would be "stop 1 of version 1" now',
    },
    {
      name: 'describes a step that is no longer necessary',
      now: [aPlan({ steps: [] })],
      expected: 'default/web: step 1 was "create 1 of version 2", it would be "nothing more" now',
    },
    {
      name: 'describes a changed number of live replicas after a step',
      now: [aPlan({ steps: [{ description: 'create 1 of version 2', ready: 3, live: 5 }] })],
      expected: 'default/web: step 1 was to leave 4 live, it would leave 5 now',
    },
    {
      name: 'describes the node that receives fewer replicas',
      now: [aPlan({ placements: [{ nodeId: 'n0' }, { nodeId: 'n1' }, { nodeId: 'n2' }] })],
      expected: 'default/web: 2 replicas were to go to n1, now 1',
    },
    {
      name: 'describes the node that receives an additional replica',
      now: [aPlan({ placements: [...aPlan().placements, { nodeId: 'n3' }] })],
      expected: 'default/web: 0 replicas were to go to n3, now 1',
    },
    {
      name: 'describes a changed min_available',
      now: [aPlan({ minAvailable: 3 })],
      expected: 'default/web: min_available was planned as 2, it is 3 now',
    },
    {
      name: 'describes a changed reason of unplaced replicas',
      now: [aPlan({ unplacedReason: 'full' })],
      expected:
        'default/web: the reason why they fit on no node was planned as nothing, it is full now',
    },
    {
      name: 'describes a new warning',
      now: [aPlan({ warnings: ['w'] })],
      expected: 'default/web: there is a new warning: w',
    },
    {
      name: 'describes an additional workload to move before the planned workload',
      now: [aPlan({ name: 'api' }), aPlan()],
      expected: 'default/api: its replicas would now have to be moved too',
    },
    {
      name: 'describes an additional workload to move after the planned workload',
      now: [aPlan(), aPlan({ name: 'zoo' })],
      expected: 'default/zoo: its replicas would now have to be moved too',
    },
    {
      name: 'describes a planned workload that has no replicas to move any more',
      now: [],
      expected: 'default/web: its replicas were to be moved, but now it has no replicas to move',
    },
  ])('$name', ({ now, expected }) => {
    expect(describePlanDifference([aPlan()], now)).toBe(expected);
  });

  it('describes a warning that no longer applies', () => {
    expect(describePlanDifference([aPlan({ warnings: ['w'] })], [aPlan()])).toBe(
      'default/web: a warning no longer applies: w',
    );
  });
});
