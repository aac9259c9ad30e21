import { errorMessageOf } from '@cloudless/base';
import {
  explainRefusedAddress,
  findServerAddress,
  parseAddressRange,
  toCanonicalAddress,
  type AddressRange,
} from '@cloudless/network';
import type { NetworkChanges, NetworkView } from '../model/network-model.js';

/**
 * Decides which addresses outside the cluster this proxy connects to. The coordinator refuses the
 * others as well; the decision here protects the ports and metadata services of this machine and of
 * the other nodes even from a coordinator, and a service from connections to itself.
 */
export class ExternalAddresses {
  private cidr = '';
  private ranges: readonly AddressRange[] = [];
  private problem: string | undefined;
  private readonly addressOf = new Map<string, string>();
  /** Ids of nodes by the address of their proxy. Nodes behind one address are several. */
  private readonly nodesAt = new Map<string, Set<string>>();

  /** @param listOwn - Returns the addresses of this machine. */
  constructor(
    private readonly view: Pick<NetworkView, 'settings' | 'nodes'>,
    private readonly listOwn: () => readonly string[],
  ) {}

  /** Follows the addresses of nodes. The cost is proportional to the changed nodes. */
  apply({ nodes }: Pick<NetworkChanges, 'nodes'>): void {
    for (const id of nodes) {
      const before = this.addressOf.get(id);
      const after = findServerAddress(this.view.nodes.get(id)?.network?.address ?? '');
      if (before === after) continue;
      if (before !== undefined) {
        const others = this.nodesAt.get(before);
        others?.delete(id);
        if (others?.size === 0) this.nodesAt.delete(before);
      }
      if (after === undefined) this.addressOf.delete(id);
      else {
        this.addressOf.set(id, after);
        this.nodesAt.set(after, (this.nodesAt.get(after) ?? new Set()).add(id));
      }
    }
  }

  /** Returns why this proxy does not connect to an address; undefined: it does. */
  explainRefused(address: string): string | undefined {
    const cidr = this.view.settings?.serviceCidr ?? '';
    if (cidr !== this.cidr) this.readRange(cidr);
    return (
      this.problem ??
      explainRefusedAddress(address, this.ranges) ??
      this.explainMachine(toCanonicalAddress(address))
    );
  }

  private explainMachine(address: string): string | undefined {
    if (this.listOwn().includes(address)) return `${address} is an address of this machine`;
    const [nodeId] = this.nodesAt.get(address) ?? [];
    return nodeId === undefined ? undefined : `${address} is an address of the node "${nodeId}"`;
  }

  /** Without a valid range nothing is permitted: an address could lead back to this proxy. */
  private readRange(cidr: string): void {
    this.cidr = cidr;
    this.ranges = [];
    this.problem = undefined;
    if (cidr === '') return;
    try {
      this.ranges = [parseAddressRange(cidr)];
    } catch (reason) {
      this.problem = `the range of virtual addresses is not valid: ${errorMessageOf(reason)}`;
    }
  }
}
