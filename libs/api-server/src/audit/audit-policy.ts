import type { DescMethod } from '@bufbuild/protobuf';
import { AdminService, AgentService, CoordinatorService } from '@cloudless/api';

/** How the audit log records the calls of a method. */
export type AuditPolicy =
  /** The call only reads what every client may read: no audit record. */
  | 'reads'
  /** A frequent report of an agent: no audit record. The enrolment of the agent is recorded. */
  | 'agents'
  /** One audit record, committed together with the change and before the reply. */
  | 'acts'
  /**
   * The call is privileged and changes no state: one audit record, committed before the call
   * begins.
   */
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
  // Stores a plan. The cluster changes only when the plan is executed.
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
  // The whole state leaves the cluster.
  backup: 'begins',
  acceptRestoredState: 'acts',
};

const policies: Readonly<Record<string, Readonly<Record<string, AuditPolicy>>>> = {
  [CoordinatorService.typeName]: coordinator,
  [AgentService.typeName]: agent,
  [AdminService.typeName]: admin,
};

/** Returns the policy of a method; undefined when the table has no entry for it. */
export function getAuditPolicy(method: DescMethod): AuditPolicy | undefined {
  return policies[method.parent.typeName]?.[method.localName];
}
