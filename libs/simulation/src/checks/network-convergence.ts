import {
  createEndpointPortIndex,
  createServingFilter,
  isReadyEndpoint,
  type ClusterView,
} from '@cloudless/cluster-state';
import type { ReplicaRecord, ServiceRecord, WorkloadRecord } from '@cloudless/api/store';
import { DEFAULT_CLUSTER_DOMAIN } from '@cloudless/network';
import type { SimProxy } from '../parts/sim-proxy.js';

/** State of one service that every proxy should have. */
export interface ExpectedService {
  readonly name: string;
  readonly uid: string;
  /** The virtual address. Empty: the name of the service leads to the endpoints. */
  readonly clusterIp: string;
  /** Addresses of the endpoints with their nodes. */
  readonly endpoints: readonly { readonly nodeId: string; readonly ip: string }[];
  /** Replicas that receive new connections, sorted. */
  readonly replicas: readonly string[];
}

/** Facts that the coordinator knows beside the records. */
export interface NetworkFacts {
  /** Returns true for a node that is not alive. */
  readonly isLost: (nodeId: string) => boolean;
  /** Returns the weights of the replicas of a workload. */
  readonly getWeight: (workload: WorkloadRecord) => (replica: ReplicaRecord) => number;
}

/** Returns what the proxies should know according to the records. */
export function expectServices(
  view: ClusterView,
  facts: NetworkFacts,
): ReadonlyMap<string, ExpectedService> {
  const expected = new Map<string, ExpectedService>();
  for (const { value: service } of view.services()) {
    const targets = findTargets(view, service, facts);
    expected.set(`${service.namespace}/${service.name}`, {
      name: service.name,
      uid: service.uid,
      clusterIp: service.clusterIp,
      endpoints: targets.flatMap(({ nodeId, ips }) => ips.map((ip) => ({ nodeId, ip }))),
      replicas: targets
        .filter(({ nodeId }) => !facts.isLost(nodeId))
        .map(({ replicaId }) => replicaId)
        .sort(),
    });
  }
  return expected;
}

/** Returns the differences between what a proxy knows and what it should know. */
export function findNetworkDifferences(
  proxy: SimProxy,
  expected: ReadonlyMap<string, ExpectedService>,
): readonly string[] {
  const at = `the proxy of ${proxy.nodeId}`;
  const { model } = proxy;
  const unknown = [...model.services.keys()]
    .filter((key) => !expected.has(key))
    .map((key) => `${at} knows service ${key}, which does not exist`);
  const wrong = [...expected].flatMap(([key, service]) => {
    const { uid, name, replicas } = service;
    if (model.services.get(key)?.uid !== uid) return [`${at} does not know service ${key} ${uid}`];
    const chosen = [...model.endpointsOf(key).values()]
      .filter(({ id }) => proxy.chooses(id))
      .map(({ replicaId }) => replicaId)
      .sort();
    const answer = proxy.zone?.lookup(`${name}.default.svc.${DEFAULT_CLUSTER_DOMAIN}`, 'A');
    const resolved = (answer?.answers ?? [])
      .flatMap((record) => (record.type === 'A' ? [record.address] : []))
      .sort();
    return [
      ...compare(`${at} chooses for ${key}`, chosen, replicas),
      ...compare(
        `the DNS of ${proxy.nodeId} answers for ${key}`,
        resolved,
        addressesAt(proxy.nodeId, service),
      ),
    ];
  });
  return [...unknown, ...wrong];
}

interface Target {
  readonly replicaId: string;
  readonly nodeId: string;
  readonly ips: readonly string[];
}

/**
 * Returns the addresses that the DNS of a node answers, sorted. Loopback addresses lead to the
 * replicas of the node only, so they are hidden from other nodes.
 */
function addressesAt(node: string, { clusterIp, endpoints }: ExpectedService): readonly string[] {
  if (clusterIp !== '') return [clusterIp];
  const visible = endpoints.filter(({ nodeId, ip }) => nodeId === node || !ip.startsWith('127.'));
  return [...new Set(visible.map(({ ip }) => ip))].sort();
}

function findTargets(
  view: ClusterView,
  service: ServiceRecord,
  { getWeight }: NetworkFacts,
): readonly Target[] {
  return [...view.workloadsSelectedBy(service)].flatMap(({ value: workload }) => {
    const { uid } = workload;
    const weightOf = getWeight(workload);
    const isServing = createServingFilter(view, uid);
    return [...view.replicasOf(uid)].flatMap(({ value: replica }) => {
      if (!isReadyEndpoint(replica) || !isServing(replica)) return [];
      if (weightOf(replica) === 0) return [];
      const declared = view.version(uid, replica.version)?.template?.ports ?? [];
      const ports = createEndpointPortIndex(service, declared)(replica);
      if (ports.length === 0) return [];
      const { id: replicaId, nodeId } = replica;
      return [{ replicaId, nodeId, ips: ports.map(({ ip }) => ip) }];
    });
  });
}

function compare(
  what: string,
  actual: readonly string[],
  wanted: readonly string[],
): readonly string[] {
  const [left, right] = [actual.join(', '), wanted.join(', ')];
  return left === right ? [] : [`${what} [${left}] instead of [${right}]`];
}
