import { create } from '@bufbuild/protobuf';
import { ServiceSpecSchema, resolveNamespace, type ServiceSpec } from '@cloudless/api';
import type { ServiceRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import { toServiceKeyId, type ClusterView, type Stored } from '@cloudless/cluster-state';
import { checkGeneration } from '../generation.js';

/** The name of a service in a request. An empty namespace means `default`. */
export interface ServiceName {
  readonly namespace: string;
  readonly name: string;
}

/** Returns the key of the service that a request names. */
export function toServiceKey(request: ServiceName): string {
  return toServiceKeyId(resolveNamespace(request), request.name);
}

/**
 * Returns the service that a request names.
 * @throws kind `notFound` when there is no such service.
 */
export function requireService(view: ClusterView, request: ServiceName): Stored<ServiceRecord> {
  const key = toServiceKey(request);
  const service = view.service(key);
  if (service !== undefined) return service;
  throw new CloudlessError('notFound', `service "${key}" not found`);
}

/**
 * Returns the service that a request names and may change.
 * @throws the errors of {@link requireService}; kind `precondition` for the service of a workload,
 *   `conflict` when its generation is not the expected one.
 */
export function requireMutableService(
  view: ClusterView,
  request: ServiceName & { readonly expectedGeneration?: bigint | undefined },
): Stored<ServiceRecord> {
  const service = requireService(view, request);
  const { ownerUid, generation } = service.value;
  const key = toServiceKey(request);
  if (ownerUid !== '') {
    throw new CloudlessError(
      'precondition',
      `service "${key}" belongs to spec.expose of workload "${key}"; change the workload`,
    );
  }
  checkGeneration({ kind: 'service', name: key, generation }, request.expectedGeneration);
  return service;
}

/** Returns the spec of a service; an empty spec when the record has none. */
export function getServiceSpec({ spec }: ServiceRecord): ServiceSpec {
  return spec ?? create(ServiceSpecSchema);
}
