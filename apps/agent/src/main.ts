import { errorFields, errorMessageOf, StoppedError, type LogFields } from '@cloudless/base';
import { OTLP_ENDPOINT_VARIABLE, createLog, noTracing, otlpLayer, startTracing } from '@cloudless/observability';
import { runSupervisor } from '@cloudless/runtime-process';
import { EXIT_USAGE, addSettingFlags, describeFailure, readSettingLayers, type SettingNames } from '@cloudless/settings';
import {
  endBySignal,
  endMemoryProtection,
  endOnStopSignals,
  protectFromOutOfMemory,
  systemClock,
  systemRandom,
  type StopSignal,
} from '@cloudless/system';
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
  startConcurrency: [
    '--start-concurrency <count>',
    'containers being started at a time (default twice the processors, at least 4)',
  ],
  reserveCpu: ['--reserve-cpu <cores>', 'kept for the system: 0.5 or 500m (default 0)'],
  reserveMemory: ['--reserve-memory <amount>', 'kept for the system: 512Mi (default 0)'],
  portRange: ['--port-range <from-to>', 'ports given to workloads (default 20000-29999)'],
  runtime: ['--runtime <name>', 'auto, process or cri: what runs beside plain processes (default auto: containers if it can)'],
  criSocket: [
    '--cri-socket <path>',
    'of the container runtime (default: the first that answers of the usual places of containerd and CRI-O)',
  ],
  allowPrivileged: ['--allow-privileged', 'let containers have all privileges of root on this machine'],
  allowDevice: ['--allow-device <path[,path]>', 'devices of this machine that containers may use (default none)'],
  allowSysctl: ['--allow-sysctl <name[,name]>', 'kernel parameters that containers may set beside the safe ones (default none)'],
  allowHostPath: ['--allow-host-path <path[,path]>', 'directories of this machine that containers may mount (default none)'],
  maxPids: ['--max-pids <count>', 'processes and threads of a container whose workload sets no limit (default 4096)'],
  stopWorkloadsOnExit: ['--stop-workloads-on-exit', 'end everything at the end of the agent; for clusters that are put away'],
  logLevel: ['--log-level <level>', 'error, warn, info or debug (default info)'],
  logFormat: ['--log-format <format>', 'json or pretty (default json)'],
  opsListen: [
    '--ops-listen <host:port>',
    'serve /health, /ready and /metrics there; loopback only; port 0 lets the system choose',
  ],
  otlpEndpoint: ['--otlp-endpoint <url>', `receiver of traces, OTLP over HTTP (default $${OTLP_ENDPOINT_VARIABLE}, else none)`],
};

const names: SettingNames = { flags, envPrefix: 'CLOUDLESS_AGENT_' };

/** This same program as the runtime's supervisor, also when it runs from source. */
const supervisorCommand = [
  process.execPath,
  ...process.execArgv.filter((argument) => !argument.startsWith('--inspect')),
  process.argv[1] ?? '',
  'supervisor',
];

/** A start that was given up ends in good order within milliseconds, unless a file system or a supervisor does not answer. */
const GIVE_UP_WITHIN_MS = 2_000;

async function run(options: OptionValues): Promise<number> {
  const untilStopped = endOnStopSignals();
  const layers = [otlpLayer(process.env), ...(await readSettingLayers(names, options, process.env))];
  const config = parseAgentConfig(layers, process.env);
  let tracing = noTracing;
  const moment = (): LogFields => tracing.logFields();
  const { logLevel: level, logFormat: format } = config;
  const log = createLog({ level, format, component: 'agent', moment }).child({ nodeId: config.name });
  protectFromOutOfMemory();
  const stopping = new AbortController();
  let stopped: Promise<StopSignal> | undefined;
  let isReady = false;
  const onDataDirectory = (): void => {
    stopped = untilStopped();
    void stopped.then((signal) => {
      stopping.abort();
      if (!isReady) systemClock.setTimer(GIVE_UP_WITHIN_MS, () => endBySignal(signal));
    });
  };
  try {
    tracing = await startTracing({
      endpoint: config.otlpEndpoint,
      service: 'cloudless-agent',
      version: VERSION,
      instance: config.name,
      clock: systemClock,
      log: log.child({ component: 'traces' }),
    });
    const running = await runAgent(config, { log, supervisorCommand, tracing, onDataDirectory }, stopping.signal);
    isReady = true;
    log.info('agent ready', {
      address: running.url?.replace('http://', ''),
      opsUrl: running.opsUrl,
      dataDir: config.dataDir,
      runtimes: running.runtimes.names,
      containerRuntime: running.runtimes.containers,
      containers: running.runtimes.withoutContainers,
      pid: process.pid,
      version: VERSION,
    });
    log.info('agent stopping', { signal: await stopped, stopWorkloads: config.stopWorkloadsOnExit });
    await running.close();
    log.info('agent stopped');
    return 0;
  } catch (reason) {
    if (reason instanceof StoppedError) {
      log.info('agent stopped before it was ready');
      return 0;
    }
    log.error('agent cannot run', errorFields(reason));
    process.stderr.write(`cloudless-agent: ${errorMessageOf(reason)}\n`);
    return 1;
  } finally {
    await tracing.close();
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
        const volumes = await resetAgent(dataDir, supervisorCommand);
        process.stdout.write(`${dataDir} was reset\n`);
        if (volumes !== undefined) process.stdout.write(`named volumes are left in ${volumes}\n`);
        return 0;
      };
    });
  program
    .command('supervisor', { hidden: true })
    .allowUnknownOption()
    .allowExcessArguments()
    .action(() => {
      outcome = async () => {
        endMemoryProtection(); // of the agent: workloads must not have it
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
