import { AdminService, AgentService, CoordinatorService } from '@cloudless/api';
import type { DescMethod } from '@bufbuild/protobuf';

/** How a call shows in the audit log. */
export type AuditPolicy =
  /** Changes nothing and shows what every reader may see: no event. */
  | 'reads'
  /**
   * What agents say of what they run, all the time. An agent is let in by EnrollNode, which is
   * recorded.
   */
  | 'agents'
  /** One event, flushed with the change before the answer. */
  | 'acts'
  /** Privileged, and no change of the state: one event, flushed before anything begins. */
  | 'begins';

type Policies<Service extends { readonly method: object }> = Readonly<
  Record<keyof Service['method'], AuditPolicy>
>;

const coordinator: Policies<typeof CoordinatorService> = {
  getServerInfo: 'reads',
  enrollNode: 'acts',
  heartbeat: 'agents',
  session: 'agents',
  tunnel: 'agents',
  getNode: 'reads',
  listNodes: 'reads',
  watchNodes: 'reads',
  updateNode: 'acts',
  cordonNode: 'acts',
  uncordonNode: 'acts',
  drainNode: 'acts',
  confirmNodeLost: 'acts',
  removeNode: 'acts',
  createWorkload: 'acts',
  updateWorkload: 'acts',
  scaleWorkload: 'acts',
  deleteWorkload: 'acts',
  getWorkload: 'reads',
  listWorkloads: 'reads',
  watchWorkloads: 'reads',
  planWorkload: 'reads',
  explainWorkload: 'reads',
  pauseRollout: 'acts',
  resumeRollout: 'acts',
  promoteRollout: 'acts',
  undoRollout: 'acts',
  restartRollout: 'acts',
  getWorkloadVersion: 'reads',
  // Kept, but nothing of the cluster changes until it is executed.
  createPlan: 'acts',
  getPlan: 'reads',
  executePlan: 'acts',
  listEndpoints: 'reads',
  watchEndpoints: 'reads',
  listEvents: 'reads',
  watchEvents: 'reads',
  streamLogs: 'reads',
  execCommand: 'begins',
  exec: 'begins',
  portForward: 'begins',
};

const agent: Policies<typeof AgentService> = {
  streamLogs: 'reads',
  execCommand: 'begins',
  exec: 'begins',
  portForward: 'begins',
  getContainerStatus: 'reads',
  listContainers: 'reads',
  getContainerStats: 'reads',
  listContainerStats: 'reads',
};

const admin: Policies<typeof AdminService> = {
  // All of the state leaves the cluster.
  backup: 'begins',
  acceptRestoredState: 'acts',
};

const policies: Readonly<Record<string, Readonly<Record<string, AuditPolicy>>>> = {
  [CoordinatorService.typeName]: coordinator,
  [AgentService.typeName]: agent,
  [AdminService.typeName]: admin,
};

/** How the calls of a method are recorded; undefined when nobody has decided. */
export function auditPolicyOf(method: DescMethod): AuditPolicy | undefined {
  return policies[method.parent.typeName]?.[method.localName];
}
