import type { Clock, Timer } from '@cloudless/base';
import { isInRange, parseAddressRange, type AddressRange } from '@cloudless/network';

/**
 * Interval at which the addresses of the machine are listed again, milliseconds. Node has no notice of
 * changes. A list costs some 0.1 ms, and 0.5 ms with 200 addresses.
 */
export const ADDRESS_CHECK_MS = 1_000;

/** Arguments of {@link MachineAddresses}. */
export interface MachineAddressesOptions {
  /** Lists the addresses of the machine that the caller wants to use. May throw. */
  readonly list: () => readonly string[];
  /** Returns the range of virtual addresses; empty while unknown. */
  readonly serviceCidr: () => string;
  /** Called after each change of the addresses. */
  readonly onChange: () => void;
  readonly clock: Clock;
}

/**
 * The addresses of the machine, at which node ports and the HTTP ingress listen. Follows addresses
 * that come and go, such as with DHCP. Addresses in the range of virtual addresses are left out,
 * even when an interface has such an address, because they belong to services.
 */
export class MachineAddresses {
  private addresses: readonly string[] = [];
  private cidr = '';
  private range: AddressRange | undefined;
  private timer: Timer | undefined;

  constructor(private readonly options: MachineAddressesOptions) {
    this.addresses = this.list();
  }

  /** The addresses by the latest check, in the order of the list. */
  get current(): readonly string[] {
    return this.addresses;
  }

  /** Begins to check the addresses every second. */
  start(): void {
    this.timer?.cancel();
    this.timer = this.options.clock.setTimer(ADDRESS_CHECK_MS, () => {
      this.refresh();
      this.start();
    });
  }

  /** Lists the addresses now. */
  refresh(): void {
    const before = this.addresses;
    this.addresses = this.list();
    const isSame =
      before.length === this.addresses.length &&
      before.every((address) => this.addresses.includes(address));
    if (!isSame) this.options.onChange();
  }

  close(): void {
    this.timer?.cancel();
    this.timer = undefined;
  }

  /** Keeps the known addresses when they cannot be listed. */
  private list(): readonly string[] {
    const { cidr } = this;
    const now = this.options.serviceCidr();
    if (now !== cidr) {
      this.cidr = now;
      this.range = toRange(now);
    }
    const { range } = this;
    let listed: readonly string[];
    try {
      listed = this.options.list();
    } catch {
      listed = this.addresses;
    }
    return listed.filter((address) => range === undefined || !isInRange(range, address));
  }
}

/** A range that cannot be read is refused, and reported, where it is made reachable. */
function toRange(cidr: string): AddressRange | undefined {
  try {
    return cidr === '' ? undefined : parseAddressRange(cidr);
  } catch {
    return undefined;
  }
}
