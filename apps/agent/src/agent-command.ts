import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { CommanderError, type OptionValues } from 'commander';
import { errorFields, errorReasonOf, StoppedError, type LogFields } from '@cloudless/base';
import {
  chooseLogStyle,
  createLog,
  createOtlpLayer,
  noTracing,
  startTracing,
} from '@cloudless/observability';
import {
  EXIT_USAGE,
  describeFailure,
  getEnvName,
  readSettingLayers,
} from '@cloudless/app-kit/settings';
import {
  endBySignal,
  endOnStopSignals,
  protectFromOutOfMemory,
  READY_MESSAGES,
  type ProcessStopSignal,
  systemClock,
  VERSION,
} from '@cloudless/app-kit';
import { createAgentProgram, requireCommand, settingNames } from './agent-program.js';
import { parseAgentConfig } from './config.js';
import { createJoinTokenLayer, JOIN_TOKEN_VARIABLE } from './tls-settings.js';
import { IDENTITY_FOLDER } from './identity/identity-directory.js';
import { resetAgent } from './reset.js';
import { readReplicaFilesPlace } from './replica-files/open-replica-files.js';
import { runAgent } from './run-agent.js';
import { runToExitCode } from './run-to-exit-code.js';

/** Command that runs this program, also from source. */
const program = [
  process.execPath,
  ...process.execArgv.filter((argument) => !argument.startsWith('--inspect')),
  process.argv[1] ?? '',
];
/** Command that runs this program as supervisor of the process runtime. */
const supervisorCommand = [...program, 'supervisor'];
/** Command that runs this program as network proxy. */
const proxyCommand = [...program, 'network-proxy'];

/**
 * Time limit of an aborted start. It takes milliseconds, unless a file system or a supervisor does
 * not answer.
 */
const GIVE_UP_WITHIN_MS = 2_000;

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
  let tracing = noTracing;
  const moment = (): LogFields => tracing.getLogFields();
  const log = createLog({
    level: config.logLevel,
    ...chooseLogStyle(config.logFormat, process.stdout, process.env),
    component: 'agent',
    contextFields: moment,
  }).child({ nodeId: config.name });
  protectFromOutOfMemory();
  const stopping = new AbortController();
  let stopped: Promise<ProcessStopSignal> | undefined;
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
    const running = await runAgent(
      config,
      {
        ...{ log, supervisorCommand, proxyCommand, tracing, onDataDirectory },
        replicaFilesPlace: readReplicaFilesPlace(process.env),
      },
      stopping.signal,
    );
    isReady = true;
    log.info(READY_MESSAGES.agent, {
      address: running.url?.replace(/^https?:\/\//, ''),
      opsUrl: running.opsUrl,
      dataDir: config.dataDir,
      runtimes: running.runtimes.names,
      containerRuntime: running.runtimes.containerRuntime,
      containers: running.runtimes.noContainersReason,
      network: running.hasNetwork,
      pid: process.pid,
      version: VERSION,
    });
    const end = await Promise.race([stopped, running.failed]);
    log.info('agent stopping', {
      ...(end instanceof Error ? errorFields(end) : { signal: end }),
      stopWorkloads: config.stopWorkloadsOnExit,
    });
    await running.close();
    if (end instanceof Error) throw end;
    log.info('agent stopped');
    return 0;
  } catch (reason) {
    if (reason instanceof StoppedError) {
      log.info('agent stopped before it had started');
      return 0;
    }
    const { text, exitCode } = describeFailure('cloudless-agent', reason);
    process.stderr.write(text);
    // A service manager should not start the agent again with a token that is refused.
    return errorReasonOf(reason) === 'INVALID_TOKEN' ? EXIT_USAGE : exitCode;
  } finally {
    await tracing.close();
  }
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

async function reset(options: OptionValues): Promise<number> {
  const { dataDir } = parseAgentConfig(
    await readSettingLayers(settingNames, options, process.env),
    process.env,
  );
  const hadIdentity = existsSync(join(dataDir, IDENTITY_FOLDER));
  const volumes = await resetAgent(dataDir, supervisorCommand);
  process.stdout.write(`${dataDir} was reset\n`);
  if (hadIdentity)
    process.stdout.write('the identity was removed: to join again, the agent needs a join token\n');
  if (volumes !== undefined) process.stdout.write(`named volumes are kept in ${volumes}\n`);
  return 0;
}

process.exitCode = await main(process.argv);
