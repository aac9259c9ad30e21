import type { ServiceImpl } from '@connectrpc/connect';
import type { AgentService } from '@cloudless/api';
import type { InteractiveHandlers } from '../stream/interactive-handlers.js';
import type { StreamHandlers } from '../stream/stream-handlers.js';
import type { CallRoutes } from './call-routes.js';

type StreamCall = 'execCommand' | 'exec' | 'portForward';

/** The handlers of logs, commands and port forwards. */
export interface StreamRouteHandlers {
  readonly streams: StreamHandlers;
  readonly interactive: InteractiveHandlers;
}

/**
 * Creates the routes of logs, commands and port forwards, which CoordinatorService and AgentService
 * have in common.
 * @param calls - The methods of the service, which audit records name.
 */
export function createStreamRoutes(
  routes: CallRoutes,
  calls: Pick<(typeof AgentService)['method'], StreamCall>,
  { streams, interactive }: StreamRouteHandlers,
) {
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
  } satisfies Pick<ServiceImpl<typeof AgentService>, StreamCall | 'streamLogs'>;
}
