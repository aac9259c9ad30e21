import { systemClock, systemRandom } from '@cloudless/app-kit';
import { runNetworkProxy } from './network/run-network-proxy.js';
import { runToExitCode } from './run-to-exit-code.js';

// The network proxy of a node. The proxy must outlive the agent, so it keeps the agent's protection
// against the out-of-memory killer.
const exitCode = await runToExitCode('cloudless-agent network-proxy', async () => {
  await runNetworkProxy({ args: process.argv.slice(3), clock: systemClock, random: systemRandom });
  return 0;
});
process.exit(exitCode); // open connections must not keep a proxy without a control socket
