import { CommanderError, type OptionValues } from 'commander';
import { createOtlpLayer } from '@cloudless/observability';
import { EXIT_USAGE, getEnvName, readSettingLayers } from '@cloudless/app-kit/settings';
import {
  endBySignal,
  endOnStopSignals,
  protectFromOutOfMemory,
  systemClock,
} from '@cloudless/app-kit';
import { createAgentProgram, requireCommand, settingNames } from './agent-program.js';
import { parseAgentConfig } from './config.js';
import { lockDataDirectory } from './data/data-directory.js';
import type * as FullAgent from './full-agent.js';
import { importBundle } from './import-bundle.js';
import { startEarlyProxy } from './network/early-proxy.js';
import { proxyCommand } from './own-commands.js';
import { runToExitCode } from './run-to-exit-code.js';
import { startAgent } from './start-agent.js';
import { createJoinTokenLayer, JOIN_TOKEN_VARIABLE } from './tls-settings.js';

/**
 * Loads most of the code of the agent, whose bundle is beside this module. `run` loads the code as
 * soon as the network proxy starts, whatever happens then: an agent that runs reads no code any more.
 */
async function loadFullAgent(): Promise<typeof FullAgent> {
  return (await importBundle('full-agent')) as typeof FullAgent;
}

async function run(options: OptionValues): Promise<number> {
  const untilStopped = endOnStopSignals();
  const layers = [
    createOtlpLayer(process.env),
    createJoinTokenLayer(process.env),
    ...(await readSettingLayers(settingNames, options, process.env)),
  ];
  const config = parseAgentConfig(layers, process.env);
  // Workloads and their supervisor must not inherit the token.
  delete process.env[JOIN_TOKEN_VARIABLE];
  delete process.env[getEnvName(settingNames, 'joinToken')];
  protectFromOutOfMemory(); // the proxy inherits the protection
  return startAgent(config, {
    ...{ lockDataDirectory, untilStopped, endBySignal, clock: systemClock },
    startProxy: () => startEarlyProxy(config, proxyCommand),
    loadRest: async () => (await loadFullAgent()).runFullAgent,
  });
}

async function reset(options: OptionValues): Promise<number> {
  const layers = await readSettingLayers(settingNames, options, process.env);
  const { dataDir } = parseAgentConfig(layers, process.env);
  return (await loadFullAgent()).resetToExitCode(dataDir);
}

function main(argv: readonly string[]): Promise<number> {
  let outcome: () => Promise<number> = async () => 0;
  const commands = createAgentProgram({
    run: (options) => (outcome = () => run(options)),
    reset: (options) => (outcome = () => reset(options)),
    print: (text) => process.stdout.write(text),
  });
  return runToExitCode('cloudless-agent', async () => {
    requireCommand(argv.slice(2));
    try {
      commands.parse(argv as string[]);
    } catch (reason) {
      if (reason instanceof CommanderError) return reason.exitCode === 0 ? 0 : EXIT_USAGE;
      throw reason;
    }
    return await outcome();
  });
}

process.exitCode = await main(process.argv);
