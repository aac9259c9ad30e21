import { systemClock, systemRandom } from '@cloudless/app-kit';
import { runSupervisor } from '../index.js';

/**
 * Main program of the supervisor in specs:
 * `supervisor-main [--without-cgroups] <directory> <idle ms>`.
 */
const args = process.argv.slice(2);
await runSupervisor({
  args,
  clock: systemClock,
  random: systemRandom,
  useCgroups: !args.includes('--without-cgroups'),
});
process.exit(0);
