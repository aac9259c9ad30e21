import { hostname } from 'node:os';
import { Command, CommanderError } from 'commander';
import { errorFields, type LogFields } from '@cloudless/base';
import {
  OTLP_ENDPOINT_VARIABLE,
  chooseLogStyle,
  createLog,
  noTracing,
  createOtlpLayer,
  startTracing,
} from '@cloudless/observability';
import {
  EXIT_USAGE,
  addSettingFlags,
  describeFailure,
  readSettingLayers,
  type SettingNames,
} from '@cloudless/app-kit/settings';
import {
  endOnStopSignals,
  protectFromOutOfMemory,
  READY_MESSAGES,
  systemClock,
  systemRandom,
  VERSION,
} from '@cloudless/app-kit';
import { defaultDataDir, parseCoordinatorConfig, type CoordinatorConfig } from './config.js';
import { startCoordinator } from './coordinator.js';

const flags: Readonly<Record<keyof CoordinatorConfig, readonly [string, string]>> = {
  host: [
    '--host <address>',
    'address of the API; loopback only while there is no TLS (default 127.0.0.1)',
  ],
  port: ['--port <number>', 'port of the API; 0 selects a free port (default 8080)'],
  opsPort: ['--ops-port <number>', 'port of /health, /ready and /metrics (default 8081)'],
  state: ['--state <engine>', 'lmdb, or memory, which loses everything at exit (default lmdb)'],
  dataDir: [
    '--data-dir <path>',
    'default $XDG_STATE_HOME/cloudless/coordinator, below ~/.local/state',
  ],
  leaseMs: [
    '--lease <duration>',
    'lease of a node: time without a PING after which the node is lost (default 3s)',
  ],
  pingMs: ['--ping-interval <duration>', "interval of the agents' PINGs (default 900ms)"],
  leaveGraceMs: [
    '--leave-grace <duration>',
    'time within which an agent that was stopped in good order may return before its replicas are replaced; 0s: none (default 1m)',
  ],
  hungAfterMs: [
    '--hung-after <duration>',
    'time after which a node whose agent is alive but does not work is lost (default 30s, or a longer lease)',
  ],
  logLevel: ['--log-level <level>', 'error, warn, info or debug (default info)'],
  logFormat: [
    '--log-format <format>',
    'auto, json or pretty; auto is pretty on a terminal and json elsewhere (default auto)',
  ],
  otlpEndpoint: [
    '--otlp-endpoint <url>',
    `receiver of traces, OTLP over HTTP (default $${OTLP_ENDPOINT_VARIABLE}, else none)`,
  ],
  auditRetentionMs: [
    '--audit-retention <duration>',
    'retention of audit records, such as 720h (default 720h)',
  ],
  eventRetentionMs: ['--event-retention <duration>', 'retention of other events (default 720h)'],
  auditBytes: [
    '--audit-bytes <size>',
    'size limit of audit records, such as 512Ki or 64Mi (default 16Mi)',
  ],
  eventBytes: ['--event-bytes <size>', 'size limit of other events (default 4Mi)'],
  requestBytes: [
    '--request-bytes <size>',
    'size limit of results kept for retries with a request id (default 64Mi)',
  ],
  historyBytes: [
    '--history-bytes <size>',
    'size limit of the change history for resumed watches (default 64Mi)',
  ],
  allowedOrigins: [
    '--allowed-origin <origins>',
    'web origins that may call the API beside those on loopback, separated by commas (default none)',
  ],
  weights: [
    '--weights <numbers>',
    'weights of the score: locality,reliability,cost,utilisation,network penalty',
  ],
};
const names: SettingNames = { flags, envPrefix: 'CLOUDLESS_COORDINATOR_' };

const EXIT_FAILED = 1;
/**
 * Limit of an orderly close. A disk that does not answer may block the close, while a supervisor
 * waits for the end of this process.
 */
const CLOSE_TIMEOUT_MS = 10_000;

async function run(options: Readonly<Record<string, unknown>>): Promise<number> {
  const untilStopped = endOnStopSignals();
  const layers = [
    createOtlpLayer(process.env),
    ...(await readSettingLayers(names, options, process.env)),
  ];
  const config = parseCoordinatorConfig(layers, defaultDataDir(process.env));
  let tracing = noTracing;
  const contextFields = (): LogFields => tracing.getLogFields();
  const log = createLog({
    level: config.logLevel,
    ...chooseLogStyle(config.logFormat, process.stdout, process.env),
    component: 'coordinator',
    contextFields,
  });
  protectFromOutOfMemory();
  // Timers of the control loops do not keep a process alive, and open sockets alone must not
  // decide.
  const alive = setInterval(() => undefined, 2 ** 30);
  try {
    tracing = await startTracing({
      endpoint: config.otlpEndpoint,
      service: 'cloudless-coordinator',
      version: VERSION,
      instance: `${hostname()}/${process.pid}`,
      clock: systemClock,
      log: log.child({ component: 'traces' }),
    });
    const coordinator = await startCoordinator(config, {
      tracing,
      clock: systemClock,
      random: systemRandom,
      log,
      hostname: hostname(),
      pid: process.pid,
      version: VERSION,
    });
    const stopped = untilStopped();
    const { url, opsUrl, clusterId } = coordinator;
    log.info(READY_MESSAGES.coordinator, { url, opsUrl, clusterId, version: VERSION });
    const reason = await Promise.race([coordinator.ended, stopped]);
    if (typeof reason === 'string') log.info('coordinator stopping', { signal: reason });
    else {
      log.error(
        'coordinator stopping: its state store is lost or out of service',
        errorFields(reason),
      );
      systemClock.setTimer(CLOSE_TIMEOUT_MS, () => process.kill(process.pid, 'SIGKILL'));
    }
    await coordinator.close();
    return typeof reason === 'string' ? 0 : EXIT_FAILED;
  } finally {
    await tracing.close();
    clearInterval(alive);
  }
}

async function main(argv: readonly string[]): Promise<number> {
  const command = new Command('cloudless-coordinator')
    .description('API, scheduler, rollouts, membership and state of a Cloudless cluster.')
    .version(VERSION)
    .exitOverride();
  addSettingFlags(command, names);
  try {
    command.parse(argv as string[]);
    return await run(command.opts());
  } catch (reason) {
    if (reason instanceof CommanderError) return reason.exitCode === 0 ? 0 : EXIT_USAGE;
    const { text, exitCode } = describeFailure('cloudless-coordinator', reason);
    process.stderr.write(text);
    return exitCode;
  }
}

process.exitCode = await main(process.argv);
