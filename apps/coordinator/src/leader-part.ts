import {
  createApiServer,
  type ApiServer,
  type ApiServerDeps,
  type SecretKeys,
} from '@cloudless/api-server';
import { definedFields } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import {
  ExpiryWatch,
  explainImpossibleLimits,
  startControllers,
  type Controllers,
  type RetentionLimits,
} from '@cloudless/controllers';
import { noTracing, type Metrics } from '@cloudless/observability';
import { connectionKey } from '@cloudless/rpc-node/server';
import { CloseSteps } from './close-steps.js';
import type { CoordinatorConfig } from './config.js';
import type { CoordinatorMachine } from './coordinator-machine.js';
import type { CallAuthentication } from './identity/call-authentication.js';
import type { CoordinatorIdentity } from './identity/coordinator-identity.js';

/** Interval at which agents report usage and conditions, milliseconds. */
const USAGE_INTERVAL_MS = 10_000;

/** The dependencies of a leader part, which live as long as the process. */
export interface LeaderPartDeps {
  readonly config: CoordinatorConfig;
  readonly machine: CoordinatorMachine;
  readonly metrics: Metrics;
  /** State of a coordinator that leads. */
  readonly state: ClusterState;
  /** Absent without TLS. */
  readonly identity?: CoordinatorIdentity | undefined;
  /** Absent without TLS. */
  readonly access?: CallAuthentication | undefined;
  readonly secretKeys: SecretKeys;
  /** As in `ApiServerDeps`. */
  readonly handOver?: ApiServerDeps['handOver'];
}

/**
 * The parts of a leader, built for each leadership: the controllers, the sessions and tunnels of the
 * agents, and the handlers of the calls that need them.
 */
export interface LeaderPart {
  /** Commits only in the leadership of this part. */
  readonly state: ClusterState;
  readonly nodes: Controllers['nodes'];
  readonly api: ApiServer;
  /** Returns warnings for operators, one sentence each. */
  listWarnings(): readonly string[];
  /** Ends sessions and tunnels, then the control loops, and waits for their commits. */
  close(): Promise<void>;
}

/**
 * Starts the leader part of a coordinator. Close it when the leadership ends.
 * @throws the first error of these steps; the completed steps are undone.
 */
export function openLeaderPart(deps: LeaderPartDeps): LeaderPart {
  const steps = new CloseSteps(deps.machine.log);
  try {
    return startLeaderPart(deps, steps);
  } catch (reason) {
    void steps.run();
    throw reason;
  }
}

function startLeaderPart(deps: LeaderPartDeps, steps: CloseSteps): LeaderPart {
  const { config, machine, metrics, state, identity, access } = deps;
  const { clock, random, log, tracing: { tracer } = noTracing } = machine;
  const controllers = startControllers({
    ...{ state, clock, random, log, meter: metrics, tracer },
    leaseMs: config.leaseMs,
    leaveGraceMs: config.leaveGraceMs,
    retention: getRetention(config),
    networkSettings: { serviceCidr: config.serviceCidr, clusterDomain: config.clusterDomain },
    ...definedFields({ hungAfterMs: config.hungAfterMs, weights: config.weights }),
  });
  steps.add(() => controllers.close());
  const { nodes, presenter, dryRun, whatIf, placements, network } = controllers;
  const api = createApiServer({
    ...{ state, clock, random, nodes, presenter, dryRun, whatIf, placements, network, tracer },
    log: log.child({ component: 'api' }),
    explainImpossibleLimits,
    getConnection: (context) => context.values.get(connectionKey),
    ...access?.apiDeps,
    secretKeys: deps.secretKeys,
    ...definedFields({ handOver: deps.handOver }),
    version: machine.version,
    coordinatorId: config.name,
    timings: { leaseMs: config.leaseMs, pingMs: config.pingMs, usageMs: USAGE_INTERVAL_MS },
    meter: metrics,
  });
  steps.add(() => api.close());
  const expiry = identity && watchExpiry(deps, identity, nodes);
  steps.add(() => expiry?.close());
  return {
    state,
    nodes,
    api,
    listWarnings: () => [
      ...api.listWarnings(),
      ...controllers.listWarnings(),
      ...(expiry?.listWarnings() ?? []),
    ],
    close: () => steps.run(),
  };
}

function watchExpiry(
  { config: { nodeCertificateLifetimeMs: nodeLifetimeMs }, machine, state }: LeaderPartDeps,
  { identities }: CoordinatorIdentity,
  nodes: Controllers['nodes'],
): ExpiryWatch {
  const { clock, log } = machine;
  return new ExpiryWatch({
    ...{ state, nodes, clock, nodeLifetimeMs },
    log: log.child({ component: 'identity' }),
    getAuthorityExpiry: () => identities.getAuthorityExpiry(),
  });
}

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
