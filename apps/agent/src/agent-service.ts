import { CloudlessError, type Clock, type Log, type LogFields, type Meter } from '@cloudless/base';
import { AgentService, createErrorInterceptor, createValidationInterceptor } from '@cloudless/api';
import type { ContainerService } from '@cloudless/agent-core';
import { createFailureLog, createRpcObserver, type Tracing } from '@cloudless/observability';
import {
  connectionKey,
  startRpcServer,
  type ClientConnection,
  type RpcServer,
} from '@cloudless/rpc-node/server';

/** Part of the call context that has the connection of the caller. */
interface CallContext {
  readonly values: { get(key: typeof connectionKey): ClientConnection | undefined };
}

/** Longest duration of a call: a command has its own timeout of up to an hour; 10 s more. */
const CALL_DEADLINE_MS = 3_610_000;

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
  },
): Promise<RpcServer> {
  const { clock, log, meter, tracing } = deps;
  const requireContainers = (): ContainerService => {
    const service = agent();
    if (service === undefined) throw new CloudlessError('unavailable', 'the agent is starting');
    return service;
  };
  // The agent has no audit events, so privileged calls are logged. Arguments may contain secrets:
  // only their number is logged.
  const logPrivilegedCall = (rpc: string, context: CallContext, fields: LogFields = {}): void => {
    const address = context.values.get(connectionKey)?.remoteAddress;
    log.info('privileged call', { rpc, principal: 'anonymous', address, ...fields });
  };
  return startRpcServer({
    ...listen,
    clock,
    log,
    portOption: '--listen',
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
        streamLogs: (request, context) => requireContainers().streamLogs(request, context.signal),
        execCommand: (request, context) => {
          const [program = '', ...rest] = request.command;
          logPrivilegedCall('ExecCommand', context, { program, argumentCount: rest.length });
          return requireContainers().execCommand(request, context.signal);
        },
        exec: (requests, context) => {
          logPrivilegedCall('Exec', context);
          return requireContainers().exec(requests, context.signal);
        },
        portForward: (requests, context) => {
          logPrivilegedCall('PortForward', context);
          return requireContainers().portForward(requests, context.signal);
        },
        getContainerStatus: (request) => requireContainers().getContainerStatus(request),
        listContainers: () => requireContainers().listContainers(),
        getContainerStats: (request) => requireContainers().getContainerStats(request),
        listContainerStats: (request) => requireContainers().listContainerStats(request),
      });
    },
  });
}
