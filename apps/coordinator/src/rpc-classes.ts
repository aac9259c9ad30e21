import { AdminService, AgentService, CoordinatorService } from '@cloudless/api';
import type { CallClass, ClassifyCall } from '@cloudless/rpc-node/server';

type ClassByRpc<Service extends { readonly method: object }> = {
  readonly [Rpc in keyof Service['method']]: CallClass;
};

const control: CallClass = { priority: 'control' };
const stop: CallClass = { priority: 'stop' };
const write: CallClass = { priority: 'write' };
const read: CallClass = { priority: 'read' };
const watch: CallClass = { priority: 'read', interleaved: true };

/**
 * Priority of each RPC. A new RPC without an entry does not compile.
 * Priority `stop` is for calls that reduce load or keep load off a node. Stop orders to agents
 * travel in sessions, which have priority `control`. ScaleWorkload is included as a whole, because
 * the direction is known only after decoding.
 */
const coordinatorClasses: ClassByRpc<typeof CoordinatorService> = {
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
  execCommand: { priority: 'write', longRunning: true },
  exec: write,
  portForward: write,
};

const agentClasses: ClassByRpc<typeof AgentService> = {
  streamLogs: read,
  execCommand: { priority: 'write', longRunning: true },
  exec: write,
  portForward: write,
  getContainerStatus: read,
  listContainers: read,
  getContainerStats: read,
  listContainerStats: read,
};

const adminClasses: ClassByRpc<typeof AdminService> = { backup: read, acceptRestoredState: write };

const classesByService: Readonly<Record<string, Readonly<Record<string, CallClass>>>> = {
  [CoordinatorService.typeName]: coordinatorClasses,
  [AgentService.typeName]: agentClasses,
  [AdminService.typeName]: adminClasses,
};

/** Returns the class of an RPC that the coordinator serves; undefined for others. */
export const classifyRpc: ClassifyCall = ({ parent, localName }) =>
  classesByService[parent.typeName]?.[localName];
