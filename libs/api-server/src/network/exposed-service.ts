import { equals } from '@bufbuild/protobuf';
import {
  ServiceSpecSchema,
  createExposedSpec,
  withServiceDefaults,
  type WorkloadSpec,
} from '@cloudless/api';
import type { ServiceRecord, WorkloadRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import {
  toServiceKeyId,
  type ClusterView,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import type { WorkloadName } from '../lookup.js';
import { putNewService, putServiceRemoval, putServiceUpdate } from './service-change.js';
import type { AddressDeps } from './service-addresses.js';
import { getServiceSpec } from './service-lookup.js';

/**
 * Checks that a workload can expose itself by a service of its name.
 * @param uid - Uid of the workload; empty for a new workload.
 * @throws kind `exists` when another service has the name.
 */
export function checkExposable(
  view: ClusterView,
  { namespace, name, uid }: WorkloadName & { readonly uid: string },
  spec: WorkloadSpec,
): void {
  const key = toServiceKeyId(namespace, name);
  const service = view.service(key)?.value;
  if (spec.expose.length === 0 || service === undefined) return;
  if (service.ownerUid !== '' && service.ownerUid === uid) return;
  throw new CloudlessError(
    'exists',
    `service "${key}" already exists, so spec.expose cannot create it; delete the service, or leave expose out`,
  );
}

/**
 * Adds what `expose` of a new or changed workload asks for to the transaction of the workload: its
 * service is created, changed or deleted.
 * @throws the errors of {@link checkExposable} and of the choice of an address.
 */
export function putExposedService(
  deps: AddressDeps,
  view: ClusterView,
  transaction: Transaction,
  { uid, namespace, name, spec, requestId }: WorkloadRecord,
): void {
  const key = toServiceKeyId(namespace, name);
  const current = findOwned(view, key, uid);
  const wanted = spec && createExposedSpec(name, spec);
  if (spec !== undefined) checkExposable(view, { namespace, name, uid }, spec);
  if (wanted === undefined) {
    if (current !== undefined) putServiceRemoval(deps, transaction, current, requestId);
  } else if (current === undefined) {
    const service = { namespace, name, spec: wanted, ownerUid: uid };
    putNewService(deps, view, transaction, service, requestId);
  } else if (!equals(ServiceSpecSchema, getServiceSpec(current.value), withServiceDefaults(wanted)))
    putServiceUpdate(deps, view, transaction, current, { spec: wanted }, requestId);
}

function findOwned(view: ClusterView, key: string, uid: string): Stored<ServiceRecord> | undefined {
  const service = view.service(key);
  return service?.value.ownerUid === uid ? service : undefined;
}
