import { clone, create, equals } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  DeregisterEndpointResponseSchema,
  EndpointHealthSchema,
  EndpointHealth_Status as Health,
  NetworkService,
  SERVICE_DEFAULTS,
  ServiceEndpointSchema,
  type DeregisterEndpointRequest,
  type DeregisterEndpointResponse,
  type EndpointHealth,
  type RegisterEndpointRequest,
  type ServiceEndpoint,
  type UpdateEndpointHealthRequest,
} from '@cloudless/api';
import {
  EndpointRecordSchema,
  type EndpointRecord,
  type ServiceRecord,
} from '@cloudless/api/store';
import { CloudlessError, InvalidInputError } from '@cloudless/base';
import {
  findChecker,
  toServiceKeyId,
  type ClusterView,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import { toCanonicalAddress } from '@cloudless/network';
import type { AuditEntry } from '../audit/audit-log.js';
import { runIdempotent, type MutationDeps } from '../mutation/idempotent-mutation.js';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';
import { checkEndpointAddress } from './external-addresses.js';
import { getServiceSpec, requireService, toServiceKey } from './service-lookup.js';

const calls = NetworkService.method;
/** Endpoints outside the cluster of one service: more would not fit into one page of any list. */
const MAX_ENDPOINTS = 1_000;

/** Handlers of the calls of NetworkService that change endpoints outside the cluster. */
export class EndpointHandlers {
  constructor(private readonly deps: MutationDeps) {}

  registerEndpoint(request: RegisterEndpointRequest, entry: AuditEntry): Promise<ServiceEndpoint> {
    const name = { namespace: request.namespace, name: request.service };
    const call = { request, entry, subject: `service "${toServiceKey(name)}"` };
    return runIdempotent(this.deps, calls.registerEndpoint, call, (view) => {
      const service = requireService(view, name);
      checkEndpointAddress(view, request.address);
      const portName = requirePortName(service.value, request.portName);
      const address = toCanonicalAddress(request.address);
      const id = toEndpointId(portName, address, request.port);
      const key = `${toServiceKey(name)}/${id}`;
      const stored = view.externalEndpoint(key);
      const existing = stored?.value.serviceUid === service.value.uid ? stored.value : undefined;
      const endpoint = create(ServiceEndpointSchema, {
        ...{ id, portName, address, port: request.port },
        namespace: service.value.namespace,
        service: service.value.name,
        weight: request.weight ?? existing?.endpoint?.weight ?? SERVICE_DEFAULTS.weight,
        zone: request.zone || (existing?.endpoint?.zone ?? ''),
        region: request.region || (existing?.endpoint?.region ?? ''),
        health: existing?.endpoint?.health ?? create(EndpointHealthSchema),
        registeredAt:
          existing?.endpoint?.registeredAt ?? timestampFromMs(this.deps.clock.wallTime()),
      });
      if (
        existing?.endpoint !== undefined &&
        equals(ServiceEndpointSchema, existing.endpoint, endpoint)
      )
        return { response: endpoint };
      if (existing === undefined) checkEndpointCount(view, toServiceKey(name));
      const transaction = this.deps.state.transaction();
      // The service must not be deleted, or created again, at the same moment.
      transaction.require('service', toServiceKey(name), service);
      putEndpoint(transaction, key, stored, { endpoint, serviceUid: service.value.uid });
      return { response: endpoint, transaction };
    });
  }

  deregisterEndpoint(
    request: DeregisterEndpointRequest,
    entry: AuditEntry,
  ): Promise<DeregisterEndpointResponse> {
    const name = { namespace: request.namespace, name: request.service };
    const call = { request, entry, subject: `service "${toServiceKey(name)}"` };
    return runIdempotent(this.deps, calls.deregisterEndpoint, call, (view) => {
      requireService(view, name);
      const key = `${toServiceKey(name)}/${request.endpointId}`;
      const stored = view.externalEndpoint(key);
      const response = create(DeregisterEndpointResponseSchema);
      if (stored === undefined) {
        checkIsExternal(request.endpointId, view);
        return { response };
      }
      const transaction = this.deps.state.transaction();
      transaction.require('endpoint', key, stored).delete('endpoint', key);
      return { response, transaction };
    });
  }

  /** Sets the health of an endpoint at the request of a user. */
  setHealth(request: UpdateEndpointHealthRequest, entry: AuditEntry): Promise<ServiceEndpoint> {
    return this.changeHealth(
      request,
      (transaction) => entry.commit(transaction),
      (view) => {
        const { service, stored } = requireEndpoint(view, request);
        if (service.loadBalancer?.healthCheck !== undefined) {
          throw new CloudlessError(
            'precondition',
            `nodes check the endpoints of service "${toServiceKey(service)}"; remove its health check to set their health yourself`,
          );
        }
        return stored;
      },
    );
  }

  /**
   * Stores the result of a check by a node.
   * @throws kind `denied` unless the node checks this endpoint now.
   */
  reportHealth(request: UpdateEndpointHealthRequest): Promise<ServiceEndpoint> {
    const { state } = this.deps;
    return this.changeHealth(
      request,
      (transaction) => state.commit(transaction),
      (view) => {
        const { service, stored, key } = requireEndpoint(view, request);
        const isChecked = service.loadBalancer?.healthCheck !== undefined;
        if (isChecked && findChecker(view, key) === request.nodeId) return stored;
        throw new CloudlessError(
          'denied',
          `node "${request.nodeId}" does not check endpoint "${key}"; another node does, or the service has no health check`,
        );
      },
    );
  }

  private changeHealth(
    request: UpdateEndpointHealthRequest,
    commit: (transaction: Transaction) => Promise<unknown>,
    find: (view: ClusterView) => Stored<EndpointRecord>,
  ): Promise<ServiceEndpoint> {
    const { state, clock, random, mutex } = this.deps;
    const key = toEndpointKey(request);
    const subject = `endpoint "${key}"`;
    return mutex.run(subject, () =>
      retryOnConflict({ clock, random, subject }, async () => {
        const stored = find(state.view());
        const next = clone(EndpointRecordSchema, stored.value);
        const endpoint = (next.endpoint ??= create(ServiceEndpointSchema));
        const before = endpoint.health ?? create(EndpointHealthSchema);
        const health = createHealth(request.health, clock.wallTime());
        if (isSameHealth(before, health)) return endpoint;
        endpoint.health = health;
        const transaction = state.transaction();
        transaction.require('endpoint', key, stored).put('endpoint', key, next);
        await commit(transaction);
        return endpoint;
      }),
    );
  }
}

function createHealth(given: EndpointHealth | undefined, nowMs: number): EndpointHealth {
  const health =
    given === undefined ? create(EndpointHealthSchema) : clone(EndpointHealthSchema, given);
  if (health.status === Health.DRAINING || health.status === Health.UNKNOWN) {
    const message = 'must be HEALTHY or UNHEALTHY';
    throw new InvalidInputError([{ field: 'health.status', message }]);
  }
  health.lastCheck ??= timestampFromMs(nowMs);
  return health;
}

/** Counts and times alone are not stored, so that checks without news write nothing. */
function isSameHealth(before: EndpointHealth, after: EndpointHealth): boolean {
  return before.status === after.status && before.reason === after.reason;
}

function putEndpoint(
  transaction: Transaction,
  key: string,
  stored: Stored<EndpointRecord> | undefined,
  fields: { readonly endpoint: ServiceEndpoint; readonly serviceUid: string },
): void {
  transaction
    .require('endpoint', key, stored ?? 'absent')
    .put('endpoint', key, create(EndpointRecordSchema, fields));
}

/** Returns the id of an endpoint outside the cluster. Equal addresses and ports have equal ids. */
function toEndpointId(portName: string, address: string, port: number): string {
  return `${portName}-${address}-${port}`;
}

function toEndpointKey({ namespace, service, endpointId }: UpdateEndpointHealthRequest): string {
  return `${toServiceKey({ namespace, name: service })}/${endpointId}`;
}

function requireEndpoint(view: ClusterView, request: UpdateEndpointHealthRequest) {
  const { namespace, service: name, endpointId } = request;
  const service = requireService(view, { namespace, name }).value;
  const key = toEndpointKey(request);
  const stored = view.externalEndpoint(key);
  if (stored?.value.serviceUid === service.uid) return { service, stored, key };
  checkIsExternal(endpointId, view);
  throw new CloudlessError('notFound', `endpoint "${key}" not found`);
}

/** @throws kind `precondition` for the id of an endpoint of a replica. */
function checkIsExternal(endpointId: string, view: ClusterView): void {
  const replicaId = endpointId.split('/', 1)[0] ?? '';
  if (!endpointId.includes('/') || view.replica(replicaId) === undefined) return;
  throw new CloudlessError(
    'precondition',
    `endpoint "${endpointId}" belongs to a replica; its readiness decides, so stop the replica or change its readiness probe`,
  );
}

/**
 * Returns the name of the port that an endpoint serves.
 * @throws kind `precondition` when the service has endpoints of its own, `invalid` for the port name.
 */
function requirePortName(record: ServiceRecord, portName: string): string {
  const { ports, selector, workload, externalName } = getServiceSpec(record);
  const key = toServiceKeyId(record.namespace, record.name);
  if (workload !== '' || Object.keys(selector).length > 0) {
    throw new CloudlessError(
      'precondition',
      `service "${key}" leads to replicas; register endpoints with a service that has neither selector nor workload`,
    );
  }
  if (externalName !== '') {
    throw new CloudlessError(
      'precondition',
      `service "${key}" stands for the name ${externalName} and has no endpoints`,
    );
  }
  const names = ports.map(({ name }) => name);
  const [only] = names;
  if (portName === '' && only !== undefined && names.length === 1) return only;
  if (names.includes(portName)) return portName;
  const message =
    portName === ''
      ? `the service has several ports; set one of ${names.join(', ')}`
      : `the service has no port "${portName}"; set one of ${names.join(', ')}`;
  throw new InvalidInputError([{ field: 'port_name', message }]);
}

function checkEndpointCount(view: ClusterView, serviceKey: string): void {
  if ([...view.externalEndpointsOf(serviceKey)].length < MAX_ENDPOINTS) return;
  throw new CloudlessError(
    'exhausted',
    `service "${serviceKey}" has ${MAX_ENDPOINTS} registered endpoints, which is the limit; deregister some, or use several services`,
  );
}
