import { CloudlessError, type Clock, type Log, type LogFields, type Meter } from '@cloudless/base';
import { AgentService, createErrorInterceptor, createValidationInterceptor } from '@cloudless/api';
import type { ContainerSelector, ContainerService } from '@cloudless/agent-core';
import { createFailureLog, createRpcObserver, type Tracing } from '@cloudless/observability';
import {
  callerKey,
  connectionKey,
  startRpcServer,
  type Caller,
  type ClientConnection,
  type RpcServer,
  type ServerTls,
} from '@cloudless/rpc-node/server';
import type { AgentAuthorizer } from './identity/agent-authorizer.js';

/** Part of the call context that has the caller and its connection. */
interface CallContext {
  readonly values: {
    get(key: typeof connectionKey): ClientConnection | undefined;
    get(key: typeof callerKey): Caller | undefined;
  };
}

/** Longest duration of a call: a command has its own timeout of up to an hour; 10 s more. */
const CALL_DEADLINE_MS = 3_610_000;

/**
 * Rules for callers of AgentService. Undefined in plaintext on loopback: every client of this
 * machine may call.
 */
export interface AgentServiceSecurity {
  readonly tls: ServerTls;
  readonly authorizer: AgentAuthorizer;
}

/**
 * Serves AgentService for this node's containers, with reflection and health.
 * @param agent - Returns undefined while the agent is starting: calls then fail with UNAVAILABLE.
 */
export function serveAgentService(
  listen: { readonly host: string; readonly port: number },
  agent: () => ContainerService | undefined,
  deps: {
    readonly clock: Clock;
    readonly log: Log;
    readonly meter: Meter;
    readonly tracing: Tracing;
    readonly security?: AgentServiceSecurity | undefined;
  },
): Promise<RpcServer> {
  const { clock, log, meter, tracing, security } = deps;
  const requireContainers = (): ContainerService => {
    const service = agent();
    if (service === undefined) throw new CloudlessError('unavailable', 'the agent is starting');
    return service;
  };
  const admit = createAdmission(security, requireContainers);
  // The agent has no audit events, so privileged calls are logged. Arguments may contain secrets:
  // only their number is logged.
  const logPrivilegedCall = (rpc: string, context: CallContext, fields: LogFields = {}): void => {
    const address = context.values.get(connectionKey)?.remoteAddress;
    const principal = context.values.get(callerKey)?.principal.name ?? 'anonymous';
    log.info('privileged call', { rpc, principal, address, ...fields });
  };
  return startRpcServer({
    ...listen,
    clock,
    log,
    portOption: '--listen',
    ...(security === undefined
      ? {}
      : { tls: security.tls, authorize: (call) => security.authorizer.authorize(call) }),
    limits: { unaryDeadlineMs: CALL_DEADLINE_MS },
    // All calls have the same priority, and none occupies a slot for long.
    classifyCall: () => ({ priority: 'write', longRunning: true }),
    reflectedServices: [AgentService],
    interceptors: [
      tracing.serverInterceptor,
      createRpcObserver({
        clock,
        log,
        meter,
        getClientAddress: ({ contextValues }) => contextValues.get(connectionKey)?.remoteAddress,
      }),
      createErrorInterceptor(createFailureLog({ clock, log }, 'call failed')),
      createValidationInterceptor([AgentService]),
    ],
    registerRoutes: (router) => {
      router.service(AgentService, {
        async *streamLogs(request, context) {
          await admit('StreamLogs', context, request);
          yield* requireContainers().streamLogs(request, context.signal);
        },
        async execCommand(request, context) {
          await admit('ExecCommand', context, request);
          const [program = '', ...rest] = request.command;
          logPrivilegedCall('ExecCommand', context, { program, argumentCount: rest.length });
          return requireContainers().execCommand(request, context.signal);
        },
        exec: (requests, context) =>
          requireContainers().exec(requests, context.signal, async (start) => {
            await admit('Exec', context, start);
            logPrivilegedCall('Exec', context);
          }),
        portForward: (requests, context) =>
          requireContainers().portForward(requests, context.signal, async (start) => {
            await admit('PortForward', context, start);
            logPrivilegedCall('PortForward', context);
          }),
        async getContainerStatus(request, context) {
          await admit('GetContainerStatus', context, request);
          return requireContainers().getContainerStatus(request);
        },
        async listContainers(_request, context) {
          await admit('ListContainers', context, undefined);
          return requireContainers().listContainers();
        },
        async getContainerStats(request, context) {
          await admit('GetContainerStats', context, request);
          return requireContainers().getContainerStats(request);
        },
        async listContainerStats(request, context) {
          await admit('ListContainerStats', context, undefined);
          return requireContainers().listContainerStats(request);
        },
      });
    },
  });
}

/** Refuses callers without the role that a call needs for the container it selects. */
type Admit = (
  rpc: string,
  context: CallContext,
  /** Undefined: the call is about all containers of the node. */
  selector: Partial<ContainerSelector> | undefined,
) => Promise<void>;

function createAdmission(
  security: AgentServiceSecurity | undefined,
  requireContainers: () => ContainerService,
): Admit {
  if (security === undefined) return () => Promise.resolve();
  const { authorizer } = security;
  return async (rpc, context, selector) => {
    const caller = context.values.get(callerKey);
    let target = '';
    try {
      if (selector !== undefined) target = await requireContainers().findReplicaId(selector);
    } catch (reason) {
      // Only who may use every container learns what this node does not have.
      await authorizer.requireAccess(caller, rpc, '');
      throw reason;
    }
    await authorizer.requireAccess(caller, rpc, target);
  };
}
