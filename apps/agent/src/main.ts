import { readFile } from 'node:fs/promises';
import { CloudlessError, InvalidInputError, errorFields, errorMessageOf, type ConfigLayer } from '@cloudless/base';
import { createLog } from '@cloudless/observability';
import { runSupervisor } from '@cloudless/runtime-process';
import { systemClock, systemRandom } from '@cloudless/system';
import { Command, CommanderError, type OptionValues } from 'commander';
import { parse } from 'yaml';
import { parseAgentConfig, type AgentConfig } from './config.js';
import { resetAgent } from './reset.js';
import { runAgent } from './run-agent.js';
import { VERSION } from './version.js';

/** Bad usage or configuration. */
const EXIT_USAGE = 2;

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

/** Environment names are CLOUDLESS_AGENT_ and the flag in capitals: `--data-dir` is CLOUDLESS_AGENT_DATA_DIR. */
const ENV_PREFIX = 'CLOUDLESS_AGENT_';
const keys = Object.keys(flags) as (keyof AgentConfig)[];
const flagName = (key: string): string => (flags[key as keyof AgentConfig]?.[0] ?? key).split(' ')[0] ?? key;
const envName = (key: string): string => ENV_PREFIX + flagName(key).slice(2).replaceAll('-', '_').toUpperCase();

/** This same program as the runtime's supervisor, also when it runs from source. */
const supervisorCommand = [
  process.execPath,
  ...process.execArgv.filter((argument) => !argument.startsWith('--inspect')),
  process.argv[1] ?? '',
  'supervisor',
];

async function run(options: OptionValues): Promise<number> {
  const config = parseAgentConfig(await configLayers(options), process.env);
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

async function configLayers({ config, ...options }: OptionValues): Promise<readonly ConfigLayer[]> {
  const path = typeof config === 'string' ? config : process.env[`${ENV_PREFIX}CONFIG`];
  const file: ConfigLayer[] = path === undefined ? [] : [{ source: path, values: await readSettings(path) }];
  const fromEnv = Object.fromEntries(keys.map((key) => [key, process.env[envName(key)]]));
  const unknown = Object.keys(process.env).filter(
    (name) => name.startsWith(ENV_PREFIX) && name !== `${ENV_PREFIX}CONFIG` && !keys.some((key) => envName(key) === name),
  );
  for (const name of unknown) fromEnv[name] = process.env[name];
  return [
    ...file,
    { source: 'environment', values: fromEnv, nameOf: (key) => (unknown.includes(key) ? key : envName(key)) },
    { source: 'command line', values: options, nameOf: flagName },
  ];
}

async function readSettings(path: string): Promise<Record<string, unknown>> {
  let settings: unknown;
  try {
    settings = parse(await readFile(path, 'utf8'), { strict: true, uniqueKeys: true, maxAliasCount: 100 });
  } catch (reason) {
    throw new CloudlessError('invalid', `cannot read the settings at ${path}: ${errorMessageOf(reason)}`, { cause: reason });
  }
  if (settings === null) return {};
  if (typeof settings !== 'object' || Array.isArray(settings))
    throw new CloudlessError('invalid', `${path}: must be a map of settings`);
  return settings as Record<string, unknown>;
}

function withFlags(command: Command): Command {
  command.option(
    '--config <file>',
    'settings as YAML or JSON; keys are name, dataDir, label …; flags win over environment over file',
  );
  for (const [flag, description] of Object.values(flags)) command.option(flag, description);
  return command;
}

async function main(argv: readonly string[]): Promise<number> {
  let outcome: () => Promise<number> = async () => 0;
  const program = new Command('cloudless-agent')
    .description('Runs the replicas of a Cloudless cluster on this machine.')
    .version(VERSION)
    .enablePositionalOptions()
    .exitOverride();
  const runCommand = withFlags(program.command('run', { isDefault: true }).description('run the agent (default)')).exitOverride();
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
        const { dataDir } = parseAgentConfig(await configLayers(options), process.env);
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
    const lines =
      reason instanceof InvalidInputError
        ? reason.violations.map(({ field, message }) => `${field}: ${message}`)
        : [errorMessageOf(reason)];
    for (const line of lines) process.stderr.write(`cloudless-agent: ${line}\n`);
    return reason instanceof CloudlessError && reason.kind === 'invalid' ? EXIT_USAGE : 1;
  } finally {
    clearInterval(alive);
  }
}

process.exitCode = await main(process.argv);
