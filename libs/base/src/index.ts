export {
  CloudlessError,
  InvalidInputError,
  assert,
  assertNever,
  errorFields,
  errorKindOf,
  errorMessageOf,
} from './errors.js';
export type { ErrorKind, Violation } from './errors.js';
export { StoppedError, sleep } from './clock.js';
export type { Clock, StopSignal, Timer } from './clock.js';
export { createSeededRandom } from './random.js';
export type { Random } from './random.js';
export {
  randomHex,
  replicaIdOf,
  toContainerId,
  toNodeId,
  toReplicaId,
  toWorkloadId,
} from './ids.js';
export type { Branded, ContainerId, NodeId, ReplicaId, WorkloadId } from './ids.js';
export { backoffDelayMs } from './backoff.js';
export type { BackoffPolicy } from './backoff.js';
export { WorkQueue } from './work-queue.js';
export type { WorkQueueOptions, WorkResult } from './work-queue.js';
export { logFailure, silentLog } from './log.js';
export type { Log, LogFields } from './log.js';
export { DURATION_BUCKETS, noMeter } from './meter.js';
export type {
  Counter,
  Gauge,
  Histogram,
  HistogramSpec,
  Labels,
  Meter,
  MetricSpec,
} from './meter.js';
export { Throttle } from './throttle.js';
export type { SuppressedEvents, ThrottleResult, ThrottleOptions } from './throttle.js';
export { noTracer } from './tracer.js';
export type { OpenSpan, SpanAttributes, Tracer } from './tracer.js';
export {
  durationField,
  oneOfField,
  parseConfig,
  sizeField,
  switchField,
  textField,
  wholeNumberField,
} from './config.js';
export type { ConfigField, ConfigFields, ConfigLayer, ParsedValue } from './config.js';
