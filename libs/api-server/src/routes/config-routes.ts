import type { DescMessage, DescMethodUnary, MessageShape } from '@bufbuild/protobuf';
import type { HandlerContext, ServiceImpl } from '@connectrpc/connect';
import { ConfigsService, resolveNamespace } from '@cloudless/api';
import type { CallAccess } from '../access/call-access.js';
import type { AuditEntry } from '../audit/audit-log.js';
import type { ConfigHandlers } from '../files/config-handlers.js';
import type { ConfigReads } from '../files/config-reads.js';
import type { WorkloadName } from '../lookup.js';
import type { ReadDeps } from '../ports.js';
import { withSlowReaderTimeout } from '../watch/slow-reader-timeout.js';
import { readWorkload, requireWorkloadRole, type CallRoutes } from './call-routes.js';

const calls = ConfigsService.method;

/** Creates the implementation of ConfigsService. */
export function createConfigRoutes(
  routes: CallRoutes,
  configs: ConfigHandlers,
  reads: ReturnType<typeof createConfigReads>,
): ServiceImpl<typeof ConfigsService> {
  return {
    createConfig: change(routes, calls.createConfig, (request, entry) =>
      configs.createConfig(request, entry),
    ),
    updateConfig: change(routes, calls.updateConfig, (request, entry) =>
      configs.updateConfig(request, entry),
    ),
    deleteConfig: change(routes, calls.deleteConfig, (request, entry) =>
      configs.deleteConfig(request, entry),
    ),
    ...reads,
  };
}

/** Creates the reads of ConfigsService, which every coordinator serves. */
export function createConfigReads(
  access: CallAccess,
  { clock }: Pick<ReadDeps, 'clock'>,
  reads: ConfigReads,
) {
  return {
    getConfig: readWorkload(access, calls.getConfig, (request) => reads.getConfig(request)),
    listConfigs: (request, context) => reads.listConfigs(request, context),
    watchConfigs: (request, context) =>
      withSlowReaderTimeout(reads.watchConfigs(request, context), clock),
  } satisfies Partial<ServiceImpl<typeof ConfigsService>>;
}

/** A call that changes one config, behind the check of its namespace. */
function change<Request extends DescMessage, Response extends DescMessage>(
  routes: CallRoutes,
  method: DescMethodUnary<Request, Response>,
  handler: (request: MessageShape<Request>, entry: AuditEntry) => Promise<MessageShape<Response>>,
) {
  return routes.change(
    method,
    (request, entry, context: HandlerContext) => {
      requireWorkloadRole(routes.access, method, request, context);
      return handler(request, entry);
    },
    (request) => {
      const { name, ...fields } = request as unknown as WorkloadName;
      const namespace = resolveNamespace(fields);
      return { namespace, object: `config ${namespace}/${name}` };
    },
  );
}
