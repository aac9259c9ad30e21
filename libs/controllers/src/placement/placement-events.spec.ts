import { create } from '@bufbuild/protobuf';
import { ReplicaRecordSchema, WorkloadRecordSchema } from '@cloudless/api/store';
import { createPlacedEvent, type DecisionFacts, type PlacedReplica } from './placement-events.js';

const facts: DecisionFacts = {
  view: { lastEventOfReplica: () => undefined },
  workload: create(WorkloadRecordSchema, { namespace: 'default', name: 'web' }),
  decisionId: 'd1',
};
const placed = (id: string, nodeId: string, score: number, onlyNodeId = ''): PlacedReplica => ({
  replica: create(ReplicaRecordSchema, { id, onlyNodeId }),
  nodeId,
  score,
});

describe('createPlacedEvent', () => {
  it('names the node and its score when one replica was placed', () =>
    expect(createPlacedEvent(facts, [placed('web-1', 'n1', 0.5)])).toMatchObject({
      message: 'placed 1 replica: 1 on n1',
      nodeId: 'n1',
      replicaId: 'web-1',
      decision: { id: 'd1', why: 'n1 was the best node that fits, with a score of 0.500' },
    }));

  it('counts the replicas of each node and gives the lowest and the highest score', () => {
    const event = createPlacedEvent(facts, [
      placed('web-1', 'n1', 0.5),
      placed('web-2', 'n2', 0.75),
      placed('web-3', 'n1', 0.25),
    ]);
    expect(event).toMatchObject({
      message: 'placed 3 replicas: 2 on n1, 1 on n2',
      replicaIds: ['web-1', 'web-2', 'web-3'],
      decision: {
        why: 'each went to the best node that fitted it, with scores from 0.250 to 0.750',
      },
    });
    expect(event).not.toHaveProperty('nodeId');
    expect(event).not.toHaveProperty('replicaId');
  });

  it('says that replicas of mode GLOBAL go to the node that they are for', () =>
    expect(
      createPlacedEvent(facts, [
        placed('web-1', 'n1', 0.5, 'n1'),
        placed('web-2', 'n2', 0.25, 'n2'),
      ]).decision.why,
    ).toBe('each goes to the one node that it is for, which fits; scores from 0.250 to 0.500'));
});
