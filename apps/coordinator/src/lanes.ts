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
 * Priority of each RPC. A new RPC without an entry does not compile.
 * Priority `stop` is for calls that reduce load or keep load off a node. Stop orders to agents
 * travel in sessions, which have priority `control`. ScaleWorkload is included as a whole, because
 * the direction is known only after decoding.
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

/** Returns the class of an RPC that the coordinator serves; undefined for others. */
export const classOfRpc: ClassOf = ({ parent, localName }) =>
  byService[parent.typeName]?.[localName];
