import type { ServiceRecord } from '@cloudless/api/store';
import type { RecordChange } from '@cloudless/cluster-state';
import { ADDRESS_HOLD_MS } from '@cloudless/network';

/**
 * Largest difference between the wall clocks of two coordinators of a world, milliseconds. Hold
 * times are measured with these clocks.
 */
const MAX_CLOCK_DIFFERENCE_MS = 1_200_000;

interface Owner {
  readonly uid: string;
  readonly name: string;
  /** Time of the world at which the service gave the address up. Undefined: the service has it. */
  readonly releasedAt: number | undefined;
}

/**
 * Checks that a virtual address never belongs to two services, and that a service gets the address
 * of a deleted service only after the hold time.
 */
export class ServiceAddressChecker {
  private readonly owners = new Map<string, Owner>();

  /** @param now - Returns the time of the world, milliseconds. */
  constructor(private readonly now: () => number) {}

  /** Returns the violations of one commit. */
  check(changes: readonly RecordChange[]): readonly string[] {
    const services = changes.filter(({ kind }) => kind === 'service').map(toServiceChange);
    for (const { before, after } of services) {
      if (before === undefined || before.clusterIp === '') continue;
      if (after?.uid === before.uid && after.clusterIp === before.clusterIp) continue;
      const { uid, name } = before;
      if (this.owners.get(before.clusterIp)?.uid === uid)
        this.owners.set(before.clusterIp, { uid, name, releasedAt: this.now() });
    }
    return services.flatMap(({ after }) => (after === undefined ? [] : this.assign(after)));
  }

  private assign({ uid, name, clusterIp }: ServiceRecord): readonly string[] {
    if (clusterIp === '') return [];
    const owner = this.owners.get(clusterIp);
    this.owners.set(clusterIp, { uid, name, releasedAt: undefined });
    if (owner === undefined || owner.uid === uid) return [];
    if (owner.releasedAt === undefined)
      return [`address ${clusterIp} belongs to service ${owner.name} and to service ${name}`];
    const heldMs = this.now() - owner.releasedAt;
    if (heldMs >= ADDRESS_HOLD_MS - MAX_CLOCK_DIFFERENCE_MS) return [];
    return [
      `service ${name} got address ${clusterIp} ${Math.round(heldMs / 1_000)} s after service ${owner.name} was deleted`,
    ];
  }
}

function toServiceChange({ before, after }: RecordChange) {
  return {
    before: before as ServiceRecord | undefined,
    after: after as ServiceRecord | undefined,
  };
}
