export { RecordingMeter } from './recording-meter.js';
export { ManualClock, settle } from './manual-clock.js';
