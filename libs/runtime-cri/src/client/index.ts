// The calls of the interface themselves, for tools that measure or look; the runtime is in the main
// entry.
export { CriClient } from './cri-client.js';
export type { CriClientOptions, RuntimeClient } from './cri-client.js';
export {
  ContainerState,
  NamespaceMode,
  SecurityProfile_ProfileType,
} from '../gen/runtime/v1/api_pb.js';
