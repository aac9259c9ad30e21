export { makeDirectory, makeDirectorySync } from './make-directory.js';
export { endMemoryProtection, protectFromOutOfMemory } from './memory-protection.js';
export { endBySignal, endOnStopSignals, type ProcessStopSignal } from './stop-signals.js';
export { startWorker } from './start-worker.js';
export { READY_MESSAGES, SESSION_MESSAGE } from './ready-messages.js';
export { systemClock } from './system-clock.js';
export { systemRandom } from './system-random.js';
export { PortReservations } from './port-reservations.js';
export { BUILD, COMMIT, VERSION } from './version.js';
