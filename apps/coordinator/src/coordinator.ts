import { join } from 'node:path';
import type { Interceptor } from '@connectrpc/connect';
import { createErrorInterceptor, createValidationInterceptor } from '@cloudless/api';
import { SERVED_SERVICES, putDefaultPolicies } from '@cloudless/api-server';
import { randomHex, type CloudlessError } from '@cloudless/base';
import { openClusterState, type ClusterState } from '@cloudless/cluster-state';
import {
  createFailureLog,
  createMetrics,
  createRpcObserver,
  noTracing,
  startLoopLagMeter,
  type Metrics,
  type RpcObserverOptions,
} from '@cloudless/observability';
import {
  callerKey,
  connectionKey,
  HealthState,
  startOpsServer,
  startRpcServer,
} from '@cloudless/rpc-node/server';
import { isLoopbackHost } from '@cloudless/identity';
import { CloseSteps } from './close-steps.js';
import type { CoordinatorConfig } from './config.js';
import type { CoordinatorMachine } from './coordinator-machine.js';
import { createCallAuthentication } from './identity/call-authentication.js';
import {
  openCoordinatorIdentity,
  type CoordinatorIdentity,
} from './identity/coordinator-identity.js';
import { writeFirstCredentials } from './identity/first-credentials.js';
import { ADMIN_CREDENTIAL_FILE, TokenFiles } from './identity/token-files.js';
import { isWildcard } from './identity/server-names.js';
import { watchIdentityFiles } from './identity/identity-watches.js';
import { checkHealth, checkReadiness } from './health-checks.js';
import { openLeaderPart } from './leader-part.js';
import { openStore } from './open-store.js';
import { HeldPorts } from './roles/held-ports.js';
import { choosePort, toOwnAddress } from './roles/own-address.js';
import { ElectionMembership } from './roles/election-membership.js';
import {
  createElectedRoles,
  createFixedRole,
  startPresence,
  waitForAuthority,
  type Roles,
} from './roles/roles.js';
import { requireUniqueName } from './roles/unique-name.js';
import { LeaderConnections } from './roles/leader-connections.js';
import { createRefusalReporter } from './roles/refusal-reporter.js';
import { openSecretKeys } from './secrets/secrets-key.js';
import { classifyRpc, classifySecureRpc } from './rpc-classes.js';
import { registerClusterMetrics } from './metrics.js';
import { registerStoreMetrics } from './store-metrics.js';
import { registerRpcMetrics } from './rpc-metrics.js';
import { StoreHealth } from './store-health.js';

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
/** Random bytes of the name of a process in the election: no two processes have the same. */
const HOLDER_BYTES = 8;

/**
 * Opens the store, and serves. With a store that one process uses, this coordinator leads from its
 * start; with one that several coordinators share, it takes part in the election of the leader.
 * @returns The coordinator once it serves the API and the ops endpoints.
 * @throws the first error of these steps, after the completed steps were undone.
 */
export async function startCoordinator(
  config: CoordinatorConfig,
  machine: CoordinatorMachine,
): Promise<RunningCoordinator> {
  const { clock, random, log, tracing = noTracing } = machine;
  const steps = new CloseSteps(log);
  try {
    const metrics = createMetrics({ process: true });
    const storeHealth = new StoreHealth(() => machine.watchdog?.listWarnings() ?? []);
    const { store, preloaded, setCompacting } = await openStore(config, machine, storeHealth);
    steps.add(() => (machine.sharedStore === undefined ? store.close() : undefined));
    const isShared = config.state === 'etcd' || machine.sharedStore !== undefined;
    const port = isShared ? await choosePort(config) : config.port;
    const holder = isShared
      ? `${config.name}/${randomHex(random, HOLDER_BYTES)}`
      : `${machine.hostname}/${machine.pid}`;
    const state = await openClusterState({
      ...{ store, preloaded, clock, random, meter: metrics, tracer: tracing.tracer },
      log: log.child({ component: 'state' }),
      holder,
      leadership: isShared ? 'follow' : 'takeAtStart',
      initializeCluster: (first) => {
        if (config.defaultPolicies === 'on') putDefaultPolicies(first, random, clock.wallTime());
      },
    });
    steps.add(() => state.close());
    setCompacting(state.role === 'leader');
    steps.add(state.onRoleChange(({ role }) => setCompacting(role === 'leader')));
    steps.add(reportEnds(state, storeHealth, isShared));
    const address = toOwnAddress(config, machine, port);
    if (isShared) await requireUniqueName(state, machine, { id: config.name, address, holder });
    const membership = isShared
      ? new ElectionMembership(state, { address, coordinatorId: config.name })
      : undefined;
    const heldPorts = new HeldPorts();
    steps.add(() => heldPorts.release());
    if (config.tls === 'on' && membership !== undefined) {
      await waitForAuthority(state, async () => {
        // A coordinator that cannot listen must never lead.
        await holdPorts(heldPorts, { ...config, port });
        membership.join();
      });
    }
    const identity =
      config.tls === 'on' ? await openCoordinatorIdentity(config, machine, state) : undefined;
    steps.add(() => identity?.close());
    const connections = new LeaderConnections(clock, identity);
    const reportRefusal = isShared
      ? createRefusalReporter({ clock, getLeader: () => state.leader(), connections })
      : undefined;
    const access =
      identity && createCallAuthentication({ state, machine, identity, metrics, reportRefusal });
    steps.add(() => access?.close());
    const secretKeys = await openSecretKeys(config, machine, state);
    const shared = { config, machine, metrics, identity, access, secretKeys };
    const roles: Roles =
      membership === undefined
        ? createFixedRole(openLeaderPart({ ...shared, state }))
        : createElectedRoles({ ...shared, state, membership, connections });
    steps.add(() => roles.close());
    const files = identity && watchIdentityFiles(machine, { state, identity, metrics });
    steps.add(() => files?.close());
    registerClusterMetrics(metrics, state, roles);
    if (config.state === 'lmdb') registerStoreMetrics(metrics, config.dataDir);
    storeHealth.registerMetrics(metrics);
    const health = new HealthState();
    void storeHealth.ended.then(() => health.setAll('notServing'));
    const lag = startLoopLagMeter(clock, metrics);
    steps.add(() => lag.close());
    await heldPorts.release();
    const rpc = await startRpcServer({
      host: config.host,
      port,
      portOption: '--port',
      registerRoutes: roles.registerRoutes,
      interceptors: createInterceptors(machine, metrics),
      reflectedServices: SERVED_SERVICES,
      ...access?.rpcOptions,
      health,
      allowedOrigins: config.allowedOrigins,
      classifyCall: identity === undefined ? classifyRpc : classifySecureRpc,
      getLoopLagMs: () => lag.takeMaxMs(),
      clock,
      log: log.child({ component: 'rpc' }),
    });
    registerRpcMetrics(metrics, () => rpc.getLoad());
    steps.add(() => rpc.close(CLOSE_GRACE_MS));
    access?.recheckOnChange(rpc);
    const healthSources = { state, storeHealth, roles, files, secretKeys };
    const ops = await startOpsServer({
      host: config.opsHost,
      port: config.opsPort,
      portOption: '--ops-port',
      clock,
      log: log.child({ component: 'ops' }),
      checkHealth: () => checkHealth(healthSources),
      checkReadiness: () => checkReadiness(healthSources),
      renderMetrics: () => metrics.expose(),
      ...(isLoopbackHost(config.opsHost) ? {} : access?.opsOptions),
    });
    steps.add(() => ops.close());
    // A leader that does not serve would delay every change until its lease ends.
    membership?.join();
    await roles.whenLeading((leading) => secretKeys.replaceKeyEncryption(leading));
    if (identity === undefined)
      log.warn('serving in plaintext on loopback: no TLS, no identities', { host: config.host });
    else {
      await roles.whenLeading((leading) =>
        writeFirstCredentials({
          ...{ state: leading, clock, random, log: log.child({ component: 'identity' }) },
          identities: identity.identities,
          directory: identity.directory,
          mustRenew: config.newAdminCredential || identity.hasVoidTokens,
          joinUrl: toUrl(identity.names.primary, rpc.address.port),
        }),
      );
      const tokenFiles = new TokenFiles({ ...identity, log: log.child({ component: 'identity' }) });
      steps.add(() => tokenFiles.close());
    }
    if (isShared) {
      const presence = startPresence(store, machine, { id: config.name, address, holder });
      steps.add(() => presence.close());
    }
    steps.add(() => roles.leave());
    return {
      url: identity === undefined ? rpc.url : toPublicUrl(config, identity, rpc.address.port),
      opsUrl: ops.url,
      clusterId: state.clusterId,
      ...(identity === undefined ? {} : { identityFiles: listIdentityFiles(identity) }),
      ended: storeHealth.ended,
      close: () => steps.run(),
    };
  } catch (reason) {
    await steps.run();
    throw reason;
  }
}

/** Returns the interceptors of all calls; the first is the outermost. */
function createInterceptors(
  { clock, log, tracing = noTracing }: CoordinatorMachine,
  metrics: Metrics,
): readonly Interceptor[] {
  return [
    tracing.serverInterceptor,
    createRpcObserver({
      clock,
      meter: metrics,
      log: log.child({ component: 'rpc' }),
      getClientAddress,
      getPrincipal: ({ contextValues }) => contextValues.get(callerKey)?.principal.name,
    }),
    createErrorInterceptor(createFailureLog({ clock, log }, 'call failed with an internal error')),
    // The first call of each method compiles its rules, most of which a coordinator never needs.
    createValidationInterceptor(),
  ];
}

/** Holds the ports of the API and of /health, except ports that the system selects. */
async function holdPorts(
  held: HeldPorts,
  { host, port, opsHost, opsPort }: CoordinatorConfig,
): Promise<void> {
  await held.hold({ host, port, portOption: '--port', tls: true });
  if (opsPort !== 0)
    await held.hold({ host: opsHost, port: opsPort, portOption: '--ops-port', tls: true });
}

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

/**
 * Reports the end of the cluster state to `health`, and the loss of the leadership unless
 * coordinators share the store: then this coordinator follows the next leader.
 * @returns A function that ends the reports. Call it before the state is closed on purpose.
 */
function reportEnds(state: ClusterState, health: StoreHealth, isShared: boolean): () => void {
  const unsubscribes = [
    ...(isShared ? [] : [state.onLeadershipLost(health.reportEnd)]),
    state.onEnd(health.reportEnd),
  ];
  return () => unsubscribes.forEach((unsubscribe) => unsubscribe());
}
