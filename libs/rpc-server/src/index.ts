export { startRpcServer } from './start-rpc-server.js';
export { defaultRpcLimits } from './options.js';
export type { RpcLimits, RpcServer, RpcServerOptions } from './options.js';
export { connectionKey } from './connection.js';
export type { Connection } from './connection.js';
export { HealthState } from './health.js';
export type { ServingStatus } from './health.js';
export { startOpsServer } from './ops-server.js';
export type { HealthReport, OpsServer, OpsServerOptions } from './ops-server.js';
