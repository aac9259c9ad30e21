import { errorFields, errorMessageOf } from '@cloudless/base';
import { createLog } from '@cloudless/observability';
import { runSupervisor } from '@cloudless/runtime-process';
import { EXIT_USAGE, addSettingFlags, describeFailure, readSettingLayers, type SettingNames } from '@cloudless/settings';
import { systemClock, systemRandom } from '@cloudless/system';
import { Command, CommanderError, type OptionValues } from 'commander';
import { parseAgentConfig, type AgentConfig } from './config.js';
import { resetAgent } from './reset.js';
import { runAgent } from './run-agent.js';
import { VERSION } from './version.js';

const flags: Readonly<Record<keyof AgentConfig, readonly [string, string]>> = {
  name: ['--name <name>', 'id of this node (default: the host name)'],
  coordinator: ['--coordinator <url[,url]>', 'coordinators, tried in turn (default http://127.0.0.1:8080)'],
  dataDir: ['--data-dir <path>', 'default $XDG_STATE_HOME/cloudless/agent-<name>, below ~/.local/state'],
  listen: ['--listen <host:port>', 'serve AgentService there; loopback only; port 0 lets the system choose'],
  region: ['--region <name>', 'where the machine is'],
  zone: ['--zone <name>', 'what fails together with it'],
  label: ['--label <key=value...>', 'label of the node'],
  taint: ['--taint <key=value:EFFECT...>', 'keeps off what does not tolerate it: NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE'],
  maxReplicas: ['--max-replicas <count>', 'most replicas at a time (default 110)'],
  reserveCpu: ['--reserve-cpu <cores>', 'kept for the system: 0.5 or 500m (default 0)'],
  reserveMemory: ['--reserve-memory <amount>', 'kept for the system: 512Mi (default 0)'],
  portRange: ['--port-range <from-to>', 'ports given to workloads (default 20000-29999)'],
  stopWorkloadsOnExit: ['--stop-workloads-on-exit', 'end everything at the end of the agent; for clusters that are put away'],
  logLevel: ['--log-level <level>', 'error, warn, info or debug (default info)'],
  logFormat: ['--log-format <format>', 'json or pretty (default json)'],
};

const names: SettingNames = { flags, envPrefix: 'CLOUDLESS_AGENT_' };

/** This same program as the runtime's supervisor, also when it runs from source. */
const supervisorCommand = [
  process.execPath,
  ...process.execArgv.filter((argument) => !argument.startsWith('--inspect')),
  process.argv[1] ?? '',
  'supervisor',
];

async function run(options: OptionValues): Promise<number> {
  const config = parseAgentConfig(await readSettingLayers(names, options, process.env), process.env);
  const log = createLog({ level: config.logLevel, format: config.logFormat, component: 'agent' }).child({ nodeId: config.name });
  const stopped = new Promise<string>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve(signal));
  });
  try {
    const running = await runAgent(config, { log, supervisorCommand });
    log.info('agent ready', {
      address: running.url?.replace('http://', ''),
      dataDir: config.dataDir,
      pid: process.pid,
      version: VERSION,
    });
    log.info('agent stopping', { signal: await stopped, stopWorkloads: config.stopWorkloadsOnExit });
    await running.close();
    log.info('agent stopped');
    return 0;
  } catch (reason) {
    log.error('agent cannot run', errorFields(reason));
    process.stderr.write(`cloudless-agent: ${errorMessageOf(reason)}\n`);
    return 1;
  }
}

async function main(argv: readonly string[]): Promise<number> {
  let outcome: () => Promise<number> = async () => 0;
  const program = new Command('cloudless-agent')
    .description('Runs the replicas of a Cloudless cluster on this machine.')
    .version(VERSION)
    .enablePositionalOptions()
    .exitOverride();
  const runCommand = program.command('run', { isDefault: true }).description('run the agent (default)').exitOverride();
  addSettingFlags(runCommand, names);
  runCommand.action((options: OptionValues) => {
    outcome = () => run(options);
  });
  program
    .command('reset')
    .description('make an agent forget its cluster: end what it runs, remove its data')
    .option(...flags.name)
    .option(...flags.dataDir)
    .exitOverride()
    .action((options: OptionValues) => {
      outcome = async () => {
        const { dataDir } = parseAgentConfig(await readSettingLayers(names, options, process.env), process.env);
        await resetAgent(dataDir, supervisorCommand);
        process.stdout.write(`${dataDir} was reset\n`);
        return 0;
      };
    });
  program
    .command('supervisor', { hidden: true })
    .allowUnknownOption()
    .allowExcessArguments()
    .action(() => {
      outcome = async () => {
        await runSupervisor({ args: argv.slice(3), clock: systemClock, random: systemRandom });
        return 0;
      };
    });
  program
    .command('version')
    .description('print the version')
    .action(() => {
      process.stdout.write(`${VERSION}\n`);
    });
  // Timers of the loops do not keep a process alive, and sockets alone should not decide.
  const alive = setInterval(() => undefined, 2 ** 30);
  try {
    program.parse(argv as string[]);
    return await outcome();
  } catch (reason) {
    if (reason instanceof CommanderError) return reason.exitCode === 0 ? 0 : EXIT_USAGE;
    const { text, exitCode } = describeFailure('cloudless-agent', reason);
    process.stderr.write(text);
    return exitCode;
  } finally {
    clearInterval(alive);
  }
}

process.exitCode = await main(process.argv);
