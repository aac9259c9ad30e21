import { join } from 'node:path';
import {
  AdminService,
  AgentService,
  CoordinatorService,
  IdentityService,
  UserService,
  createErrorInterceptor,
  createValidationInterceptor,
} from '@cloudless/api';
import { createApiServer } from '@cloudless/api-server';
import {
  definedFields,
  errorFields,
  type CloudlessError,
  type Clock,
  type Log,
  type Random,
} from '@cloudless/base';
import { openClusterState, type ClusterState } from '@cloudless/cluster-state';
import {
  explainImpossibleLimits,
  startControllers,
  type RetentionLimits,
} from '@cloudless/controllers';
import {
  createFailureLog,
  createMetrics,
  createRpcObserver,
  noTracing,
  startLoopLagMeter,
  type RpcObserverOptions,
  type Tracing,
} from '@cloudless/observability';
import {
  callerKey,
  connectionKey,
  HealthState,
  startOpsServer,
  startRpcServer,
} from '@cloudless/rpc-node/server';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { openLmdbStateStore } from '@cloudless/state-store-lmdb';
import { isLoopbackHost } from '@cloudless/identity';
import type { CoordinatorConfig } from './config.js';
import { createCallAuthentication } from './identity/call-authentication.js';
import {
  openCoordinatorIdentity,
  type CoordinatorIdentity,
} from './identity/coordinator-identity.js';
import { writeFirstCredentials } from './identity/first-credentials.js';
import { ADMIN_CREDENTIAL_FILE, TokenFiles } from './identity/token-files.js';
import { isWildcard } from './identity/server-names.js';
import { startIdentityWatches } from './identity/identity-watches.js';
import { classifyRpc, classifySecureRpc } from './rpc-classes.js';
import { registerClusterMetrics } from './metrics.js';
import { registerStoreMetrics } from './store-metrics.js';
import { registerRpcMetrics } from './rpc-metrics.js';
import { StoreHealth } from './store-health.js';

/** The clock, log and identity of the process that runs a coordinator. */
export interface CoordinatorMachine {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly hostname: string;
  readonly pid: number;
  readonly version: string;
  /** Default: no tracing. */
  readonly tracing?: Tracing;
  /** Value of CLOUDLESS_TOKEN_SECRET. Default: the secret is in the identity directory. */
  readonly tokenSecret?: string | undefined;
}

/** A coordinator that serves. Close it exactly once. */
export interface RunningCoordinator {
  /** URL of the API. */
  readonly url: string;
  /** URL of the server of /health, /ready and /metrics. */
  readonly opsUrl: string;
  readonly clusterId: string;
  /** Paths of the files for administrators. Absent without TLS. */
  readonly identityFiles?: { readonly identityDir: string; readonly adminFile: string };
  /**
   * Resolves with the reason when this coordinator can no longer serve and must be closed: another
   * coordinator leads or uses the data directory, or the store is out of service. Until it is
   * closed, /health and /ready report the reason, and calls that need the store fail with kind
   * `unavailable`.
   */
  readonly ended: Promise<CloudlessError>;
  /**
   * Ends calls, control loops and the store, in this order. Running calls have
   * {@link CLOSE_GRACE_MS} to complete. Agents and their replicas go on.
   */
  close(): Promise<void>;
}

/** Time that running calls have to complete at shutdown, milliseconds. */
const CLOSE_GRACE_MS = 2_000;
/**
 * Interval at which the data file and its lock are checked while nothing is written, milliseconds.
 * A lost file is detected at the latest after this time.
 */
const CHECK_INTERVAL_MS = 1_000;
/** Interval at which agents report usage and conditions, milliseconds. */
const USAGE_INTERVAL_MS = 10_000;

/**
 * Opens the store, acquires the leadership, starts the controllers, then serves.
 * @returns The coordinator once it serves the API and the ops endpoints.
 * @throws the first error of these steps, after the completed steps were undone.
 */
export async function startCoordinator(
  config: CoordinatorConfig,
  machine: CoordinatorMachine,
): Promise<RunningCoordinator> {
  const { clock, random, log, tracing = noTracing } = machine;
  const { tracer } = tracing;
  const closeSteps: (() => Promise<void>)[] = [];
  const close = async (): Promise<void> => {
    for (const step of closeSteps.reverse().splice(0))
      await step().catch((reason: unknown) =>
        log.error('shutdown step failed', errorFields(reason)),
      );
  };
  try {
    const metrics = createMetrics({ process: true });
    const storeHealth = new StoreHealth();
    const store = await openStore(config, machine, storeHealth);
    closeSteps.push(() => store.close());
    const state = await openClusterState({
      store,
      clock,
      random,
      log: log.child({ component: 'state' }),
      holder: `${machine.hostname}/${machine.pid}`,
      meter: metrics,
      tracer,
    });
    closeSteps.push(() => state.close());
    const unsubscribe = reportEnds(state, storeHealth);
    closeSteps.push(async () => unsubscribe());
    const identity =
      config.tls === 'on' ? await openCoordinatorIdentity(config, machine, state) : undefined;
    closeSteps.push(async () => identity?.close());
    const controllers = startControllers({
      state,
      clock,
      random,
      log,
      leaseMs: config.leaseMs,
      leaveGraceMs: config.leaveGraceMs,
      ...definedFields({ hungAfterMs: config.hungAfterMs }),
      retention: getRetention(config),
      meter: metrics,
      tracer,
      ...definedFields({ weights: config.weights }),
    });
    closeSteps.push(() => controllers.close());
    const access = identity && createCallAuthentication({ state, machine, identity, metrics });
    closeSteps.push(async () => access?.close());
    const api = createApiServer({
      state,
      clock,
      random,
      log: log.child({ component: 'api' }),
      nodes: controllers.nodes,
      presenter: controllers.presenter,
      dryRun: controllers.dryRun,
      whatIf: controllers.whatIf,
      placements: controllers.placements,
      explainImpossibleLimits,
      getConnection: (context) => context.values.get(connectionKey),
      ...access?.apiDeps,
      version: machine.version,
      timings: { leaseMs: config.leaseMs, pingMs: config.pingMs, usageMs: USAGE_INTERVAL_MS },
      meter: metrics,
      tracer,
    });
    closeSteps.push(() => api.close());
    const watches =
      identity && startIdentityWatches(config, machine, { state, identity, controllers, metrics });
    closeSteps.push(async () => watches?.close());
    registerClusterMetrics(metrics, state, controllers);
    if (config.state === 'lmdb') registerStoreMetrics(metrics, config.dataDir);
    storeHealth.registerMetrics(metrics);
    const health = new HealthState();
    void storeHealth.ended.then(() => health.setAll('notServing'));
    const lag = startLoopLagMeter(clock, metrics);
    closeSteps.push(async () => lag.close());
    const rpc = await startRpcServer({
      host: config.host,
      port: config.port,
      portOption: '--port',
      registerRoutes: api.registerRoutes,
      interceptors: [
        tracing.serverInterceptor,
        createRpcObserver({
          clock,
          meter: metrics,
          log: log.child({ component: 'rpc' }),
          getClientAddress,
          getPrincipal: ({ contextValues }) => contextValues.get(callerKey)?.principal.name,
        }),
        createErrorInterceptor(
          createFailureLog({ clock, log }, 'call failed with an internal error'),
        ),
        createValidationInterceptor(SERVICES),
      ],
      reflectedServices: SERVICES,
      ...access?.rpcOptions,
      health,
      allowedOrigins: config.allowedOrigins,
      classifyCall: identity === undefined ? classifyRpc : classifySecureRpc,
      getLoopLagMs: () => lag.takeMaxMs(),
      clock,
      log: log.child({ component: 'rpc' }),
    });
    registerRpcMetrics(metrics, () => rpc.getLoad());
    closeSteps.push(() => rpc.close(CLOSE_GRACE_MS));
    access?.recheckOnChange(rpc);
    const ops = await startOpsServer({
      host: config.opsHost,
      port: config.opsPort,
      portOption: '--ops-port',
      clock,
      log: log.child({ component: 'ops' }),
      checkHealth: () => storeHealth.getHealth(watches?.listFileWarnings()),
      checkReadiness: () => {
        const reasons = [
          ...storeHealth.getReadinessProblems(),
          ...(state.storeRolledBackReason === undefined ? [] : [state.storeRolledBackReason]),
        ];
        const degraded = [...api.listWarnings(), ...(watches?.listWarnings() ?? [])];
        if (reasons.length > 0) return { ok: false, reasons: [...reasons, ...degraded] };
        return degraded.length === 0 ? { ok: true } : { ok: true, degraded };
      },
      renderMetrics: () => metrics.expose(),
      ...(isLoopbackHost(config.opsHost) ? {} : access?.opsOptions),
    });
    closeSteps.push(() => ops.close());
    if (identity === undefined)
      log.warn('serving in plaintext on loopback: no TLS, no identities', { host: config.host });
    else {
      await writeFirstCredentials({
        ...{ state, clock, random, log: log.child({ component: 'identity' }) },
        identities: identity.identities,
        directory: identity.directory,
        mustRenew: config.newAdminCredential || identity.hasVoidTokens,
        joinUrl: toUrl(identity.names.primary, rpc.address.port),
      });
      const tokenFiles = new TokenFiles({ ...identity, log: log.child({ component: 'identity' }) });
      closeSteps.push(() => tokenFiles.close());
    }
    return {
      url: identity === undefined ? rpc.url : toPublicUrl(config, identity, rpc.address.port),
      opsUrl: ops.url,
      clusterId: state.clusterId,
      ...(identity === undefined ? {} : { identityFiles: listIdentityFiles(identity) }),
      ended: storeHealth.ended,
      close,
    };
  } catch (reason) {
    await close();
    throw reason;
  }
}

/** The services that a coordinator serves. */
const SERVICES = [CoordinatorService, AgentService, AdminService, IdentityService, UserService];

function toUrl(host: string, port: number): string {
  return `https://${host.includes(':') && !host.startsWith('[') ? `[${host}]` : host}:${port}`;
}

/** Returns the URL of the API. Clients cannot connect to 0.0.0.0, which stands for all addresses. */
function toPublicUrl(
  { host }: CoordinatorConfig,
  { names }: CoordinatorIdentity,
  port: number,
): string {
  return toUrl(isWildcard(host) ? names.primary : host, port);
}

function listIdentityFiles({ directory }: CoordinatorIdentity) {
  return { identityDir: directory, adminFile: join(directory, ADMIN_CREDENTIAL_FILE) };
}

/** Returns the address of the client of a call. */
const getClientAddress: NonNullable<RpcObserverOptions['getClientAddress']> = ({ contextValues }) =>
  contextValues.get(connectionKey)?.remoteAddress;

function getRetention(config: CoordinatorConfig): RetentionLimits {
  const {
    auditRetentionMs: auditMs,
    eventRetentionMs: eventMs,
    auditBytes,
    eventBytes,
    requestBytes,
  } = config;
  return { auditMs, eventMs, auditBytes, eventBytes, requestBytes };
}

/**
 * Reports the loss of the leadership, and the end of the cluster state, to `health`.
 * @returns A function that ends the reports. Call it before the state is closed on purpose.
 */
function reportEnds(state: ClusterState, health: StoreHealth): () => void {
  const unsubscribes = [state.onLeadershipLost(health.reportEnd), state.onEnd(health.reportEnd)];
  return () => unsubscribes.forEach((unsubscribe) => unsubscribe());
}

function openStore(
  config: CoordinatorConfig,
  { clock, log }: CoordinatorMachine,
  health: StoreHealth,
): Promise<StateStore> {
  const { historyBytes } = config;
  if (config.state === 'memory') {
    log.warn('state is kept in memory only: all state is lost when the coordinator stops');
    return Promise.resolve(createMemoryStateStore({ clock, historyBytes }));
  }
  return openLmdbStateStore({
    directory: config.dataDir,
    historyBytes,
    clock,
    log: log.child({ component: 'store' }),
    onDiskSpaceChange: health.reportDiskSpace,
    onFault: health.reportFault,
    checkIntervalMs: CHECK_INTERVAL_MS,
  });
}
