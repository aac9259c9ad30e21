import type { ServiceImpl } from '@connectrpc/connect';
import { AgentService } from '@cloudless/api';
import type { InteractiveHandlers } from '../stream/interactive-handlers.js';
import type { StatisticsHandlers } from '../stream/statistics-handlers.js';
import type { StreamHandlers } from '../stream/stream-handlers.js';
import type { CallRoutes } from './call-routes.js';

const calls = AgentService.method;

/** Creates the implementation of AgentService for the containers of all nodes. */
export function createAgentRoutes(
  routes: CallRoutes,
  {
    streams,
    interactive,
    statistics,
  }: {
    readonly streams: StreamHandlers;
    readonly interactive: InteractiveHandlers;
    readonly statistics: StatisticsHandlers;
  },
): ServiceImpl<typeof AgentService> {
  return {
    streamLogs: (request, context) => streams.streamLogs(request, context),
    execCommand: routes.change(calls.execCommand, (request, entry, context) =>
      streams.execCommand(request, entry, context),
    ),
    exec: (requests, context) =>
      routes.audit.wrapStream(calls.exec, context, (entry) =>
        interactive.exec(requests, entry, context),
      ),
    portForward: (requests, context) =>
      routes.audit.wrapStream(calls.portForward, context, (entry) =>
        interactive.portForward(requests, entry, context),
      ),
    getContainerStatus: (request, context) => streams.getContainerStatus(request, context),
    listContainers: (_request, context) => streams.listContainers(context),
    getContainerStats: (request, context) => statistics.getContainerStats(request, context),
    listContainerStats: (request, context) => statistics.listContainerStats(request, context),
  };
}
