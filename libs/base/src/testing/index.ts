export { RecordingTracer } from './recording-tracer.js';
export type { RecordedSpan } from './recording-tracer.js';
export { RecordingMeter } from './recording-meter.js';
export { ManualClock, settle } from './manual-clock.js';
