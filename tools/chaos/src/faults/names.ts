/** All faults. */
export const faultNames = [
  'kill-leader',
  'kill-both-leaders',
  'kill-follower',
  'pause-leader',
  'cut-leader-to-store',
  'cut-store-to-leader',
  'cut-leader-from-followers',
  'terminate-leader',
  'step-down',
  'replace-coordinators',
  'kill-all-coordinators',
  'kill-etcd-leader',
  'pause-etcd-leader',
  'lose-etcd-member',
  'lose-etcd-majority',
  'fill-etcd-disk',
  'kill-agent',
  'pause-agent',
  'cut-agent',
  'cut-exclusive',
  'split-exclusive',
  'kill-exclusive',
] as const;

/** Name of a fault. */
export type FaultName = (typeof faultNames)[number];
