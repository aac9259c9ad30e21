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
  LogLine,
  LogRequest,
  LogStream,
  NetworkRequest,
  PortRequest,
  PullPolicy,
  SecurityProfile,
  SecurityRequest,
  StartProgress,
  TerminalSize,
  UlimitRequest,
  VolumeRequest,
} from './container-runtime.js';
export { combineRuntimes } from './combined-runtime.js';
export type { CombinedRuntime, CombinedRuntimeOptions } from './combined-runtime.js';
export { LateRuntime } from './late-runtime.js';
export type { LateRuntimeOptions } from './late-runtime.js';
export { CommandNotStartedError, NOT_STARTED_EXIT_CODES, withStartFailure } from './command-not-started.js';
export { EXEC_GRACE_MS } from './container-runtime.js';
export { EventReaders } from './event-readers.js';
export { exitReason } from './exit-reason.js';
export { LEASE_ENDED_REASON, LeaseTimer } from './lease-timer.js';
export { MAX_LINE_BYTES, LineSplitter } from './line-splitter.js';
export type { SplitLine } from './line-splitter.js';
export { selectsLine } from './log-selection.js';
export { PushQueue } from './push-queue.js';
export type { PushQueueOptions } from './push-queue.js';
export { wholeInput, writeInTurn } from './exec-input.js';
export type { FrameSink } from './exec-input.js';
