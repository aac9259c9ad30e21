export { systemClock } from './system-clock.js';
export { systemRandom } from './system-random.js';
export { PortReservations } from './port-reservations.js';
