import { createRouterTransport, type Transport } from '@connectrpc/connect';
import { createErrorInterceptor, createValidationInterceptor } from '@cloudless/api';
import { createApiServer, type ApiServer, type ApiServerDeps } from '@cloudless/api-server';
import type { Clock, Log, Random } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import {
  explainImpossibleLimits,
  startControllers,
  type Controllers,
} from '@cloudless/controllers';
import type { InjectedBug } from '../sim-cluster/injected-bug.js';

/** Compiled once for all worlds. */
export const validation = createValidationInterceptor();

export interface LeaderPartOptions {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly leaseMs: number;
  /** Time within which an agent that left may return, milliseconds. */
  readonly leaveGraceMs: number;
  /** Range of the virtual addresses of services. Undefined: no settings of the network are stored. */
  readonly serviceCidr: string | undefined;
  readonly getConnection: ApiServerDeps['getConnection'];
  /** Called when an RPC fails with an internal error. */
  readonly onFault: (rpc: string, reason: unknown) => void;
  /** The `wrap` options replace a part of the coordinator, to inject a bug. */
  readonly wrapState?: InjectedBug['state'];
  readonly wrapControllers?: InjectedBug['controllers'];
  /** Called before the API is created, because the controllers may commit before. */
  readonly onControllers: (controllers: Controllers) => void;
}

/** What exists while a coordinator leads: the controllers, and the API with its sessions. */
export interface LeaderPart {
  readonly controllers: Controllers;
  readonly api: ApiServer;
  /** Calls the API within the process. */
  readonly transport: Transport;
}

/** Starts the controllers and the API on a state that leads. */
export function startLeaderPart(options: LeaderPartOptions): LeaderPart {
  const { state, clock, random, log, leaseMs, leaveGraceMs } = options;
  const { wrapState, wrapControllers, onFault, getConnection, serviceCidr } = options;
  const stateFor = (reader: 'controllers' | 'api'): ClusterState =>
    wrapState?.(state, reader, clock) ?? state;
  const real = startControllers({
    state: stateFor('controllers'),
    clock,
    random,
    log,
    leaseMs,
    leaveGraceMs,
    ...(serviceCidr === undefined ? {} : { networkSettings: { serviceCidr } }),
  });
  const controllers = wrapControllers?.(real, { state, clock }) ?? real;
  options.onControllers(controllers);
  const api = createApiServer({
    state: stateFor('api'),
    clock,
    random,
    log,
    nodes: controllers.nodes,
    presenter: controllers.presenter,
    dryRun: controllers.dryRun,
    whatIf: controllers.whatIf,
    placements: controllers.placements,
    network: controllers.network,
    explainImpossibleLimits,
    getConnection,
    version: 'simulated',
    timings: { leaseMs, pingMs: leaseMs * 0.3, usageMs: 10_000 },
  });
  const transport = createRouterTransport(api.registerRoutes, {
    router: { interceptors: [createErrorInterceptor(onFault), validation] },
  });
  return { controllers, api, transport };
}
