export { makeDirectory, makeDirectorySync } from './make-directory.js';
export { systemClock } from './system-clock.js';
export { systemRandom } from './system-random.js';
