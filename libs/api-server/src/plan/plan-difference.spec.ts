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
  it.each<{ name: string; now: readonly WorkloadPlan[]; says: string | undefined }>([
    { name: 'returns nothing for equal plans', now: [aPlan()], says: undefined },
    {
      name: 'ignores scores',
      now: [aPlan({ placements: ['n1', 'n2', 'n1'].map((nodeId) => ({ nodeId })) })],
      says: undefined,
    },
    {
      name: 'describes another action',
      now: [aPlan({ action: Action.CREATE })],
      says: 'default/web: it was to be updated, it would be created now',
    },
    {
      name: 'describes another generation',
      now: [aPlan({ generation: 5n })],
      says: 'default/web: generation 4 was planned, it is 5 now',
    },
    {
      name: 'describes another previous spec',
      now: [aPlan({ changes: [{ path: 'args', before: '["a"]', after: '["x"]' }] })],
      says: 'default/web: the spec that the change is based on has changed',
    },
    {
      name: 'describes another step',
      now: [aPlan({ steps: [{ description: 'stop 1 of version 1', ready: 3, live: 4 }] })],
      says: 'default/web: step 1 was "create 1 of version 2", it would be "stop 1 of version 1" now',
    },
    {
      name: 'describes a missing step',
      now: [aPlan({ steps: [] })],
      says: 'default/web: step 1 was "create 1 of version 2", it would be "nothing more" now',
    },
    {
      name: 'describes another number of ready replicas after a step',
      now: [aPlan({ steps: [{ description: 'create 1 of version 2', ready: 3, live: 5 }] })],
      says: 'default/web: step 1 was to leave 4 live, it would leave 5 now',
    },
    {
      name: 'describes other placements',
      now: [aPlan({ placements: [{ nodeId: 'n0' }, { nodeId: 'n1' }, { nodeId: 'n2' }] })],
      says: 'default/web: 2 replicas were to go to n1, now 1',
    },
    {
      name: 'describes an additional placement',
      now: [aPlan({ placements: [...aPlan().placements, { nodeId: 'n3' }] })],
      says: 'default/web: 0 replicas were to go to n3, now 1',
    },
    {
      name: 'describes another number',
      now: [aPlan({ minAvailable: 3 })],
      says: 'default/web: min_available was planned as 2, it is 3 now',
    },
    {
      name: 'describes another reason',
      now: [aPlan({ unplacedReason: 'full' })],
      says: 'default/web: the reason why they fit on no node was planned as nothing, it is full now',
    },
    {
      name: 'describes a new warning',
      now: [aPlan({ warnings: ['w'] })],
      says: 'default/web: there is a new warning: w',
    },
    {
      name: 'describes an additional workload to move',
      now: [aPlan({ name: 'api' }), aPlan()],
      says: 'default/api: its replicas would now have to be moved too',
    },
    {
      name: 'describes an additional workload at the end',
      now: [aPlan(), aPlan({ name: 'zoo' })],
      says: 'default/zoo: its replicas would now have to be moved too',
    },
    {
      name: 'describes a workload without replicas to move',
      now: [],
      says: 'default/web: its replicas were to be moved, but now it has no replicas to move',
    },
  ])('$name', ({ now, says }) => {
    expect(describePlanDifference([aPlan()], now)).toBe(says);
  });

  it('describes a warning that no longer applies', () => {
    expect(describePlanDifference([aPlan({ warnings: ['w'] })], [aPlan()])).toBe(
      'default/web: a warning no longer applies: w',
    );
  });
});
