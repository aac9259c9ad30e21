export type {
  AvailableContainers,
  ContainerEndpoint,
  ContainerEvent,
  ContainerKind,
  ContainerLease,
  ContainerPhase,
  ContainerRequest,
  ContainerSignal,
  ImageCredentials,
  DeviceRequest,
  ContainerRuntime,
  ContainerStatus,
  EgressPortRange,
  EgressRule,
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
export { combineRuntimes } from './compose/combined-runtime.js';
export type { CombinedRuntime, CombinedRuntimeOptions } from './compose/combined-runtime.js';
export { LazyRuntime } from './compose/lazy-runtime.js';
export type { LazyRuntimeOptions } from './compose/lazy-runtime.js';
export {
  CommandNotStartedError,
  NOT_STARTED_EXIT_CODES,
  withStartFailure,
} from './exec/command-not-started.js';
export { listAvailable } from './list-available.js';
export {
  EGRESS_CAPABILITY,
  EXEC_GRACE_MS,
  HEALTHY,
  PROCESS_DNS_CAPABILITY,
  SIGNAL_CAPABILITY,
} from './container-runtime.js';
export { EventBroadcaster } from './events/event-broadcaster.js';
export { formatExitReason } from './exit-reason.js';
export { LEASE_ENDED_REASON, LeaseTimer } from './lease-timer.js';
export { MAX_LINE_BYTES, LineSplitter } from './logs/line-splitter.js';
export type { SplitLine } from './logs/line-splitter.js';
export { DirectoryChanges } from './logs/directory-changes.js';
export { LineSelection, flattenBatches, isLineSelected } from './logs/log-selection.js';
export {
  REMOVED_LINES_FILE,
  addRemovedFiles,
  countBytesBefore,
  encodeRemovedLines,
  parseRemovedLines,
} from './logs/removed-lines.js';
export type { MeasuredFile, RemovedLines } from './logs/removed-lines.js';
export { readRemovedLines, recordRemovedFiles } from './logs/removed-lines-file.js';
export type { SurplusFile } from './logs/removed-lines-file.js';
export { PushQueue } from './events/push-queue.js';
export type { PushQueueOptions } from './events/push-queue.js';
export { toSingleInput, writeWithBackpressure } from './exec/exec-input.js';
export type { FrameSink } from './exec/exec-input.js';
