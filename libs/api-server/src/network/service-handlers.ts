import { create, equals } from '@bufbuild/protobuf';
import {
  DeleteServiceResponseSchema,
  LoadBalancerConfigSchema,
  NetworkService,
  ServiceSpecSchema,
  ServiceSpec_SessionAffinity as Affinity,
  ServiceSpec_Type as Type,
  checkBalancing,
  checkSameKind,
  checkService,
  resolveNamespace,
  updateMessage,
  withBalancingDefaults,
  withServiceDefaults,
  type CreateServiceRequest,
  type DeleteServiceRequest,
  type DeleteServiceResponse,
  type LoadBalancerConfig,
  type Service,
  type ServiceSpec,
  type UpdateLoadBalancerConfigRequest,
  type UpdateServiceRequest,
} from '@cloudless/api';
import type { ServiceRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import type { Stored } from '@cloudless/cluster-state';
import type { AuditEntry } from '../audit/audit-log.js';
import { runIdempotent, type MutationDeps } from '../mutation/idempotent-mutation.js';
import { changeLabels } from './changed-labels.js';
import { checkExternalTargets, compareExternalAddresses } from './external-addresses.js';
import { putNewService, putServiceRemoval, putServiceUpdate } from './service-change.js';
import {
  getServiceSpec,
  requireMutableService,
  requireService,
  toServiceKey,
} from './service-lookup.js';
import { presentService } from './service-presenter.js';

const calls = NetworkService.method;

/** Handlers of the calls of NetworkService that change services. */
export class ServiceHandlers {
  constructor(private readonly deps: MutationDeps) {}

  /** @param requireClusterRole - Called when the service gets external addresses or ports at them. */
  createService(
    request: CreateServiceRequest,
    entry: AuditEntry,
    requireClusterRole: () => void,
  ): Promise<Service> {
    const { requestId, labels, loadBalancer, name } = request;
    const namespace = resolveNamespace(request);
    const spec = request.spec ?? create(ServiceSpecSchema);
    checkService(spec);
    checkBalancing(loadBalancer, 'load_balancer');
    const call = { request, entry, subject: `service "${toServiceKey(request)}"` };
    if (compareExternalAddresses({ after: spec }).added.length > 0) requireClusterRole();
    return runIdempotent(this.deps, calls.createService, call, (view) => {
      checkExternalTargets(view, spec);
      if (view.service(toServiceKey(request)) !== undefined) throw createExistsError(request);
      const transaction = this.deps.state.transaction();
      const created = { namespace, name, spec, labels, loadBalancer };
      const record = putNewService(this.deps, view, transaction, created, requestId);
      return { response: presentService(view, record), transaction };
    });
  }

  /** @param requireClusterRole - Called when the service gets external addresses or ports at them. */
  updateService(
    request: UpdateServiceRequest,
    entry: AuditEntry,
    requireClusterRole: () => void,
  ): Promise<Service> {
    const call = { request, entry, subject: `service "${toServiceKey(request)}"` };
    return runIdempotent(this.deps, calls.updateService, call, (view) => {
      const current = requireMutableService(view, request);
      const before = getServiceSpec(current.value);
      const patch = request.spec ?? create(ServiceSpecSchema);
      const spec = mergeSpec(before, patch, request.updateMask?.paths);
      if (!equals(ServiceSpecSchema, before, spec)) {
        checkSameKind(before, spec);
        checkService(spec);
        checkExternalTargets(view, spec);
        if (compareExternalAddresses({ before, after: spec }).added.length > 0)
          requireClusterRole();
      }
      const labels = changeLabels(current.value.labels, request.labels);
      const isSame =
        equals(ServiceSpecSchema, before, withServiceDefaults(spec)) && labels === undefined;
      if (isSame) return { response: presentService(view, current.value) };
      const transaction = this.deps.state.transaction();
      const change = labels === undefined ? { spec } : { spec, labels };
      const record = putServiceUpdate(
        ...([this.deps, view, transaction, current, change, request.requestId] as const),
      );
      return { response: presentService(view, record), transaction };
    });
  }

  /** Deletes a service. A repeated call with another request id fails with NOT_FOUND. */
  deleteService(request: DeleteServiceRequest, entry: AuditEntry): Promise<DeleteServiceResponse> {
    const call = { request, entry, subject: `service "${toServiceKey(request)}"` };
    return runIdempotent(this.deps, calls.deleteService, call, (view) => {
      const current = requireMutableService(view, request);
      const transaction = this.deps.state.transaction();
      putServiceRemoval(this.deps, transaction, current, request.requestId);
      return { response: create(DeleteServiceResponseSchema), transaction };
    });
  }

  /** Changes the balancing of a service, also of the service of a workload. */
  updateLoadBalancerConfig(
    request: UpdateLoadBalancerConfigRequest,
    entry: AuditEntry,
  ): Promise<LoadBalancerConfig> {
    const name = { namespace: request.namespace, name: request.service };
    const call = { request, entry, subject: `service "${toServiceKey(name)}"` };
    return runIdempotent(this.deps, calls.updateLoadBalancerConfig, call, (view) => {
      const current: Stored<ServiceRecord> = requireService(view, name);
      const before = withBalancingDefaults(current.value.loadBalancer);
      const patch = request.config ?? create(LoadBalancerConfigSchema);
      const merged = updateMessage(
        LoadBalancerConfigSchema,
        before,
        patch,
        request.updateMask?.paths,
      );
      checkBalancing(merged, 'config');
      const loadBalancer = withBalancingDefaults(merged);
      if (equals(LoadBalancerConfigSchema, before, loadBalancer)) return { response: before };
      const transaction = this.deps.state.transaction();
      const change = { loadBalancer };
      putServiceUpdate(this.deps, view, transaction, current, change, request.requestId);
      return { response: loadBalancer, transaction };
    });
  }
}

/**
 * Applies an update to a spec. What the coordinator chose for settings that end with the update ends
 * too: ports of nodes, and the timeout of the session affinity.
 */
function mergeSpec(
  before: ServiceSpec,
  patch: ServiceSpec,
  paths: readonly string[] | undefined,
): ServiceSpec {
  const spec = updateMessage(ServiceSpecSchema, before, patch, paths);
  if (before.type !== Type.CLUSTER_IP && spec.type === Type.CLUSTER_IP && patch.ports.length === 0)
    for (const port of spec.ports) port.nodePort = 0;
  if (
    before.sessionAffinity !== Affinity.NONE &&
    spec.sessionAffinity === Affinity.NONE &&
    patch.sessionAffinityTimeout === undefined
  )
    delete spec.sessionAffinityTimeout;
  return spec;
}

/** Creates the error for a service that exists already. */
export function createExistsError(request: Parameters<typeof toServiceKey>[0]): CloudlessError {
  const message = `service "${toServiceKey(request)}" already exists; update it, or choose another name`;
  return new CloudlessError('exists', message);
}
