import { create } from '@bufbuild/protobuf';
import {
  CreateServiceRequestSchema,
  ServiceSpecSchema,
  checkBalancing,
  checkService,
} from '@cloudless/api';
import type { LoadBalancerConfig, ServiceSpec } from '@cloudless/api';
import { readRequestBody, type ObjectEntries, type ObjectId } from './read-body.js';
import type { RequestKind } from './read-body.js';

/** A service of a manifest. */
export interface ManifestService extends ObjectId {
  readonly spec: ServiceSpec;
  readonly labels: Readonly<Record<string, string>>;
  /** Undefined: the defaults of the balancing. */
  readonly loadBalancer: LoadBalancerConfig | undefined;
}

/** Keys of a service beside kind, namespace and name. `load_balancer` is accepted too. */
export const SERVICE_KEYS: readonly string[] = ['spec', 'labels', 'loadBalancer', 'load_balancer'];

const SERVICE_REQUEST: RequestKind<typeof CreateServiceRequestSchema> = {
  schema: CreateServiceRequestSchema,
  keys: SERVICE_KEYS,
  checks: [
    ({ spec }) => checkService(spec ?? create(ServiceSpecSchema)),
    ({ loadBalancer }) => checkBalancing(loadBalancer, 'load_balancer'),
  ],
};

/** Reads a service, see {@link readRequestBody}. */
export function readServiceBody(
  entries: ObjectEntries,
  id: ObjectId | undefined,
): ManifestService | undefined {
  const request = readRequestBody(SERVICE_REQUEST, entries, id);
  if (id === undefined || request?.spec === undefined) return undefined;
  const { spec, labels, loadBalancer } = request;
  return { ...id, spec, labels, loadBalancer };
}
