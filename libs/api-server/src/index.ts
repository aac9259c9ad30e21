export { createApiServer } from './handlers.js';
export type { ApiServer } from './handlers.js';
export type {
  ApiServerDeps,
  CallConnection,
  NodeLiveness,
  WorkloadPresenterPort,
  NodeAllocations,
  DryRunPort,
  SessionTimings,
} from './ports.js';
export { PROTOCOL_MAX, PROTOCOL_MIN } from './session/node-admission.js';
