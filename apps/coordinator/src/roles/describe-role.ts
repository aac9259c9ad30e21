import type { ClusterState } from '@cloudless/cluster-state';

/**
 * Returns the role of this coordinator and the leader as this coordinator knows it, for /health: the
 * fields `role`, `leader`, `leaderAddress` and `epoch`, and of a follower `viewAgeMs`, the
 * milliseconds since etcd has confirmed its view. A coordinator that alone uses its store has no
 * address in the record of its leadership; without a leader, the fields about it are missing.
 */
export function describeRole(
  state: Pick<ClusterState, 'role' | 'leader' | 'viewAgeMs'>,
): Readonly<Record<string, string | number>> {
  const { coordinatorId = '', address = '', epoch } = state.leader() ?? {};
  return {
    role: state.role,
    ...(coordinatorId === '' ? {} : { leader: coordinatorId }),
    ...(address === '' ? {} : { leaderAddress: address }),
    ...(epoch === undefined ? {} : { epoch: Number(epoch) }),
    ...(state.role === 'follower' ? { viewAgeMs: Math.round(state.viewAgeMs) } : {}),
  };
}
