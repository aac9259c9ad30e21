import { CloudlessError, errorFields, type Clock, type Log } from '@cloudless/base';
import { AgentService, createErrorInterceptor, createValidationInterceptor } from '@cloudless/api';
import type { ContainerService } from '@cloudless/agent-core';
import { startRpcServer, type RpcServer } from '@cloudless/rpc-server';

/** A command may run for an hour, and has a timeout of its own; other calls are short. */
const CALL_DEADLINE_MS = 3_610_000;

/**
 * Serves AgentService for this node's own containers, with reflection and health.
 * @param agent - Undefined as long as the agent is being started: calls are then refused with UNAVAILABLE.
 */
export function serveAgent(
  listen: { readonly host: string; readonly port: number },
  agent: () => ContainerService | undefined,
  deps: { readonly clock: Clock; readonly log: Log },
): Promise<RpcServer> {
  const { clock, log } = deps;
  const containers = (): ContainerService => {
    const service = agent();
    if (service === undefined) throw new CloudlessError('unavailable', 'the agent is starting');
    return service;
  };
  return startRpcServer({
    ...listen,
    clock,
    log,
    portOption: '--listen',
    limits: { unaryDeadlineMs: CALL_DEADLINE_MS },
    reflectedServices: [AgentService],
    interceptors: [
      createErrorInterceptor((rpc, reason) => log.error('call failed', { rpc, ...errorFields(reason) })),
      createValidationInterceptor([AgentService]),
    ],
    routes: (router) => {
      router.service(AgentService, {
        streamLogs: (request, context) => containers().streamLogs(request, context.signal),
        execCommand: (request, context) => containers().execCommand(request, context.signal),
        getContainerStatus: (request) => containers().getContainerStatus(request),
        listContainers: () => containers().listContainers(),
      });
    },
  });
}
