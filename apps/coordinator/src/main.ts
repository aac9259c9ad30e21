// eslint-disable-next-line import-x/order -- the other modules are a large part of the start
import { endStartFlags } from './prepare-v8.js';
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
  BUILD,
  VERSION,
} from '@cloudless/app-kit';
import { defaultDataDir, parseCoordinatorConfig, type CoordinatorConfig } from './config.js';
import { startCoordinator } from './coordinator.js';
import { startWatchdog } from './watchdog/watchdog.js';

const flags: Readonly<Record<keyof CoordinatorConfig, readonly [string, string]>> = {
  tls: [
    '--tls <mode>',
    'on: TLS and identities of nodes and users; off: plaintext, only on loopback (default on)',
  ],
  host: [
    '--host <address>',
    'address of the API; only loopback with --tls off (default 127.0.0.1)',
  ],
  port: ['--port <number>', 'port of the API; 0 selects a free port (default 8080)'],
  advertise: [
    '--advertise <names>',
    'names and addresses of this machine for the server certificate and the join command, separated by commas (default the host, or all addresses)',
  ],
  name: ['--name <name>', 'id of this coordinator in its certificate (default coordinator)'],
  trustDomain: [
    '--trust-domain <domain>',
    'trust domain of all identities of the cluster, fixed at its first start (default cloudless)',
  ],
  identityDir: [
    '--identity-dir <path>',
    'directory of the certificate authority and the token secret (default identity in the data directory)',
  ],
  secretsKeyFile: [
    '--secrets-key-file <path>',
    'key-encryption key of secrets, 32 bytes in hex or base64, mode 0600 (default secrets-key in the identity directory, created at the first start)',
  ],
  secretsPassphraseFile: [
    '--secrets-passphrase-file <path>',
    'passphrase in place of the key-encryption key, mode 0600 (default none)',
  ],
  secretsPreviousKeyFile: [
    '--secrets-previous-key-file <path>',
    'former key-encryption key, at the start that replaces the key (default none)',
  ],
  newAdminCredential: [
    '--new-admin-credential',
    'write a new admin.credential at this start, and revoke the earlier credentials of the user admin (default off)',
  ],
  defaultPolicies: [
    '--default-policies <mode>',
    'on: a new cluster begins with policies against privileged containers, the network of nodes and dangerous capabilities; off: with none (default on)',
  ],
  nodeCertificateLifetimeMs: [
    '--node-certificate-lifetime <duration>',
    'lifetime of certificates of nodes, which renew them from half of it (default 24h)',
  ],
  userCertificateLifetimeMs: [
    '--user-certificate-lifetime <duration>',
    'lifetime of certificates of users (default 168h)',
  ],
  workloadCertificateLifetimeMs: [
    '--workload-certificate-lifetime <duration>',
    'lifetime of certificates of workloads (default 24h)',
  ],
  serverCertificateLifetimeMs: [
    '--server-certificate-lifetime <duration>',
    'lifetime of the certificate of this coordinator, renewed from half of it (default 720h)',
  ],
  opsHost: [
    '--ops-host <address>',
    'address of /health, /ready and /metrics; on another address than loopback with TLS, and /metrics only for viewers (default 127.0.0.1)',
  ],
  opsPort: ['--ops-port <number>', 'port of /health, /ready and /metrics (default 8081)'],
  state: [
    '--state <engine>',
    'lmdb; etcd, for several coordinators; or memory, which loses everything at exit (default lmdb)',
  ],
  etcdEndpoints: [
    '--etcd-endpoints <urls>',
    'members of etcd, such as https://10.0.0.1:2379, separated by commas; the first one that answers is used',
  ],
  etcdCa: ['--etcd-ca <path>', 'certificates of the CA of etcd (default those of the system)'],
  etcdCert: ['--etcd-cert <path>', 'client certificate for etcd (default none)'],
  etcdKey: ['--etcd-key <path>', 'key of the client certificate, mode 0600'],
  etcdUser: ['--etcd-user <name>', 'user of etcd (default none)'],
  etcdPasswordFile: [
    '--etcd-password-file <path>',
    'file with the password of the user, mode 0600',
  ],
  etcdPrefix: ['--etcd-prefix <prefix>', 'prefix of all keys in etcd (default /cloudless)'],
  etcdInsecure: [
    '--etcd-insecure',
    'accept http:// endpoints of etcd on other machines: only on a network that is encrypted itself or has only these machines (default off)',
  ],
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
  serviceCidr: [
    '--service-cidr <range>',
    'IPv4 range of the virtual addresses of services, stored at the first start (default 10.96.0.0/16)',
  ],
  clusterDomain: [
    '--cluster-domain <name>',
    'domain below which services have names, stored at the first start (default cloudless.internal)',
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

/** Key of the HMAC by which tokens are stored, in place of the file `token-secret`. */
const TOKEN_SECRET_VARIABLE = 'CLOUDLESS_TOKEN_SECRET';
/** The key-encryption key of secrets, or its passphrase, in place of files. */
const SECRETS_KEY_VARIABLE = 'CLOUDLESS_SECRETS_KEY';
const SECRETS_PASSPHRASE_VARIABLE = 'CLOUDLESS_SECRETS_PASSPHRASE';
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
  const tokenSecret = takeVariable(TOKEN_SECRET_VARIABLE);
  const secretsKey = takeVariable(SECRETS_KEY_VARIABLE);
  const secretsPassphrase = takeVariable(SECRETS_PASSPHRASE_VARIABLE);
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
  // A store in memory does not wait for anything.
  const watchdog =
    config.state === 'memory' ? undefined : startWatchdog(log.child({ component: 'watchdog' }));
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
      version: BUILD,
      ...{ tokenSecret, secretsKey, secretsPassphrase },
      watchdog,
    });
    endStartFlags();
    const stopped = untilStopped();
    const { url, opsUrl, clusterId, identityFiles } = coordinator;
    const files = { ...identityFiles };
    log.info(READY_MESSAGES.coordinator, { url, opsUrl, clusterId, version: BUILD, ...files });
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
    await watchdog?.close();
    clearInterval(alive);
  }
}

/** Removes a secret from the environment, so that no child process inherits the secret. */
function takeVariable(name: string): string | undefined {
  const secret = process.env[name];
  delete process.env[name];
  return secret;
}

async function main(argv: readonly string[]): Promise<number> {
  const command = new Command('cloudless-coordinator')
    .description('API, scheduler, rollouts, membership and state of a Cloudless cluster.')
    .version(BUILD)
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
