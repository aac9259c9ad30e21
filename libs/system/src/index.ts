export { endMemoryProtection, protectFromOutOfMemory } from './memory-protection.js';
export { systemClock } from './system-clock.js';
export { systemRandom } from './system-random.js';
