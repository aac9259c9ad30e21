import { create } from '@bufbuild/protobuf';
import { listHostPorts, type WorkloadSpec } from '@cloudless/api';
import { NodePortRecordSchema, type WorkloadRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import type { ClusterView, Stored, Transaction } from '@cloudless/cluster-state';
import { FIRST_NODE_PORT, LAST_NODE_PORT } from '@cloudless/network';

/**
 * Id of the guard among the records of node ports: each change that gives a workload a host port in
 * the range of node ports rewrites the guard, and each change that gives a service a node port
 * requires it.
 */
const HOST_PORT_GUARD = 'hostports';

/** A change of the spec of a workload. */
interface SpecChange {
  /** Undefined for a new workload. */
  readonly current: Stored<WorkloadRecord> | undefined;
  readonly spec: WorkloadSpec;
}

/**
 * Checks that no host port that a workload gets is a node port of a service: the network of a
 * container takes the connections of a host port before the network proxy of the node.
 * @throws kind `precondition`, naming the port and the service.
 */
export function checkHostPorts(view: ClusterView, change: SpecChange): void {
  for (const id of listAddedPorts(change)) {
    const service = view.nodePort(id)?.value.service;
    if (service === undefined) continue;
    throw new CloudlessError(
      'precondition',
      `host port ${describePort(id)} is the node port of service ${service}; use another host port, or change the node port of the service`,
    );
  }
}

/**
 * Makes the commit of a change conflict when a service gets one of the new host ports as a node port
 * meanwhile, and a change of a service that is planned meanwhile conflict with this commit.
 * @throws the error of {@link checkHostPorts}.
 */
export function requireHostPorts(
  view: ClusterView,
  transaction: Transaction,
  change: SpecChange,
): void {
  checkHostPorts(view, change);
  const added = listAddedPorts(change);
  if (added.length === 0) return;
  for (const id of added) transaction.require('nodeport', id, 'absent');
  transaction.put('nodeport', HOST_PORT_GUARD, create(NodePortRecordSchema));
}

/**
 * Makes the commit of a change that gives a service a node port conflict when a workload gets a host
 * port in the range of node ports meanwhile, which {@link findHostPortHolders} has not seen.
 */
export function requireHostPortHolders(view: ClusterView, transaction: Transaction): void {
  transaction.require('nodeport', HOST_PORT_GUARD, view.nodePort(HOST_PORT_GUARD) ?? 'absent');
}

/**
 * Returns the workloads, as `<namespace>/<name>`, with a host port in the range of node ports, by the
 * id of the record that the node port would have.
 */
export function findHostPortHolders(view: ClusterView): ReadonlyMap<string, string> {
  const holders = new Map<string, string>();
  for (const { value } of view.workloads())
    for (const id of listPortIds(value.spec)) holders.set(id, `${value.namespace}/${value.name}`);
  return holders;
}

function listAddedPorts({ current, spec }: SpecChange): readonly string[] {
  const before = new Set(listPortIds(current?.value.spec));
  return [...new Set(listPortIds(spec))].filter((id) => !before.has(id));
}

/** Returns the ids of the node ports that equal a host port, such as `tcp/30080`. */
function listPortIds(spec: WorkloadSpec | undefined): readonly string[] {
  if (spec === undefined) return [];
  return listHostPorts(spec).flatMap(({ protocol, number }) =>
    number >= FIRST_NODE_PORT && number <= LAST_NODE_PORT ? [`${protocol}/${number}`] : [],
  );
}

function describePort(id: string): string {
  const [protocol, port = ''] = id.split('/');
  return protocol === 'tcp' ? port : `${port}/${protocol}`;
}
