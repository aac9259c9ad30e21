export { toSnakeCase } from './to-snake-case.js';
export { definedFields, type DefinedFields } from './defined-fields.js';
export { unmapIpv4 } from './unmap-ipv4.js';
export { parseMountLine, type MountLine } from './parse-mount-line.js';
export { quoteForShell } from './quote-for-shell.js';
export { findFirst } from './find-first.js';
export { isPathWithin } from './is-path-within.js';
export {
  CloudlessError,
  InvalidInputError,
  assert,
  assertNever,
  errorFields,
  errorKindOf,
  errorMessageOf,
  errorReasonOf,
  hasErrorReason,
} from './errors.js';
export type { CloudlessErrorOptions, Violation } from './errors.js';
export type { ErrorKind } from './error-kind.js';
export { errorCodeOf } from './error-code.js';
export { ERROR_REASON_KINDS, isErrorReason } from './error-reasons.js';
export type { ErrorReason } from './error-reasons.js';
export { StoppedError, sleep } from './time/clock.js';
export type { Clock, StopSignal, Timer } from './time/clock.js';
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
export { backoffDelayMs } from './time/backoff.js';
export type { BackoffPolicy } from './time/backoff.js';
export { Wakeup } from './loops/wakeup.js';
export { WorkQueue } from './loops/work-queue.js';
export type { WorkQueueOptions, WorkResult } from './loops/work-queue.js';
export { logFailure, silentLog } from './observability/log.js';
export type { Log, LogFields } from './observability/log.js';
export { DURATION_BUCKETS, noMeter } from './observability/meter.js';
export type {
  Counter,
  Gauge,
  Histogram,
  HistogramSpec,
  Labels,
  Meter,
  MetricSpec,
} from './observability/meter.js';
export { TransientMap, TransientSet } from './collections/transient.js';
export { SecondLimit } from './loops/second-limit.js';
export { runAtOnce, runInSlices } from './slices.js';
export { PASSES, Throttle } from './loops/throttle.js';
export type { SuppressedEvents, ThrottleResult, ThrottleOptions } from './loops/throttle.js';
export { noTracer } from './observability/tracer.js';
export { noSampledTracer } from './observability/sampled-tracer.js';
export type { SampledSpan, SampledTracer, SpanKind } from './observability/sampled-tracer.js';
export type { OpenSpan, SpanAttributes, Tracer } from './observability/tracer.js';
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
