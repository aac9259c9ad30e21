import { create } from '@bufbuild/protobuf';
import { InvalidInputError, CloudlessError, type Violation } from '@cloudless/base';
import { Port_Protocol as Protocol, type ServiceSpec } from '@cloudless/api';
import { NodePortRecordSchema } from '@cloudless/api/store';
import {
  listExternalAddressIds,
  type ClusterView,
  type Transaction,
} from '@cloudless/cluster-state';
import { explainRefusedAddress, findServerAddress, toCanonicalAddress } from '@cloudless/network';
import { readNetwork } from './network-settings.js';

/**
 * Checks the parts of a spec that depend on the network of the cluster: external addresses, and that
 * `external_name` leads out of the cluster.
 * @throws {@link InvalidInputError} with every violation.
 */
export function checkExternalTargets(view: ClusterView, spec: ServiceSpec): void {
  const { range, clusterDomain } = readNetwork(view);
  const violations: Violation[] = spec.externalIps.flatMap((address, index) => {
    const message =
      explainRefusedAddress(address, [range]) ??
      explainForm(address) ??
      explainMachineAddress(view, address);
    return message === undefined ? [] : [{ field: `spec.external_ips[${index}]`, message }];
  });
  const name = spec.externalName.toLowerCase().replace(/\.$/, '');
  if (name === clusterDomain || name.endsWith(`.${clusterDomain}`)) {
    violations.push({
      field: 'spec.external_name',
      message: `"${spec.externalName}" is a name of this cluster; create a service with a selector or a workload`,
    });
  }
  if (violations.length > 0) throw new InvalidInputError(violations);
}

/**
 * Checks the address of an endpoint outside the cluster.
 * @throws {@link InvalidInputError} for an address of a machine or of a service of the cluster, and
 *   for an address that no proxy connects to.
 */
export function checkEndpointAddress(view: ClusterView, address: string): void {
  const message =
    explainRefusedAddress(address, [readNetwork(view).range]) ??
    explainMachineAddress(view, address) ??
    explainServiceAddress(view, address);
  if (message !== undefined) throw new InvalidInputError([{ field: 'address', message }]);
}

/**
 * Adds the records of the external addresses of a changed spec to a transaction. Each address belongs
 * to one service for each protocol and port; the commit conflicts when another service has got an
 * address meanwhile.
 * @param specs - `before`: undefined for a new service.
 * @throws kind `precondition` for an address and port of another service.
 */
export function putExternalAddresses(
  view: ClusterView,
  transaction: Transaction,
  owner: { readonly uid: string; readonly key: string },
  specs: { readonly before?: ServiceSpec | undefined; readonly after: ServiceSpec },
): void {
  const { added, removed } = compareExternalAddresses(specs);
  for (const id of removed) transaction.delete('nodeport', id);
  for (const id of added) {
    if (view.nodePort(id) !== undefined) throw createTakenError(specs.after, id);
    const record = create(NodePortRecordSchema, { serviceUid: owner.uid, service: owner.key });
    transaction.require('nodeport', id, 'absent').put('nodeport', id, record);
  }
}

/** Returns the ids of the records that a change adds and removes. */
export function compareExternalAddresses(specs: {
  readonly before?: ServiceSpec | undefined;
  readonly after: ServiceSpec;
}): { readonly added: readonly string[]; readonly removed: readonly string[] } {
  const before = new Set(specs.before === undefined ? [] : listExternalAddressIds(specs.before));
  const after = new Set(listExternalAddressIds(specs.after));
  return {
    added: [...after].filter((id) => !before.has(id)),
    removed: [...before].filter((id) => !after.has(id)),
  };
}

function createTakenError({ externalIps, ports }: ServiceSpec, id: string): CloudlessError {
  const [, address = '', number = ''] = id.split('/');
  const index = externalIps.indexOf(address);
  const port = ports.find((each) => each.port === Number(number) && id.startsWith(toPrefix(each)));
  const protocol = Protocol[port?.protocol ?? Protocol.TCP];
  return new CloudlessError(
    'precondition',
    `spec.external_ips[${index}]: ${address} port ${number} ${protocol} belongs to another service; choose another address or port`,
  );
}

const toPrefix = ({ protocol }: { readonly protocol: Protocol }): string =>
  `${Protocol[protocol].toLowerCase()}/`;

/** Equal addresses must be equal texts, so that their records have one key. */
function explainForm(address: string): string | undefined {
  const canonical = toCanonicalAddress(address);
  return address === canonical ? undefined : `"${address}" has a shorter form; write ${canonical}`;
}

/**
 * Explains that an address is one of a machine of the cluster: its own servers listen there. Host
 * names of machines are not resolved.
 */
function explainMachineAddress(view: ClusterView, address: string): string | undefined {
  const wanted = toCanonicalAddress(address);
  for (const { value } of view.coordinators())
    if (findServerAddress(value.address) === wanted)
      return `${address} is the address of the coordinator "${value.id}"`;
  for (const { value } of view.nodes()) {
    const { agentAddress = '', network } = value.hello ?? {};
    if ([agentAddress, network?.address ?? ''].some((each) => findServerAddress(each) === wanted))
      return `${address} is an address of the node "${value.id}"`;
  }
  return undefined;
}

/** Explains that an address leads back to a service: the connections would never end. */
function explainServiceAddress(view: ClusterView, address: string): string | undefined {
  const wanted = toCanonicalAddress(address);
  for (const { value } of view.services())
    if (value.spec?.externalIps.includes(wanted) === true)
      return `${address} is an external address of a service`;
  return undefined;
}
