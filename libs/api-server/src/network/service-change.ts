import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  withBalancingDefaults,
  withServiceDefaults,
  type LoadBalancerConfig,
  type ServiceSpec,
} from '@cloudless/api';
import { ServiceRecordSchema, type ServiceRecord } from '@cloudless/api/store';
import { randomHex } from '@cloudless/base';
import {
  putServiceDeletion,
  toServiceKeyId,
  type ClusterView,
  type EventInit,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import { putExternalAddresses } from './external-addresses.js';
import { putNodePorts, putServiceAddress, type AddressDeps } from './service-addresses.js';
import { getServiceSpec } from './service-lookup.js';

/** Random bytes of the uid of a service. */
const UID_BYTES = 8;

/** A service to create, validated. */
export interface NewService {
  readonly namespace: string;
  readonly name: string;
  readonly spec: ServiceSpec;
  readonly labels?: Readonly<Record<string, string>>;
  readonly loadBalancer?: LoadBalancerConfig | undefined;
  /** Uid of the workload that exposes itself by the service. Default: none. */
  readonly ownerUid?: string;
}

/**
 * Adds a new service with its virtual address, ports of nodes and external addresses to a
 * transaction.
 * @throws the errors of {@link putServiceAddress}, {@link putNodePorts} and
 *   {@link putExternalAddresses}.
 */
export function putNewService(
  deps: AddressDeps,
  view: ClusterView,
  transaction: Transaction,
  { namespace, name, labels = {}, loadBalancer, ownerUid = '', ...given }: NewService,
  requestId: string,
): ServiceRecord {
  const uid = randomHex(deps.random, UID_BYTES);
  const key = toServiceKeyId(namespace, name);
  const spec = withServiceDefaults(given.spec);
  putNodePorts(deps, view, transaction, { uid, key }, { after: spec });
  putExternalAddresses(view, transaction, { uid, key }, { after: spec });
  const needsAddress = !spec.headless && spec.externalName === '';
  const record = create(ServiceRecordSchema, {
    ...{ namespace, name, uid, spec, labels, ownerUid },
    generation: 1n,
    createdAt: timestampFromMs(deps.clock.wallTime()),
    clusterIp: needsAddress ? putServiceAddress(deps, view, transaction, { uid, key }) : '',
    loadBalancer: withBalancingDefaults(loadBalancer),
  });
  const address = record.clusterIp === '' ? '' : ` with the virtual address ${record.clusterIp}`;
  transaction
    .require('service', key, 'absent')
    .put('service', key, record)
    .event(createServiceEvent(record, requestId, 'ServiceCreated', `was created${address}`));
  return record;
}

/**
 * Adds a changed service to a transaction. The virtual address stays.
 * @param change - The fields that replace those of the record. `spec` is validated and needs no
 *   defaults.
 */
export function putServiceUpdate(
  deps: AddressDeps,
  view: ClusterView,
  transaction: Transaction,
  current: Stored<ServiceRecord>,
  change: {
    readonly spec?: ServiceSpec;
    readonly labels?: Record<string, string>;
    readonly loadBalancer?: LoadBalancerConfig;
  },
  requestId: string,
): ServiceRecord {
  const { namespace, name, uid, generation } = current.value;
  const key = toServiceKeyId(namespace, name);
  const next = clone(ServiceRecordSchema, current.value);
  next.generation = generation + 1n;
  if (change.labels !== undefined) next.labels = change.labels;
  if (change.loadBalancer !== undefined)
    next.loadBalancer = withBalancingDefaults(change.loadBalancer);
  if (change.spec !== undefined) {
    next.spec = withServiceDefaults(change.spec);
    const before = getServiceSpec(current.value);
    putNodePorts(deps, view, transaction, { uid, key }, { before, after: next.spec });
    putExternalAddresses(view, transaction, { uid, key }, { before, after: next.spec });
  }
  transaction
    .require('service', key, current)
    .put('service', key, next)
    .event(
      createServiceEvent(
        next,
        requestId,
        'ServiceUpdated',
        `has new settings (generation ${next.generation})`,
      ),
    );
  return next;
}

/** Adds the deletion of a service and its event to a transaction. */
export function putServiceRemoval(
  { clock }: Pick<AddressDeps, 'clock'>,
  transaction: Transaction,
  current: Stored<ServiceRecord>,
  requestId: string,
): void {
  putServiceDeletion(transaction, current, clock.wallTime());
  transaction.event(createServiceEvent(current.value, requestId, 'ServiceDeleted', 'was deleted'));
}

function createServiceEvent(
  { namespace, name, ownerUid }: ServiceRecord,
  requestId: string,
  reason: string,
  text: string,
): EventInit {
  return {
    ...{ severity: Severity.INFO, category: Category.WORKLOAD, namespace, requestId, reason },
    ...(ownerUid === '' ? {} : { workload: name }),
    message: `service ${namespace}/${name} ${text}`,
  };
}
