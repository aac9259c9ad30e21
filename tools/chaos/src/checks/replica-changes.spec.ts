import { findReplicaChanges, type ReplicaFacts } from './replica-changes.js';

const replica = (id: string, more: Partial<ReplicaFacts> = {}): ReplicaFacts => ({
  workload: 'web',
  id,
  nodeId: 'a1',
  containerId: `${id}-1`,
  restarts: 0,
  ...more,
});

describe('findReplicaChanges', () => {
  it.each([
    { name: 'nothing', after: [replica('r2'), replica('r1')], changes: [] },
    {
      name: 'a replaced replica',
      after: [replica('r1'), replica('r3')],
      changes: ['r2 on a1 was replaced'],
    },
    {
      name: 'a restarted replica',
      after: [replica('r1', { containerId: 'r1-2', restarts: 1 }), replica('r2')],
      changes: ['r1 on a1 was restarted'],
    },
    {
      name: 'a moved replica',
      after: [replica('r1', { nodeId: 'a2' }), replica('r2')],
      changes: ['r1 moved to a2'],
    },
    {
      name: 'a surplus replica',
      after: [replica('r1'), replica('r2'), replica('r3')],
      changes: ['1 more replicas than before'],
    },
  ])('finds $name', ({ after, changes }) => {
    expect(findReplicaChanges([replica('r1'), replica('r2')], after)).toEqual(changes);
  });

  it('accepts the replacement of a replica that the fault gave a reason to replace', () => {
    const isOnA1 = ({ nodeId }: ReplicaFacts): boolean => nodeId === 'a1';
    const before = [replica('r1'), replica('r2', { nodeId: 'a2' })];
    expect(findReplicaChanges(before, [replica('r2', { nodeId: 'a2' })], isOnA1)).toEqual([]);
    expect(findReplicaChanges(before, [replica('r1')], isOnA1)).toEqual(['r2 on a2 was replaced']);
  });
});
