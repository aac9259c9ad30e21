import { NodeStatus_Phase as Phase } from '@cloudless/api';
import type { NodeState } from '@cloudless/membership';

/** The phase that users see of each state of a node. */
export const phases: Record<NodeState, Phase> = {
  expected: Phase.UNKNOWN,
  connected: Phase.READY,
  slow: Phase.READY,
  away: Phase.AWAY,
  reconnecting: Phase.DISCONNECTED,
  lost: Phase.LOST,
};

/** The reason of each phase without a more precise one; empty for a ready node. */
export const phaseReasons: Record<Phase, string> = {
  [Phase.UNKNOWN]: 'has not connected since the coordinator started',
  [Phase.READY]: '',
  [Phase.DISCONNECTED]:
    'the connection to its agent broke; waiting for the agent until the lease ends',
  [Phase.AWAY]: 'its agent left in good order',
  [Phase.LOST]: 'its lease ended: no message from its agent',
};
