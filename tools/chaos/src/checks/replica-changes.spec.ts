import { findReplicaChanges, judgeReplicaChanges, type ReplicaFacts } from './replica-changes.js';

const replica = (id: string, more: Partial<ReplicaFacts> = {}): ReplicaFacts => ({
  workload: 'web',
  id,
  nodeId: 'a1',
  containerId: `${id}-1`,
  restarts: 0,
  failedStarts: 0,
  ...more,
});

describe('findReplicaChanges', () => {
  it.each([
    { name: 'nothing', after: [replica('r2'), replica('r1')], changes: [] },
    {
      name: 'a replaced replica',
      after: [replica('r1'), replica('r3')],
      changes: [{ text: 'r2 on a1 was replaced', nodeId: 'a1' }],
    },
    {
      name: 'a restarted replica',
      after: [replica('r1', { containerId: 'r1-2', restarts: 1 }), replica('r2')],
      changes: [{ text: 'r1 on a1 was restarted', nodeId: 'a1' }],
    },
    {
      name: 'a replica whose starts only failed',
      after: [replica('r1', { failedStarts: 2 }), replica('r2')],
      changes: [{ text: 'r1 on a1 had failed starts', nodeId: 'a1' }],
    },
    {
      name: 'a moved replica',
      after: [replica('r1', { nodeId: 'a2' }), replica('r2')],
      changes: [{ text: 'r1 moved to a2', nodeId: 'a1' }],
    },
    {
      name: 'a surplus replica',
      after: [replica('r1'), replica('r2'), replica('r3')],
      changes: [{ text: '1 more replicas than before' }],
    },
  ])('finds $name', ({ after, changes }) => {
    expect(findReplicaChanges([replica('r1'), replica('r2')], after)).toEqual(changes);
  });

  it('accepts the replacement of a replica that the fault gave a reason to replace', () => {
    const isOnA1 = ({ nodeId }: ReplicaFacts): boolean => nodeId === 'a1';
    const before = [replica('r1'), replica('r2', { nodeId: 'a2' })];
    expect(findReplicaChanges(before, [replica('r2', { nodeId: 'a2' })], isOnA1)).toEqual([]);
    expect(findReplicaChanges(before, [replica('r1')], isOnA1)).toEqual([
      { text: 'r2 on a2 was replaced', nodeId: 'a2' },
    ]);
  });
});

describe('judgeReplicaChanges', () => {
  const changes = [
    { text: 'r1 on a1 was replaced', nodeId: 'a1' },
    { text: 'r2 on a2 was replaced', nodeId: 'a2' },
    { text: '1 more replicas than before' },
  ];
  const losses = new Map([['a2', 'node a2 is lost: no message']]);
  const R1 = 'web: r1 on a1 was replaced';
  const R2 = 'web: r2 on a2 was replaced (node a2 is lost: no message)';
  const SURPLUS = 'web: 1 more replicas than before';

  it.each([
    { name: 'each change', judgesTimes: true, violations: [R1, R2, SURPLUS], late: [] },
    {
      name: 'no change on a node that was lost',
      judgesTimes: false,
      violations: [R1, SURPLUS],
      late: [R2],
    },
  ])(
    'calls $name a violation when times are judged: $judgesTimes',
    ({ judgesTimes, ...judged }) => {
      expect(judgeReplicaChanges('web', changes, { losses, judgesTimes })).toEqual({
        violations: judged.violations,
        late: judged.late,
      });
    },
  );
});
