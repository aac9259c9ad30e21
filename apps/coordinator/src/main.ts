import { readFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { CloudlessError, InvalidInputError, errorFields, errorMessageOf, type ConfigLayer } from '@cloudless/base';
import { createLog } from '@cloudless/observability';
import { systemClock, systemRandom } from '@cloudless/system';
import { Command, CommanderError } from 'commander';
import { parse } from 'yaml';
import { defaultDataDir, parseCoordinatorConfig } from './config.js';
import { startCoordinator } from './coordinator.js';
import { VERSION } from './version.js';

/** Bad usage or configuration. */
const EXIT_USAGE = 2;

const flags = {
  host: '--host <address>',
  port: '--port <number>',
  opsPort: '--ops-port <number>',
  state: '--state <lmdb|memory>',
  dataDir: '--data-dir <path>',
  leaseMs: '--lease <duration>',
  pingMs: '--ping-interval <duration>',
  logLevel: '--log-level <error|warn|info|debug>',
  logFormat: '--log-format <json|pretty>',
  weights: '--weights <locality,reliability,cost,utilisation,network penalty>',
} as const;

/** Environment names are CLOUDLESS_COORDINATOR_ and the flag in capitals: `--data-dir` is CLOUDLESS_COORDINATOR_DATA_DIR. */
const ENV_PREFIX = 'CLOUDLESS_COORDINATOR_';

const flagName = (key: string): string => (flags[key as keyof typeof flags] ?? key).split(' ')[0] ?? key;
const envName = (key: string): string => ENV_PREFIX + flagName(key).slice(2).replaceAll('-', '_').toUpperCase();

async function main(argv: readonly string[]): Promise<number> {
  const command = new Command('cloudless-coordinator')
    .description('API, scheduler, rollouts, membership and state of a Cloudless cluster.')
    .version(VERSION)
    .option('--config <file>', 'settings as YAML or JSON; keys are port, opsPort, dataDir …')
    .exitOverride();
  for (const flag of Object.values(flags)) command.option(flag);
  try {
    command.parse(argv as string[]);
  } catch (reason) {
    if (reason instanceof CommanderError) return reason.exitCode === 0 ? 0 : EXIT_USAGE;
    throw reason;
  }
  let config: ReturnType<typeof parseCoordinatorConfig>;
  try {
    const layers = await configLayers(command.opts<Record<string, string>>());
    config = parseCoordinatorConfig(layers, defaultDataDir(process.env));
  } catch (reason) {
    if (!(reason instanceof CloudlessError)) throw reason;
    for (const line of reason instanceof InvalidInputError
      ? reason.violations.map(({ field, message }) => `${field}: ${message}`)
      : [reason.message]) {
      process.stderr.write(`cloudless-coordinator: ${line}\n`);
    }
    return EXIT_USAGE;
  }
  const log = createLog({ level: config.logLevel, format: config.logFormat, component: 'coordinator' });
  const stopped = new Promise<string>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve(signal));
  });
  try {
    const coordinator = await startCoordinator(config, {
      clock: systemClock,
      random: systemRandom,
      log,
      hostname: hostname(),
      pid: process.pid,
      version: VERSION,
    });
    log.info('coordinator ready', {
      url: coordinator.url,
      opsUrl: coordinator.opsUrl,
      clusterId: coordinator.clusterId,
      version: VERSION,
    });
    // Timers of the loops do not keep a process alive, and sockets alone should not decide.
    const alive = setInterval(() => undefined, 2 ** 30);
    log.info('coordinator stopping', { signal: await stopped });
    clearInterval(alive);
    await coordinator.close();
    return 0;
  } catch (reason) {
    log.error('coordinator cannot start', errorFields(reason));
    process.stderr.write(`cloudless-coordinator: ${errorMessageOf(reason)}\n`);
    return 1;
  }
}

async function configLayers({ config, ...options }: Record<string, string>): Promise<readonly ConfigLayer[]> {
  const file: ConfigLayer[] = config === undefined ? [] : [{ source: config, values: await readSettings(config) }];
  const fromEnv = Object.fromEntries(Object.keys(flags).map((key) => [key, process.env[envName(key)]]));
  const fromFlags = Object.fromEntries(
    Object.keys(flags).map((key) => [
      key,
      options[
        flagName(key)
          .slice(2)
          .replace(/-(.)/g, (_, letter: string) => letter.toUpperCase())
      ],
    ]),
  );
  return [
    ...file,
    { source: 'environment', values: fromEnv, nameOf: envName },
    { source: 'command line', values: fromFlags, nameOf: flagName },
  ];
}

async function readSettings(path: string): Promise<Record<string, unknown>> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (reason) {
    throw new CloudlessError('invalid', `cannot read the settings at ${path}: ${errorMessageOf(reason)}`, { cause: reason });
  }
  let settings: unknown;
  try {
    settings = parse(text);
  } catch (reason) {
    throw new CloudlessError('invalid', `${path} is not YAML: ${errorMessageOf(reason)}`, { cause: reason });
  }
  if (settings === null) return {};
  if (typeof settings !== 'object' || Array.isArray(settings))
    throw new CloudlessError('invalid', `${path}: must be a map of settings`);
  return settings as Record<string, unknown>;
}

process.exitCode = await main(process.argv);
