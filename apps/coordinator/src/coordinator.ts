import {
  AdminService,
  AgentService,
  CoordinatorService,
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
  connectionKey,
  HealthState,
  startOpsServer,
  startRpcServer,
} from '@cloudless/rpc-node/server';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { openLmdbStateStore } from '@cloudless/state-store-lmdb';
import type { CoordinatorConfig } from './config.js';
import { classifyRpc } from './rpc-classes.js';
import { registerClusterMetrics } from './metrics.js';
import { registerStoreMetrics } from './store-metrics.js';
import { registerRpcMetrics } from './rpc-metrics.js';
import { StoreHealth } from './store-health.js';

/** Everything that a coordinator takes from its process and machine. */
export interface CoordinatorMachine {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly hostname: string;
  readonly pid: number;
  readonly version: string;
  /** Default: no tracing. */
  readonly tracing?: Tracing;
}

export interface RunningCoordinator {
  readonly url: string;
  readonly opsUrl: string;
  readonly clusterId: string;
  /**
   * Resolves when this coordinator can no longer serve and must be closed: another coordinator
   * leads or has the data directory, or the store is out of service. Until then probes report the
   * reason, and calls that need the store fail as `unavailable`.
   */
  readonly ended: Promise<CloudlessError>;
  /**
   * Ends calls, control loops and the store, in this order. Agents and their workloads continue.
   */
  close(): Promise<void>;
}

/** Time for running calls at shutdown. */
const CLOSE_GRACE_MS = 2_000;
/** Interval of checks of the data file and its lock without writes. */
const CHECK_INTERVAL_MS = 1_000;

/**
 * Opens the store, acquires the leadership, starts the controllers, then serves.
 * @throws The first error. Everything opened before is closed again.
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
    const unlisten = reportEnds(state, storeHealth);
    closeSteps.push(async () => unlisten());
    const controllers = startControllers({
      state,
      clock,
      random,
      log,
      leaseMs: config.leaseMs,
      retention: getRetention(config),
      meter: metrics,
      tracer,
      ...definedFields({ weights: config.weights }),
    });
    closeSteps.push(() => controllers.close());
    const api = createApiServer({
      state,
      clock,
      random,
      log: log.child({ component: 'api' }),
      nodes: controllers.nodes,
      presenter: controllers.presenter,
      dryRun: controllers.dryRun,
      placements: controllers.placements,
      explainImpossibleLimits,
      getConnection: (context) => context.values.get(connectionKey),
      version: machine.version,
      timings: { leaseMs: config.leaseMs, pingMs: config.pingMs, usageMs: 10_000 },
      meter: metrics,
      tracer,
    });
    closeSteps.push(() => api.close());
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
        }),
        createErrorInterceptor(
          createFailureLog({ clock, log }, 'call failed with an internal error'),
        ),
        createValidationInterceptor([CoordinatorService, AgentService, AdminService]),
      ],
      reflectedServices: [CoordinatorService, AgentService, AdminService],
      health,
      classifyCall: classifyRpc,
      getLoopLagMs: () => lag.takeMaxMs(),
      clock,
      log: log.child({ component: 'rpc' }),
    });
    registerRpcMetrics(metrics, () => rpc.getLoad());
    closeSteps.push(() => rpc.close(CLOSE_GRACE_MS));
    const ops = await startOpsServer({
      host: config.host,
      port: config.opsPort,
      portOption: '--ops-port',
      clock,
      log: log.child({ component: 'ops' }),
      checkHealth: () => storeHealth.getHealth(),
      checkReadiness: () => {
        const reasons = [
          ...storeHealth.getReadinessProblems(),
          ...(state.storeRolledBackReason === undefined ? [] : [state.storeRolledBackReason]),
        ];
        const degraded = api.listWarnings();
        if (reasons.length > 0) return { ok: false, reasons: [...reasons, ...degraded] };
        return degraded.length === 0 ? { ok: true } : { ok: true, degraded };
      },
      renderMetrics: () => metrics.expose(),
    });
    closeSteps.push(() => ops.close());
    log.warn('serving in plaintext on loopback: no TLS, no identities', { host: config.host });
    return {
      url: rpc.url,
      opsUrl: ops.url,
      clusterId: state.clusterId,
      ended: storeHealth.ended,
      close,
    };
  } catch (reason) {
    await close();
    throw reason;
  }
}

/** Address of the client of a call. */
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
 * Reports lost leadership and the end of the state to `health`.
 * @returns The function that ends the reports. Call it before the state is closed on purpose.
 */
function reportEnds(state: ClusterState, health: StoreHealth): () => void {
  const unlisten = [state.onLeadershipLost(health.reportEnd), state.onEnd(health.reportEnd)];
  return () => unlisten.forEach((end) => end());
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
