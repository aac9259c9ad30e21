import { createClient, type Client, type Transport } from '@connectrpc/connect';
import { Health } from './gen/grpc/health/v1/health_pb.js';

/**
 * The standard gRPC services that a server of this API offers beside its own: health and
 * reflection.
 */
export * from './gen/grpc/health/v1/health_pb.js';
export { ServerReflection as ServerReflectionV1 } from './gen/grpc/reflection/v1/reflection_pb.js';
export type {
  ServerReflectionRequest,
  ServerReflectionResponse,
} from './gen/grpc/reflection/v1/reflection_pb.js';
export { ServerReflection as ServerReflectionV1Alpha } from './gen/grpc/reflection/v1alpha/reflection_pb.js';

/** A client of the standard gRPC health service, `grpc.health.v1.Health`. */
export type HealthClient = Client<typeof Health>;

/**
 * Creates a client of the gRPC health service of any server.
 * @param transport - A gRPC transport from `@connectrpc/connect-node`.
 */
export function createHealthClient(transport: Transport): HealthClient {
  return createClient(Health, transport);
}
export { file_google_rpc_error_details } from './gen/google/rpc/error_details_pb.js';
