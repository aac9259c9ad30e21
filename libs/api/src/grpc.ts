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

/** Client of `grpc.health.v1.Health` of any server. */
export type HealthClient = Client<typeof Health>;

/** @param transport - A gRPC transport from `@connectrpc/connect-node`. */
export function createHealthClient(transport: Transport): HealthClient {
  return createClient(Health, transport);
}
