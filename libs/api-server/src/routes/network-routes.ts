import type { DescMessage, DescMethod, DescMethodUnary, MessageShape } from '@bufbuild/protobuf';
import type { HandlerContext, ServiceImpl } from '@connectrpc/connect';
import { NetworkService, resolveNamespace } from '@cloudless/api';
import { createDeniedError, type CallAccess } from '../access/call-access.js';
import type { AuditSubject } from '../audit/audit-event.js';
import type { AuditEntry } from '../audit/audit-log.js';
import type { EndpointHandlers } from '../network/endpoint-handlers.js';
import type { ClusterRoleNeed, RouteHandlers } from '../network/ingress-routes/route-handlers.js';
import type { RouteReads } from '../network/ingress-routes/route-reads.js';
import type { ServiceHandlers } from '../network/service-handlers.js';
import type { ServiceReads } from '../network/service-reads.js';
import { withSlowReaderTimeout } from '../watch/slow-reader-timeout.js';
import type { ReadDeps } from '../ports.js';
import { readWorkload, requireWorkloadRole, type CallRoutes } from './call-routes.js';

const calls = NetworkService.method;

/** The handlers of NetworkService. */
export interface NetworkRouteHandlers {
  readonly services: ServiceHandlers;
  readonly endpoints: EndpointHandlers;
  readonly ingress: RouteHandlers;
  readonly reads: ReturnType<typeof createNetworkReads>;
}

/** Creates the implementation of NetworkService. */
export function createNetworkRoutes(
  routes: CallRoutes,
  { services, endpoints, ingress, reads }: NetworkRouteHandlers,
): ServiceImpl<typeof NetworkService> {
  const { access } = routes;
  const setHealth = change(routes, calls.updateEndpointHealth, (request, entry) =>
    endpoints.setHealth(request, entry),
  );
  return {
    createService: change(routes, calls.createService, (request, entry, context) =>
      services.createService(request, entry, () =>
        requireClusterRole(access, calls.createService, context, EXTERNAL_IPS),
      ),
    ),
    updateService: change(routes, calls.updateService, (request, entry, context) =>
      services.updateService(request, entry, () =>
        requireClusterRole(access, calls.updateService, context, EXTERNAL_IPS),
      ),
    ),
    deleteService: change(routes, calls.deleteService, (request, entry) =>
      services.deleteService(request, entry),
    ),
    updateLoadBalancerConfig: change(routes, calls.updateLoadBalancerConfig, (request, entry) =>
      services.updateLoadBalancerConfig(request, entry),
    ),
    registerEndpoint: change(routes, calls.registerEndpoint, (request, entry) =>
      endpoints.registerEndpoint(request, entry),
    ),
    deregisterEndpoint: change(routes, calls.deregisterEndpoint, (request, entry) =>
      endpoints.deregisterEndpoint(request, entry),
    ),
    updateEndpointHealth: (request, context) => {
      const caller = access.getCaller(context);
      const isNode = caller.principal.kind !== 'user' && request.nodeId !== '';
      if (!isNode) return setHealth(request, context);
      access.requireNode(caller, request.nodeId);
      return endpoints.reportHealth(request);
    },
    ...createIngressRoutes(routes, ingress),
    ...reads,
  };
}

/** Creates the calls that change HTTP routes. */
function createIngressRoutes(routes: CallRoutes, ingress: RouteHandlers) {
  const { access } = routes;
  const describe = (request: object): AuditSubject => describeObject('route', request);
  return {
    createRoute: change(
      routes,
      calls.createRoute,
      (request, entry, context) =>
        ingress.createRoute(request, entry, (need) =>
          requireClusterRole(access, calls.createRoute, context, TLS_FIELDS[need]),
        ),
      describe,
    ),
    updateRoute: change(
      routes,
      calls.updateRoute,
      (request, entry, context) =>
        ingress.updateRoute(request, entry, (need) =>
          requireClusterRole(access, calls.updateRoute, context, TLS_FIELDS[need]),
        ),
      describe,
    ),
    deleteRoute: change(
      routes,
      calls.deleteRoute,
      (request, entry) => ingress.deleteRoute(request, entry),
      describe,
    ),
  } satisfies Partial<ServiceImpl<typeof NetworkService>>;
}

/** Creates the reads of NetworkService, which every coordinator serves. */
export function createNetworkReads(
  access: CallAccess,
  { clock }: Pick<ReadDeps, 'clock'>,
  { services, ingress }: { readonly services: ServiceReads; readonly ingress: RouteReads },
) {
  return {
    getRoute: readWorkload(access, calls.getRoute, (request) => ingress.getRoute(request)),
    listRoutes: (request, context) => ingress.listRoutes(request, context),
    getService: readWorkload(access, calls.getService, (request) => services.getService(request)),
    listServices: (request, context) => services.listServices(request, context),
    watchServices: (request, context) =>
      withSlowReaderTimeout(services.watchServices(request, context), clock),
    listEndpoints: readWorkload(access, calls.listEndpoints, (request) =>
      services.listEndpoints(request),
    ),
    getLoadBalancerConfig: readWorkload(access, calls.getLoadBalancerConfig, (request) =>
      services.getLoadBalancerConfig(request),
    ),
    resolveService: readWorkload(access, calls.resolveService, (request) =>
      services.resolveService(request),
    ),
    watchServiceEndpoints: (request, context) => {
      requireWorkloadRole(access, calls.watchServiceEndpoints, request, context);
      return withSlowReaderTimeout(services.watchServiceEndpoints(request, context), clock);
    },
  } satisfies Partial<ServiceImpl<typeof NetworkService>>;
}

/** A call that changes one service, behind the check of its namespace. */
function change<Request extends DescMessage, Response extends DescMessage>(
  routes: CallRoutes,
  method: DescMethodUnary<Request, Response>,
  handler: (
    request: MessageShape<Request>,
    entry: AuditEntry,
    context: HandlerContext,
  ) => Promise<MessageShape<Response>>,
  describe: (request: object) => AuditSubject = (request) => describeObject('service', request),
) {
  return routes.change(
    method,
    (request, entry, context: HandlerContext) => {
      requireWorkloadRole(routes.access, method, request, context);
      return handler(request, entry, context);
    },
    describe,
  );
}

/** Fields that name what belongs to machines and to no namespace, and why. */
const EXTERNAL_IPS = {
  field: 'spec.external_ips',
  reason: 'external addresses belong to no namespace',
};
const TLS_FIELDS = {
  files: { field: 'spec.tls', reason: 'files on nodes belong to no namespace' },
  everyHost: {
    field: 'spec.tls.certificate_secret without spec.hosts',
    reason: 'the certificate would be served for every host without another certificate',
  },
} satisfies Record<ClusterRoleNeed, { readonly field: string; readonly reason: string }>;

/**
 * Checks the role that a field needs that names what belongs to machines.
 * @throws kind `denied`.
 */
function requireClusterRole(
  access: CallAccess,
  method: DescMethod,
  context: HandlerContext,
  { field, reason }: { readonly field: string; readonly reason: string },
): void {
  const caller = access.getCaller(context);
  if (access.isPermitted(caller, method, '')) return;
  throw createDeniedError(caller.principal, method, {
    message: `${caller.principal.name} may not set ${field}: this needs the role operator in the whole cluster, because ${reason}; ask an administrator`,
    role: 'operator',
    namespace: '',
  });
}

/**
 * Returns the audit subject of a call about a service or route. Calls about a service have its name
 * in one of two fields.
 */
function describeObject(kind: 'service' | 'route', request: object): AuditSubject {
  const { name, service, ...fields } = request as {
    readonly namespace: string;
    readonly name?: string;
    readonly service?: string;
  };
  const namespace = resolveNamespace(fields);
  return { namespace, object: `${kind} ${namespace}/${name ?? service ?? ''}` };
}
