import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  EndpointHealth_Status as Health,
  ListServiceEndpointsResponseSchema,
  ListServicesResponseSchema,
  NetworkService,
  ResolveServiceResponseSchema,
  matchesLabels,
  paginate,
  paginateIndex,
  parseLabelSelector,
  withBalancingDefaults,
  type GetLoadBalancerConfigRequest,
  type GetServiceRequest,
  type ListServiceEndpointsRequest,
  type ListServiceEndpointsResponse,
  type ListServicesRequest,
  type ListServicesResponse,
  type LoadBalancerConfig,
  type ResolveServiceRequest,
  type ResolveServiceResponse,
  type Service,
  type ServiceEndpoint,
  type WatchServiceEndpointsRequest,
  type WatchServiceEndpointsResponse,
  type WatchServicesRequest,
  type WatchServicesResponse,
} from '@cloudless/api';
import type { ServiceRecord } from '@cloudless/api/store';
import { selectsWorkload, toServiceKeyId, type ClusterView } from '@cloudless/cluster-state';
import { serviceDnsName } from '@cloudless/network';
import { CallAccess } from '../access/call-access.js';
import type { ReadDeps } from '../ports.js';
import type { LivenessChanges } from '../watch/liveness-changes.js';
import { watchRecords } from '../watch/watch-records.js';
import { readNetwork } from './network-settings.js';
import { isHealthyEndpoint, listServiceEndpoints } from './service-endpoints.js';
import { getServiceSpec, requireService, toServiceKey } from './service-lookup.js';
import { presentService } from './service-presenter.js';
import { watchServiceEndpoints } from './watch-service-endpoints.js';
import { createServiceSource } from './watch-services.js';

const calls = NetworkService.method;

/** Handlers of the calls of NetworkService that read services and endpoints. */
export class ServiceReads {
  private readonly access: CallAccess;

  constructor(private readonly deps: ReadDeps & { readonly livenessChanges: LivenessChanges }) {
    this.access = new CallAccess(deps);
  }

  getService(request: GetServiceRequest): Service {
    const view = this.deps.state.view();
    return presentService(view, requireService(view, request).value);
  }

  listServices(request: ListServicesRequest, context: HandlerContext): ListServicesResponse {
    const isVisible = this.createFilter(calls.listServices, request.namespace, context);
    const selector = parseLabelSelector(request.labelSelector);
    const view = this.deps.state.view();
    const { namespace, workload } = request;
    const { items, nextPageToken } = paginateIndex(
      (after) => listServicesAfter(view, namespace, after),
      toServiceKey,
      request,
      { filter: ['services', namespace, request.labelSelector, workload] },
      (record) =>
        isVisible(record.namespace) &&
        matchesLabels(selector, record.labels) &&
        (workload === '' || selectsWorkloadNamed(view, record, workload)),
    );
    return create(ListServicesResponseSchema, {
      services: items.map((record) => presentService(view, record)),
      nextPageToken,
      revision: view.revision,
    });
  }

  watchServices(
    request: WatchServicesRequest,
    context: HandlerContext,
  ): AsyncGenerator<WatchServicesResponse> {
    const isVisible = this.createFilter(calls.watchServices, request.namespace, context);
    const source = createServiceSource(this.deps, request, isVisible);
    return watchRecords(this.deps, source, request.afterRevision, context.signal);
  }

  listEndpoints(request: ListServiceEndpointsRequest): ListServiceEndpointsResponse {
    const view = this.deps.state.view();
    const { namespace, zone, healthStatus } = request;
    const service = requireService(view, { namespace, name: request.service }).value;
    const endpoints = listServiceEndpoints(view, service, this.deps.presenter).filter(
      (endpoint) =>
        (zone === '' || endpoint.zone === zone) &&
        (healthStatus === undefined ||
          (endpoint.health?.status ?? Health.UNKNOWN) === healthStatus),
    );
    const filter = ['service endpoints', service.uid, zone, String(healthStatus ?? '')];
    const { items, nextPageToken } = paginate(endpoints, ({ id }) => id, request, { filter });
    const { revision } = view;
    return create(ListServiceEndpointsResponseSchema, {
      endpoints: [...items],
      nextPageToken,
      revision,
    });
  }

  getLoadBalancerConfig(request: GetLoadBalancerConfigRequest): LoadBalancerConfig {
    const { namespace, service: name } = request;
    const { loadBalancer } = requireService(this.deps.state.view(), { namespace, name }).value;
    return withBalancingDefaults(loadBalancer);
  }

  /** Returns the ready endpoints, those in the zone of the caller first. */
  resolveService(request: ResolveServiceRequest): ResolveServiceResponse {
    const view = this.deps.state.view();
    const { namespace, serviceName: name, callerZone } = request;
    const service = requireService(view, { namespace, name }).value;
    const key = toServiceKeyId(service.namespace, service.name);
    const healthy = new Set(
      [...view.externalEndpointsOf(key)].flatMap(({ value }) =>
        isHealthyEndpoint(value, service) ? [value.endpoint?.id] : [],
      ),
    );
    const isReady = ({ id, nodeId, health }: ServiceEndpoint): boolean =>
      nodeId === '' ? healthy.has(id) : health?.status === Health.HEALTHY;
    const ready = listServiceEndpoints(view, service, this.deps.presenter).filter(isReady);
    const isNear = ({ zone }: ServiceEndpoint): boolean => callerZone !== '' && zone === callerZone;
    const { clusterDomain } = readNetwork(view);
    return create(ResolveServiceResponseSchema, {
      endpoints: [...ready.filter(isNear), ...ready.filter((endpoint) => !isNear(endpoint))].slice(
        0,
        MAX_RESOLVED,
      ),
      virtualIp: service.clusterIp,
      dnsName: serviceDnsName(service.namespace, service.name, clusterDomain),
      externalName: getServiceSpec(service).externalName,
    });
  }

  async *watchServiceEndpoints(
    request: WatchServiceEndpointsRequest,
    { signal }: HandlerContext,
  ): AsyncGenerator<WatchServiceEndpointsResponse> {
    const { namespace, service: name } = request;
    const { value } = requireService(this.deps.state.view(), { namespace, name });
    yield* watchServiceEndpoints(this.deps, value, signal);
  }

  private createFilter(
    method: Parameters<CallAccess['createFilter']>[1],
    namespace: string,
    context: HandlerContext,
  ): (namespace: string) => boolean {
    return this.access.createFilter(this.access.getCaller(context), method, namespace);
  }
}

/** Most endpoints in the answer of ResolveService, which has no pages. */
const MAX_RESOLVED = 1_000;

function* listServicesAfter(
  view: ClusterView,
  namespace: string,
  after: string | undefined,
): Generator<ServiceRecord, void> {
  const prefix = namespace === '' ? '' : toServiceKeyId(namespace, '');
  for (const { value } of view.servicesByName(
    after === undefined || after < prefix ? prefix : after,
  )) {
    if (namespace !== '' && value.namespace !== namespace) return;
    yield value;
  }
}

function selectsWorkloadNamed(view: ClusterView, record: ServiceRecord, name: string): boolean {
  const workload = view.workloadByName(record.namespace, name)?.value;
  return workload === undefined
    ? record.spec?.workload === name
    : selectsWorkload(record, workload);
}
