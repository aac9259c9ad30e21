export type {
  ContainerEndpoint,
  ContainerEvent,
  ContainerLease,
  ContainerPhase,
  ContainerRequest,
  DeviceRequest,
  ContainerRuntime,
  ContainerStatus,
  ExecEvent,
  ExecInput,
  ExecRequest,
  ExtraHost,
  LogBatch,
  LogLine,
  LogRequest,
  LogStream,
  NetworkRequest,
  PortRequest,
  PullPolicy,
  RuntimeHealth,
  SecurityProfile,
  SecurityRequest,
  SkippedLines,
  StartProgress,
  TerminalSize,
  UlimitRequest,
  VolumeRequest,
} from './container-runtime.js';
export { combineRuntimes } from './combined-runtime.js';
export type { CombinedRuntime, CombinedRuntimeOptions } from './combined-runtime.js';
export { LazyRuntime } from './late-runtime.js';
export type { LazyRuntimeOptions } from './late-runtime.js';
export {
  CommandNotStartedError,
  NOT_STARTED_EXIT_CODES,
  withStartFailure,
} from './command-not-started.js';
export { EXEC_GRACE_MS, HEALTHY } from './container-runtime.js';
export { EventBroadcaster } from './event-readers.js';
export { formatExitReason } from './exit-reason.js';
export { LEASE_ENDED_REASON, LeaseTimer } from './lease-timer.js';
export { MAX_LINE_BYTES, LineSplitter } from './line-splitter.js';
export type { SplitLine } from './line-splitter.js';
export { LineSelection, flattenBatches, isLineSelected } from './log-selection.js';
export {
  REMOVED_LINES_FILE,
  addRemovedFiles,
  countBytesBefore,
  encodeRemovedLines,
  parseRemovedLines,
} from './removed-lines.js';
export type { MeasuredFile, RemovedLines } from './removed-lines.js';
export { PushQueue } from './push-queue.js';
export type { PushQueueOptions } from './push-queue.js';
export { toSingleInput, writeWithBackpressure } from './exec-input.js';
export type { FrameSink } from './exec-input.js';
