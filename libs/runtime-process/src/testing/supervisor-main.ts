import { runSupervisor } from '../index.js';
import { realClock, realRandom } from './system.js';

await runSupervisor({ args: process.argv.slice(2), clock: realClock, random: realRandom });
process.exit(0);
