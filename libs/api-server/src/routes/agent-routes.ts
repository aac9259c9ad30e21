import type { ServiceImpl } from '@connectrpc/connect';
import { AgentService } from '@cloudless/api';
import type { StatisticsHandlers } from '../stream/statistics-handlers.js';
import type { CallRoutes } from './call-routes.js';
import type { ReadRoutes } from './read-routes.js';
import { createStreamRoutes, type StreamRouteHandlers } from './stream-routes.js';

/** Creates the implementation of AgentService for the containers of all nodes. */
export function createAgentRoutes(
  routes: CallRoutes,
  handlers: StreamRouteHandlers & {
    readonly statistics: StatisticsHandlers;
    readonly reads: ReadRoutes['agent'];
  },
): ServiceImpl<typeof AgentService> {
  const { streams, statistics, reads } = handlers;
  return {
    ...createStreamRoutes(routes, AgentService.method, handlers),
    getContainerStatus: (request, context) => streams.getContainerStatus(request, context),
    ...reads,
    getContainerStats: (request, context) => statistics.getContainerStats(request, context),
    listContainerStats: (request, context) => statistics.listContainerStats(request, context),
  };
}
