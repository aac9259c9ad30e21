import type { Clock } from '@cloudless/base';
import { isInRange, parseAddressRange, type AddressRange } from '@cloudless/network';
import { createLocalClients } from '../dns/local-clients.js';
import type { NetworkView } from '../model/network-model.js';

/** Clients whose address is remembered as within or outside the range. */
const MAX_KNOWN = 1_024;

/**
 * Returns a function that tells whether a client may use virtual addresses: the kernel accepts their
 * packets from every interface, so that a neighbour could reach the internal services of all
 * namespaces by a route of its own. Processes of this machine reach a virtual address from that very
 * address, which the kernel accepts from no interface.
 * @param isLocalClient - Returns true for an address of this machine. Default:
 *   {@link createLocalClients}.
 */
export function createVirtualClients(
  view: Pick<NetworkView, 'settings'>,
  clock: Clock,
  isLocalClient: (address: string) => boolean = createLocalClients(clock),
): (address: string) => boolean {
  let cidr = '';
  let range: AddressRange | undefined;
  const known = new Map<string, boolean>();
  const isVirtual = (address: string): boolean => {
    const earlier = known.get(address);
    if (earlier !== undefined) return earlier;
    if (known.size >= MAX_KNOWN) known.clear();
    const isWithin = range !== undefined && isInRange(range, address);
    known.set(address, isWithin);
    return isWithin;
  };
  return (address) => {
    const current = view.settings?.serviceCidr ?? '';
    if (current !== cidr) {
      cidr = current;
      range = cidr === '' ? undefined : parseAddressRange(cidr);
      known.clear();
    }
    return isVirtual(address) || isLocalClient(address);
  };
}
