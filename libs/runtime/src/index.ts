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
export { exitReason } from './exit-reason.js';
export { MAX_LINE_BYTES, LineSplitter } from './line-splitter.js';
export type { SplitLine } from './line-splitter.js';
export { selectsLine } from './log-selection.js';
export { PushQueue } from './push-queue.js';
export type { PushQueueOptions } from './push-queue.js';
