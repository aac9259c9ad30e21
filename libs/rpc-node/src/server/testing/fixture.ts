import { definedFields } from '@cloudless/base';
import { CoordinatorService, AgentService } from '@cloudless/api';
import { ManualClock } from '@cloudless/base/testing';
import type { Log, LogFields } from '@cloudless/base';
import { startRpcServer } from '../transport/start-rpc-server.js';
import type { RpcServer, RpcServerOptions } from '../options.js';

/** Returns a log that keeps its lines. */
export function aLog(): Log & {
  readonly lines: { level: string; message: string; fields: LogFields }[];
} {
  const lines: { level: string; message: string; fields: LogFields }[] = [];
  const at =
    (level: string) =>
    (message: string, fields: LogFields = {}) =>
      void lines.push({ level, message, fields });
  const log = {
    error: at('error'),
    warn: at('warn'),
    info: at('info'),
    debug: at('debug'),
    child: () => log,
    lines,
  };
  return log;
}

/**
 * Starts a server on a free port with a manual clock. `GetWorkload` returns the requested name,
 * `CreateWorkload` also the spec. The caller must close the server.
 */
export async function aServer(
  options: Partial<RpcServerOptions> = {},
): Promise<RpcServer & { readonly clock: ManualClock }> {
  const clock = new ManualClock();
  const server = await startRpcServer({
    host: '127.0.0.1',
    port: 0,
    clock,
    registerRoutes: (router) => {
      router.service(CoordinatorService, {
        getWorkload: ({ namespace, name }) => ({ namespace, name }),
        createWorkload: ({ namespace, name, spec }) => ({
          namespace,
          name,
          ...definedFields({ spec }),
        }),
      });
    },
    reflectedServices: [CoordinatorService, AgentService],
    ...options,
  });
  return Object.assign(server, { clock });
}

/**
 * Returns a function that starts servers, which are closed after each test.
 * @param afterEachTest - `afterEach` of Jest.
 */
export function serversOfTest(
  afterEachTest: (action: () => Promise<void>) => void,
): (options?: Partial<RpcServerOptions>) => ReturnType<typeof aServer> {
  const servers: RpcServer[] = [];
  afterEachTest(async () => {
    await Promise.all(servers.splice(0).map((server) => server.close()));
  });
  return async (options) => {
    const server = await aServer(options);
    servers.push(server);
    return server;
  };
}
