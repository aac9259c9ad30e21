// Low-level calls of the Container Runtime Interface, for benchmarks and diagnostics. The runtime
// itself is in the main entry point.
export { CriClient } from './cri-client.js';
export type { CriClientOptions, RuntimeClient } from './cri-client.js';
export {
  ContainerState,
  NamespaceMode,
  SecurityProfile_ProfileType,
} from '../gen/runtime/v1/api_pb.js';
