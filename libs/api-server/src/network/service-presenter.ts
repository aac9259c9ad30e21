import { create } from '@bufbuild/protobuf';
import {
  Port_Protocol as Protocol,
  ServiceCondition_Type as ConditionType,
  ServiceConditionSchema,
  ServiceSchema,
  ServiceSpec_Type as Type,
  ServiceStatusSchema,
  resolvePortName,
  withBalancingDefaults,
  type Port,
  type Service,
  type ServiceCondition,
  type ServicePort,
  type ServiceStatus,
} from '@cloudless/api';
import type { ServiceRecord, WorkloadRecord } from '@cloudless/api/store';
import { definedFields } from '@cloudless/base';
import {
  isLive,
  matchTargetPort,
  toServiceKeyId,
  type ClusterView,
} from '@cloudless/cluster-state';
import { serviceDnsName } from '@cloudless/network';
import { readNetwork } from './network-settings.js';
import { isHealthyEndpoint, listServiceReplicas } from './service-endpoints.js';
import { getServiceSpec } from './service-lookup.js';

/** Most workloads, addresses or ports that a message names. */
const MAX_NAMED = 5;

/** Builds the API message of a service from the records. */
export function presentService(view: ClusterView, record: ServiceRecord): Service {
  const { namespace, name, uid, labels, generation, createdAt, ownerUid } = record;
  return create(ServiceSchema, {
    ...{ namespace, name, uid, labels, generation },
    ownerWorkload: ownerUid === '' ? '' : name,
    spec: getServiceSpec(record),
    status: presentStatus(view, record),
    loadBalancer: withBalancingDefaults(record.loadBalancer),
    ...definedFields({ createdAt }),
  });
}

/** Why a condition of a service does not hold. */
interface Problem {
  readonly reason: string;
  readonly message: string;
}

/** Numbers of endpoints, and what the conditions say of them. */
interface EndpointSummary {
  readonly ready: number;
  readonly total: number;
  /** Reason why no endpoint is ready. */
  readonly reason: string;
  readonly message: string;
}

function presentStatus(view: ClusterView, record: ServiceRecord): ServiceStatus {
  const { namespace, name, clusterIp } = record;
  const spec = getServiceSpec(record);
  const { clusterDomain } = readNetwork(view);
  const status = create(ServiceStatusSchema, {
    clusterIp,
    dnsName: serviceDnsName(namespace, name, clusterDomain),
  });
  if (spec.externalName !== '') return status;
  const selects = spec.workload !== '' || Object.keys(spec.selector).length > 0;
  const workloads = [...view.workloadsSelectedBy(record)].map(({ value }) => value);
  const summary = selects
    ? summarizeReplicas(view, record, workloads)
    : summarizeExternal(view, record);
  status.readyEndpoints = summary.ready;
  status.totalEndpoints = summary.total;
  const holds = summary.ready > 0;
  const proxyProblem = findProxyProblem(view);
  const addressProblem =
    spec.type === Type.LOAD_BALANCER ? findAddressProblem(view, record, proxyProblem) : undefined;
  status.conditions.push(
    createCondition(ConditionType.HAS_ENDPOINTS, holds ? undefined : summary),
    ...(workloads.length > 0
      ? [createCondition(ConditionType.PORTS_MATCH, findPortProblem(spec.ports, workloads))]
      : []),
    ...(addressProblem === undefined
      ? []
      : [createCondition(ConditionType.EXTERNAL_IPS_SERVED, addressProblem)]),
    ...(proxyProblem === undefined || proxyProblem === addressProblem
      ? []
      : [createCondition(ConditionType.NETWORK_PROXY_PRESENT, proxyProblem)]),
  );
  return status;
}

function createCondition(type: ConditionType, problem: Problem | undefined): ServiceCondition {
  const { reason, message } = problem ?? { reason: '', message: '' };
  return create(ServiceConditionSchema, { type, holds: problem === undefined, reason, message });
}

function summarizeReplicas(
  view: ClusterView,
  service: ServiceRecord,
  workloads: readonly WorkloadRecord[],
): EndpointSummary {
  const { namespace, spec } = service;
  if (workloads.length === 0) {
    const what =
      spec?.workload === undefined || spec.workload === ''
        ? `no workload of namespace ${namespace} has the labels ${formatLabels(spec?.selector ?? {})}`
        : `namespace ${namespace} has no workload ${spec.workload}`;
    return { ready: 0, total: 0, reason: 'NoWorkloadSelected', message: what };
  }
  const readyReplicas = workloads
    .flatMap((workload) => listServiceReplicas(view, service, workload))
    .filter(({ isReady }) => isReady);
  const ready = readyReplicas.filter(({ ports }) => ports.length > 0).length;
  const withoutPort = readyReplicas.length - ready;
  const live = workloads
    .flatMap(({ uid }) => [...view.replicasOf(uid)])
    .filter(({ value }) => isLive(value) && !value.lost).length;
  // A ready replica that serves no port of the service is no endpoint.
  const total = live - withoutPort;
  const names = formatNames(workloads.map(({ name }) => name));
  if (ready === 0 && withoutPort > 0) {
    return {
      ...{ ready, total, reason: 'PortsDoNotMatch' },
      message: `${withoutPort} ready ${withoutPort === 1 ? `replica of ${names} has` : `replicas of ${names} have`} no address for a port of the service; see the condition PORTS_MATCH`,
    };
  }
  return total === 0
    ? { ready, total, reason: 'NoReplicas', message: `${names} has no replicas` }
    : {
        ...{ ready, total, reason: 'NoReadyReplicas' },
        message: `none of the ${total} replicas of ${names} is ready; see cloudlessctl explain ${workloads[0]?.name ?? ''}`,
      };
}

function summarizeExternal(view: ClusterView, record: ServiceRecord): EndpointSummary {
  const key = toServiceKeyId(record.namespace, record.name);
  const endpoints = [...view.externalEndpointsOf(key)];
  const total = endpoints.length;
  const ready = endpoints.filter(({ value }) => isHealthyEndpoint(value, record)).length;
  return total === 0
    ? {
        ...{ ready, total, reason: 'NoEndpointRegistered' },
        message: 'the service has neither selector nor workload, and no endpoint is registered',
      }
    : {
        ...{ ready, total, reason: 'NoHealthyEndpoints' },
        message: `none of the ${total} registered endpoints is healthy`,
      };
}

/** Explains which ports of a service lead to no declared port; undefined when all do. */
function findPortProblem(
  ports: readonly ServicePort[],
  workloads: readonly WorkloadRecord[],
): Problem | undefined {
  const problems = workloads.flatMap(({ name, spec }) => {
    const declared = (spec?.ports ?? []).map((port) => ({ ...port, name: resolvePortName(port) }));
    const missing = ports.filter((port) => matchTargetPort(port, declared) === undefined);
    if (missing.length === 0) return [];
    const targets = missing.map((port) =>
      port.targetPort === '' ? port.name : `${port.name} (target ${port.targetPort})`,
    );
    return [
      `workload ${name} declares no port for ${formatNames(targets)}; it declares ${formatPorts(declared)}`,
    ];
  });
  if (problems.length === 0) return undefined;
  return { reason: 'PortsDoNotMatch', message: formatNames(problems, '; ') };
}

/** Explains that no node has a network proxy; undefined when a node has. */
function findProxyProblem(view: ClusterView): Problem | undefined {
  for (const { value } of view.nodes()) if (value.hello?.network !== undefined) return undefined;
  return {
    reason: 'NoNetworkProxy',
    message:
      'no node has a network proxy, so the name and the address of the service work nowhere; start agents with --network on or auto',
  };
}

/**
 * Explains why no node serves the external addresses of a service. Undefined when nodes may serve
 * them: the coordinator does not know where the network leads these addresses.
 * @param proxyProblem - Why no network proxy serves them. Undefined when proxies may.
 */
function findAddressProblem(
  view: ClusterView,
  record: ServiceRecord,
  proxyProblem: Problem | undefined,
): Problem | undefined {
  const { externalIps } = getServiceSpec(record);
  if (externalIps.length === 0)
    return {
      reason: 'NoExternalAddress',
      message: 'spec.external_ips is empty, so the service is reached as one of type NODE_PORT',
    };
  if (proxyProblem !== undefined) return proxyProblem;
  const missing = listMissingAddresses(view, externalIps);
  if (missing.length === 0) return undefined;
  return {
    reason: 'NoNodeHasAddress',
    message: `no interface of a node has the external address ${formatNames(missing)}; add the address to an interface of a node, or remove the address from spec.external_ips`,
  };
}

/** Lists the addresses that no node has; none while a node has not reported its addresses. */
function listMissingAddresses(view: ClusterView, wanted: readonly string[]): readonly string[] {
  const missing = new Set(wanted);
  for (const { value } of view.nodes()) {
    const { network } = value.hello ?? {};
    if (network === undefined || value.lost) continue;
    if (network.machineAddresses === undefined) return [];
    for (const address of network.machineAddresses.addresses) missing.delete(address);
  }
  return [...missing];
}

function formatPorts(ports: readonly Pick<Port, 'name' | 'containerPort' | 'protocol'>[]): string {
  if (ports.length === 0) return 'no ports';
  return formatNames(
    ports.map(
      ({ name, containerPort, protocol }) => `${name} (${containerPort} ${Protocol[protocol]})`,
    ),
  );
}

function formatLabels(labels: Readonly<Record<string, string>>): string {
  return formatNames(Object.entries(labels).map(([key, value]) => `${key}=${value}`));
}

function formatNames(names: readonly string[], separator = ', '): string {
  const shown = names.slice(0, MAX_NAMED).join(separator);
  return names.length > MAX_NAMED ? `${shown} and ${names.length - MAX_NAMED} more` : shown;
}
