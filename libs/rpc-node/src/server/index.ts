export { startRpcServer } from './transport/start-rpc-server.js';
export { defaultRpcLimits } from './options.js';
export type { RpcLimits, RpcLoad, RpcServer, RpcServerOptions } from './options.js';
export { CALL_PRIORITIES } from './admission/call-priority.js';
export type {
  CallClass,
  ClassifyCall,
  CallPriority,
  PriorityLimits,
} from './admission/call-priority.js';
export type { PriorityLoad, ShedReason } from './admission/call-admission.js';
export { listen } from './transport/listen.js';
export type { ListenAddress, ListenOptions } from './transport/listen.js';
export { connectionKey } from './transport/connection.js';
export type { ClientConnection } from './transport/connection.js';
export { callerKey } from './transport/call-authorization.js';
export type { AuthorizeCall, CallCredentials, Caller } from './transport/call-authorization.js';
export type { PeerCertificates, ServerTls } from './transport/tls-acceptor.js';
export { HealthState } from './health/health.js';
export type { ServingStatus } from './health/health.js';
export { startOpsServer } from './ops/ops-server.js';
export type { HealthReport, OpsServer, OpsServerOptions } from './ops/ops-server.js';
