import { AdminService, AgentService, CoordinatorService } from '@cloudless/api';
import type { CallClass, ClassOf } from '@cloudless/rpc-server';

type Lanes<Service extends { readonly method: object }> = {
  readonly [Rpc in keyof Service['method']]: CallClass;
};

const control: CallClass = { lane: 'control' };
const stop: CallClass = { lane: 'stop' };
const write: CallClass = { lane: 'write' };
const read: CallClass = { lane: 'read' };
const watch: CallClass = { lane: 'read', inTurns: true };

/**
 * The lane of each RPC; a new one does not compile without.
 * Stop orders are what takes load away from the cluster, or keeps it off a node. Those that the
 * coordinator gives to agents travel in sessions, which are control. ScaleWorkload is among them as
 * a whole: whether it goes down is only known after it has been decoded.
 */
const coordinatorLanes: Lanes<typeof CoordinatorService> = {
  enrollNode: control,
  heartbeat: control,
  session: control,
  tunnel: control,
  getServerInfo: read,
  getNode: read,
  listNodes: read,
  watchNodes: watch,
  updateNode: write,
  cordonNode: stop,
  uncordonNode: write,
  drainNode: stop,
  confirmNodeLost: stop,
  removeNode: stop,
  createWorkload: write,
  updateWorkload: write,
  scaleWorkload: stop,
  deleteWorkload: stop,
  getWorkload: read,
  listWorkloads: read,
  watchWorkloads: watch,
  planWorkload: read,
  explainWorkload: read,
  pauseRollout: stop,
  resumeRollout: write,
  promoteRollout: write,
  undoRollout: write,
  restartRollout: write,
  getWorkloadVersion: read,
  createPlan: write,
  getPlan: read,
  executePlan: write,
  listEndpoints: read,
  watchEndpoints: watch,
  listEvents: read,
  watchEvents: watch,
  streamLogs: read,
  execCommand: { lane: 'write', long: true },
  exec: write,
  portForward: write,
};

const agentLanes: Lanes<typeof AgentService> = {
  streamLogs: read,
  execCommand: { lane: 'write', long: true },
  exec: write,
  portForward: write,
  getContainerStatus: read,
  listContainers: read,
  getContainerStats: read,
  listContainerStats: read,
};

const adminLanes: Lanes<typeof AdminService> = { backup: read, acceptRestoredState: write };

const byService: Readonly<Record<string, Readonly<Record<string, CallClass>>>> = {
  [CoordinatorService.typeName]: coordinatorLanes,
  [AgentService.typeName]: agentLanes,
  [AdminService.typeName]: adminLanes,
};

/** The class of an RPC that the coordinator serves; undefined for others. */
export const classOfRpc: ClassOf = ({ parent, localName }) =>
  byService[parent.typeName]?.[localName];
