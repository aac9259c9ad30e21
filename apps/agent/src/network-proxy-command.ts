import { systemClock, systemRandom } from '@cloudless/app-kit';
import { importBundle } from './import-bundle.js';
import type { StartTracing } from './network/proxy-tracer.js';
import { runNetworkProxy } from './network/run-network-proxy.js';
import type * as ProxyTracing from './proxy-tracing.js';
import { runToExitCode } from './run-to-exit-code.js';

/** Loads the code that sends traces, whose bundle is beside this module. */
const startTracing: StartTracing = async (options) => {
  const loaded = (await importBundle('proxy-tracing')) as typeof ProxyTracing;
  return loaded.startTracing(options);
};

// The network proxy of a node. The proxy must outlive the agent, so it keeps the agent's protection
// against the out-of-memory killer.
const exitCode = await runToExitCode('cloudless-agent network-proxy', async () => {
  await runNetworkProxy({
    ...{ args: process.argv.slice(3), startTracing },
    clock: systemClock,
    random: systemRandom,
  });
  return 0;
});
process.exit(exitCode); // open connections must not keep a proxy without a control socket
