import { systemClock, systemRandom } from '@cloudless/app-kit';
import { runNetworkProxy } from './network/run-network-proxy.js';
import { runToExitCode } from './run-to-exit-code.js';

// The network proxy of a node. It serves whatever happens to the agent, and is as important: it
// keeps the protection of the agent against a lack of memory.
const exitCode = await runToExitCode('cloudless-agent network-proxy', async () => {
  await runNetworkProxy({ args: process.argv.slice(3), clock: systemClock, random: systemRandom });
  return 0;
});
process.exit(exitCode); // open connections must not keep a proxy without a control socket
