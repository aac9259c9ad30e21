export { createLog } from './log.js';
export type { ClosableLog, LogOptions } from './log.js';
export type { LogLevel } from './format.js';
export { createMetrics } from './metrics.js';
export type { Counter, Gauge, Histogram, Labels, Metrics, MetricSpec, MetricsOptions } from './metrics.js';
export { startLoopLagMeter } from './loop-lag.js';
export type { LoopLagMeter } from './loop-lag.js';
export { REDACTED, toSafeFields } from './safe-fields.js';
