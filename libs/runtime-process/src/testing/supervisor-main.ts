import { runSupervisor } from '../index.js';
import { realClock, realRandom } from './system.js';

const args = process.argv.slice(2);
await runSupervisor({
  args,
  clock: realClock,
  random: realRandom,
  useCgroups: !args.includes('--without-cgroups'),
});
process.exit(0);
