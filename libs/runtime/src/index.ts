export type {
  ContainerEndpoint,
  ContainerEvent,
  ContainerPhase,
  ContainerRequest,
  ContainerRuntime,
  ContainerStatus,
  ExecEvent,
  ExecRequest,
  LogLine,
  LogRequest,
  LogStream,
  PortRequest,
} from './container-runtime.js';
