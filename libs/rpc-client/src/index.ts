export { coordinatorTransport, createCoordinatorTransport } from './coordinator-transport.js';
export type { CoordinatorLink } from './coordinator-transport.js';
export { grpcOver } from './grpc-over.js';
export type { CallInterceptors } from './grpc-over.js';
