import { create } from '@bufbuild/protobuf';
import { listHostPorts, type WorkloadSpec } from '@cloudless/api';
import { NodePortRecordSchema, type WorkloadRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import {
  listRollbackVersions,
  type ClusterView,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import { FIRST_NODE_PORT, LAST_NODE_PORT } from '@cloudless/network';
import type { WorkloadName } from '../lookup.js';

/**
 * Id of the guard among the records of node ports: each change that gives a workload a host port in
 * the range of node ports rewrites the guard, and each change that gives a service a node port
 * requires it.
 */
const HOST_PORT_GUARD = 'hostports';

/** A change of the spec of a workload. */
interface SpecChange extends WorkloadName {
  /** Undefined for a new workload. */
  readonly current: Stored<WorkloadRecord> | undefined;
  readonly spec: WorkloadSpec;
}

/** Ports that one open transaction gives to workloads and to services. */
interface TransactionPorts {
  /** Workloads as `<namespace>/<name>`, by the id of the node port that equals their host port. */
  readonly hostPorts: Map<string, string>;
  /** Services as `<namespace>/<name>`, by the id of their node port. */
  readonly nodePorts: Map<string, string>;
}

/** The view does not show what an open transaction writes: a plan may make many changes at once. */
const portsIn = new WeakMap<Transaction, TransactionPorts>();

function getPorts(transaction: Transaction): TransactionPorts {
  const ports = portsIn.get(transaction) ?? { hostPorts: new Map(), nodePorts: new Map() };
  portsIn.set(transaction, ports);
  return ports;
}

/**
 * Checks that no host port that a workload gets is a node port of a service: the network of a
 * container takes the connections of a host port before the network proxy of the node.
 * @throws kind `precondition`, naming the port, the workload and the service.
 */
export function checkHostPorts(view: ClusterView, change: SpecChange): void {
  for (const id of listAddedPorts(change))
    checkHostPort(id, change, view.nodePort(id)?.value.service);
}

/**
 * Makes the commit of a change conflict when a service gets one of the new host ports as a node port
 * meanwhile, and a change of a service that is planned meanwhile conflict with this commit.
 * @throws the error of {@link checkHostPorts}, also for a node port that the transaction gives to a
 *   service.
 */
export function requireHostPorts(
  view: ClusterView,
  transaction: Transaction,
  change: SpecChange,
): void {
  checkHostPorts(view, change);
  const added = listAddedPorts(change);
  if (added.length === 0) return;
  const { hostPorts, nodePorts } = getPorts(transaction);
  for (const id of added) {
    checkHostPort(id, change, nodePorts.get(id));
    hostPorts.set(id, formatName(change));
    transaction.require('nodeport', id, 'absent');
  }
  transaction.put('nodeport', HOST_PORT_GUARD, create(NodePortRecordSchema));
}

/**
 * Makes the commit of a change that gives a service a node port conflict when a workload gets a host
 * port in the range of node ports meanwhile, which {@link findHostPortHolders} has not seen.
 * @param id - Id of the node port, such as `tcp/30080`.
 * @param service - `<namespace>/<name>`.
 */
export function requireHostPortHolders(
  view: ClusterView,
  transaction: Transaction,
  id: string,
  service: string,
): void {
  getPorts(transaction).nodePorts.set(id, service);
  transaction.require('nodeport', HOST_PORT_GUARD, view.nodePort(HOST_PORT_GUARD) ?? 'absent');
}

/** The use of a host port by a workload. */
export interface HostPortHolder {
  /** `workload default/web`, or `version 1 of workload default/web, which a rollback can restore`. */
  readonly description: string;
  /** Action that frees the port. Undefined: the user has to change the workload. */
  readonly remedy?: string;
}

/**
 * Returns the workloads with a host port in the range of node ports, by the id of the record that the
 * node port would have. A workload holds the host ports of its spec, also as `transaction` changes the
 * spec, those of each version that an automatic rollback can restore, and those of its live replicas.
 * So a rollback does not check for node ports: only ports from before this rule can be equal.
 */
export function findHostPortHolders(
  view: ClusterView,
  transaction: Transaction,
): ReadonlyMap<string, HostPortHolder> {
  const holders = new Map<string, HostPortHolder>();
  const add = (spec: WorkloadSpec | undefined, holder: HostPortHolder): void => {
    for (const id of listPortIds(spec)) if (!holders.has(id)) holders.set(id, holder);
  };
  for (const [id, workload] of getPorts(transaction).hostPorts)
    holders.set(id, { description: `workload ${workload}` });
  for (const { value } of view.workloads()) {
    const { uid, version: newest, spec } = value;
    const workload = `workload ${formatName(value)}`;
    add(spec, { description: workload });
    const control = view.control(uid)?.value;
    for (const version of control === undefined ? [] : listRollbackVersions(control))
      add(getTemplate(view, uid, version), {
        description: `version ${version} of ${workload}, which a rollback can restore`,
        remedy: `complete the rollout of version ${newest}`,
      });
    for (const [version, { live }] of view.replicaCounts(uid).byVersion) {
      if (live === 0 || version === newest) continue;
      add(getTemplate(view, uid, version), {
        description: `version ${version} of ${workload}, which still has replicas`,
        remedy: 'wait until they have stopped',
      });
    }
  }
  return holders;
}

function getTemplate(view: ClusterView, uid: string, version: number): WorkloadSpec | undefined {
  const record = view.version(uid, version);
  return record?.asWritten ?? record?.template;
}

/** @param service - The service with this node port; undefined: none. */
function checkHostPort(id: string, workload: WorkloadName, service: string | undefined): void {
  if (service === undefined) return;
  throw new CloudlessError(
    'precondition',
    `host port ${describePort(id)} of workload ${formatName(workload)} is the node port of service ${service}; use another host port, or change the node port of the service`,
  );
}

const formatName = ({ namespace, name }: WorkloadName): string => `${namespace}/${name}`;

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
