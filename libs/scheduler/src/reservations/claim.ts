import { areEqualCustom, toCustomAmounts } from '../input/custom-resources.js';
import { hostPortKey, sortPorts, type SchedulerHostPort } from '../input/host-ports.js';
import { DEFAULT_PRIORITY, type Reservation } from '../input/reservation.js';
import { toResources, type ResourceAmounts, type Resources } from '../input/resources.js';

/** What one replica holds on its node. Immutable; replicas of one template share an object. */
export interface Claim {
  readonly resources: Resources;
  /** Sorted, without duplicates. */
  readonly hostPorts: readonly SchedulerHostPort[];
  readonly priority: number;
}

type ClaimFields = Pick<Reservation, 'resources' | 'hostPorts' | 'priority'>;

/** Creates a claim as a copy, as the caller may change its objects. */
export function toClaim({ resources, hostPorts, priority = DEFAULT_PRIORITY }: ClaimFields): Claim {
  return {
    resources: toResources(resources),
    hostPorts: sortPorts(hostPorts).map((port) => ({ ...port })),
    priority,
  };
}

/** Returns true when a claim made from the reservation would equal `claim`. */
export function isClaimOf(claim: Claim | undefined, reservation: ClaimFields): claim is Claim {
  return (
    claim !== undefined &&
    claim.priority === (reservation.priority ?? DEFAULT_PRIORITY) &&
    haveEqualAmounts(claim.resources, reservation.resources) &&
    haveEqualPorts(claim.hostPorts, reservation.hostPorts ?? [])
  );
}

function haveEqualAmounts(a: Resources, b: ResourceAmounts): boolean {
  return (
    a.cpuMillis === b.cpuMillis &&
    a.memoryBytes === b.memoryBytes &&
    a.storageBytes === (b.storageBytes ?? 0) &&
    a.bandwidthBps === (b.bandwidthBps ?? 0) &&
    a.gpus === (b.gpus ?? 0) &&
    (a.custom === b.custom || areEqualCustom(a.custom, toCustomAmounts(b.custom)))
  );
}

/** A different order of equal ports only costs one more object. */
function haveEqualPorts(a: readonly SchedulerHostPort[], b: readonly SchedulerHostPort[]): boolean {
  return (
    a.length === b.length &&
    a.every((port, index) => {
      const other = b[index];
      return other !== undefined && hostPortKey(port) === hostPortKey(other);
    })
  );
}
