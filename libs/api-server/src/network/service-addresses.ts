import { create } from '@bufbuild/protobuf';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import {
  Port_Protocol as Protocol,
  ServiceSpec_Type as Type,
  type ServicePort,
  type ServiceSpec,
} from '@cloudless/api';
import { NodePortRecordSchema, ServiceAddressRecordSchema } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import { toNodePortId, type ClusterView, type Transaction } from '@cloudless/cluster-state';
import { allocateAddress, allocateNodePort, type AssignedAddress } from '@cloudless/network';
import type { ApiServerDeps } from '../ports.js';
import {
  findHostPortHolders,
  requireHostPortHolders,
  type HostPortHolder,
} from './host-port-conflicts.js';
import { readNetwork, requireSameNetwork } from './network-settings.js';

export type AddressDeps = Pick<ApiServerDeps, 'clock' | 'random'>;

/** A service that gets an address or ports. */
export interface AddressOwner {
  readonly uid: string;
  /** `<namespace>/<name>`. */
  readonly key: string;
}

/**
 * Addresses that each open transaction has chosen already: a plan may create many services at once.
 */
const chosenIn = new WeakMap<Transaction, Set<string>>();

function listChosen(transaction: Transaction): Set<string> {
  const known = chosenIn.get(transaction) ?? new Set<string>();
  chosenIn.set(transaction, known);
  return known;
}

/**
 * Chooses the virtual address of a new service and adds its record to the transaction. The commit
 * conflicts when another service has got the address meanwhile.
 * @throws kind `exhausted`, naming the range, when no address is free.
 */
export function putServiceAddress(
  { clock, random }: AddressDeps,
  view: ClusterView,
  transaction: Transaction,
  { uid, key }: AddressOwner,
): string {
  const chosen = listChosen(transaction);
  const { range } = readNetwork(view);
  const assigned = {
    size: chosen.size,
    get: (address: string): AssignedAddress | undefined => {
      if (chosen.has(address)) return { releasedAtMs: undefined };
      const record = view.serviceAddress(address)?.value;
      const { releasedAt } = record ?? {};
      return record && { releasedAtMs: releasedAt && timestampMs(releasedAt) };
    },
  };
  const result = allocateAddress({ range, assigned, nowMs: clock.wallTime(), random });
  if (result.kind !== 'allocated') throw new CloudlessError('exhausted', result.message);
  const { address } = result;
  chosen.add(address);
  requireSameNetwork(transaction, view);
  const record = create(ServiceAddressRecordSchema, { serviceUid: uid, service: key });
  transaction
    .require('serviceip', address, view.serviceAddress(address) ?? 'absent')
    .put('serviceip', address, record);
  return address;
}

/**
 * Sets the ports of nodes of a changed spec, in place, and adds their records to the transaction. A
 * port without a number keeps the number that the port of the same name and protocol had. The commit
 * conflicts when another service, or a workload as a host port, has got a port meanwhile.
 * @param before - Undefined for a new service.
 * @throws kind `precondition` for a port of another service or a host port of a workload, `exhausted`
 *   when no port is free.
 */
export function putNodePorts(
  { random }: AddressDeps,
  view: ClusterView,
  transaction: Transaction,
  owner: AddressOwner,
  { before, after }: { readonly before?: ServiceSpec | undefined; readonly after: ServiceSpec },
): void {
  const chosen = listChosen(transaction);
  const held = new Map(
    (before?.ports ?? [])
      .filter(({ nodePort }) => nodePort !== 0)
      .map((port) => [toNodePortId(port.protocol, port.nodePort), port]),
  );
  if (after.type === Type.CLUSTER_IP) for (const port of after.ports) port.nodePort = 0;
  else {
    const used = new Set(
      after.ports.map(({ protocol, nodePort }) => toNodePortId(protocol, nodePort)),
    );
    for (const port of after.ports) {
      if (port.nodePort !== 0) continue;
      const same = [...held.values()].find(
        ({ name, protocol }) => name === port.name && protocol === port.protocol,
      );
      if (same === undefined || used.has(toNodePortId(same.protocol, same.nodePort))) continue;
      port.nodePort = same.nodePort;
      used.add(toNodePortId(port.protocol, port.nodePort));
    }
    const isHeld = ({ protocol, nodePort }: ServicePort): boolean =>
      nodePort !== 0 && held.has(toNodePortId(protocol, nodePort));
    const holders = after.ports.every(isHeld)
      ? new Map<string, HostPortHolder>()
      : findHostPortHolders(view, transaction);
    for (const [index, port] of after.ports.entries()) {
      const { protocol } = port;
      if (isHeld(port)) continue;
      const isTaken = (id: string): boolean => view.nodePort(id) !== undefined || chosen.has(id);
      const wanted = port.nodePort;
      const field = `spec.ports[${index}].node_port`;
      const holder = holders.get(toNodePortId(protocol, wanted));
      if (holder !== undefined)
        throw new CloudlessError(
          'precondition',
          `${field}: ${wanted} is a host port of ${holder.description}; ${holder.remedy === undefined ? '' : `${holder.remedy}, `}choose another port, or leave the field out`,
        );
      const result = allocateNodePort(
        {
          has: (candidate) => {
            const id = toNodePortId(protocol, candidate);
            return isTaken(id) || (wanted === 0 && (used.has(id) || holders.has(id)));
          },
        },
        random,
        wanted,
      );
      if (result.kind === 'exhausted')
        throw new CloudlessError('exhausted', `${result.message} for ${Protocol[protocol]}`);
      if (result.kind === 'refused') {
        const message = `${field}: ${result.message}; choose another port, or leave the field out`;
        throw new CloudlessError('precondition', message);
      }
      port.nodePort = result.port;
      used.add(toNodePortId(protocol, result.port));
    }
  }
  const wanted = new Set(
    after.ports
      .filter(({ nodePort }) => nodePort !== 0)
      .map(({ protocol, nodePort }) => toNodePortId(protocol, nodePort)),
  );
  for (const id of held.keys()) if (!wanted.has(id)) transaction.delete('nodeport', id);
  for (const id of wanted) {
    if (held.has(id)) continue;
    chosen.add(id);
    requireHostPortHolders(view, transaction, id, owner.key);
    const record = create(NodePortRecordSchema, { serviceUid: owner.uid, service: owner.key });
    transaction.require('nodeport', id, 'absent').put('nodeport', id, record);
  }
}
