import type { ClusterState } from '@cloudless/cluster-state';
import { describeRole } from './describe-role.js';

const c1 = { coordinatorId: 'c1', address: 'https://10.0.0.1:8080', epoch: 7n };

describe('describeRole', () => {
  it.each([
    {
      name: 'names the leader with its address and epoch',
      role: 'follower' as const,
      leader: c1,
      expected: {
        role: 'follower',
        leader: 'c1',
        leaderAddress: 'https://10.0.0.1:8080',
        epoch: 7,
        viewAgeMs: 412,
      },
    },
    {
      name: 'leaves the address out for a coordinator that alone uses its store',
      role: 'leader' as const,
      leader: { coordinatorId: '', address: '', epoch: 3n },
      expected: { role: 'leader', epoch: 3 },
    },
    {
      name: 'has the role only while no coordinator leads',
      role: 'follower' as const,
      leader: undefined,
      expected: { role: 'follower', viewAgeMs: 412 },
    },
  ])('$name', ({ role, leader, expected }) => {
    const state: Pick<ClusterState, 'role' | 'leader' | 'viewAgeMs'> = {
      ...{ role, viewAgeMs: 412.3 },
      leader: () => leader,
    };
    expect(describeRole(state)).toEqual(expected);
  });
});
