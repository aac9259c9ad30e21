import { runSupervisor } from '@cloudless/runtime-process';
import { endMemoryProtection, systemClock, systemRandom } from '@cloudless/app-kit';
import { runToExitCode } from './run-to-exit-code.js';

// The supervisor of the process runtime.
process.exitCode = await runToExitCode('cloudless-agent', async () => {
  endMemoryProtection(); // workloads must not inherit the protection of the agent
  await runSupervisor({ args: process.argv.slice(3), clock: systemClock, random: systemRandom });
  return 0;
});
