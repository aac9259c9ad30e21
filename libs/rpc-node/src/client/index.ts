export { coordinatorTransport, createCoordinatorTransport } from './coordinator-transport.js';
export type {
  CoordinatorConnection,
  CoordinatorTransportOptions,
} from './coordinator-transport.js';
export { createGrpcTransportOver } from './grpc-transport.js';
export type { CallInterceptors } from './grpc-transport.js';
export * from './tls/index.js';
