import { compareNumbers, compareText } from '../order.js';
import type { Problems } from './problems.js';

/** A port of the node's network that at most one replica at a time may hold. */
export interface SchedulerHostPort {
  /** Ports with the same number and different protocols are different ports. */
  readonly protocol: 'tcp' | 'udp';
  /** 1 to 65535. */
  readonly number: number;
}

const NO_PORTS: readonly SchedulerHostPort[] = [];

/** Returns a map key for a port. */
export function hostPortKey({ protocol, number }: SchedulerHostPort): string {
  return `${number}/${protocol}`;
}

/** Formats a port for people: `8080`, or `53/udp` for UDP. */
export function describeHostPort(port: SchedulerHostPort): string {
  return port.protocol === 'tcp' ? `${port.number}` : hostPortKey(port);
}

/** Removes duplicates and sorts the ports in the order in which a held port is reported. */
export function sortPorts(
  ports: readonly SchedulerHostPort[] = NO_PORTS,
): readonly SchedulerHostPort[] {
  if (ports.length < 2) return ports;
  const byKey = new Map(ports.map((port) => [hostPortKey(port), port]));
  return [...byKey.values()].sort(
    (a, b) => compareNumbers(a.number, b.number) || compareText(a.protocol, b.protocol),
  );
}

/** Adds a problem for each port with an unknown protocol or a number that is out of range. */
export function checkHostPorts(
  problems: Problems,
  path: string,
  ports: readonly SchedulerHostPort[],
): void {
  ports.forEach(({ protocol, number }, index) => {
    problems.requireOneOf(`${path}[${index}].protocol`, protocol, ['tcp', 'udp']);
    problems.requireWholeNumber(`${path}[${index}].number`, number, 1, 65_535);
  });
}

/**
 * Counts the holders of each host port on each node. Contains no entry for ports without a holder.
 */
export class HeldPorts {
  /**
   * Number of holders by node and port. Two replicas may hold one port, for example when a lost
   * node returns with a replaced replica.
   */
  private readonly holderCounts = new Map<string, Map<string, number>>();

  /** Adds (1) or subtracts (-1) the ports of one replica. */
  adjust(nodeId: string, ports: readonly SchedulerHostPort[], change: 1 | -1): void {
    if (ports.length === 0) return;
    const countsOfNode = this.holderCounts.get(nodeId) ?? new Map<string, number>();
    for (const port of ports) {
      const held = (countsOfNode.get(hostPortKey(port)) ?? 0) + change;
      if (held > 0) countsOfNode.set(hostPortKey(port), held);
      else countsOfNode.delete(hostPortKey(port));
    }
    if (countsOfNode.size > 0) this.holderCounts.set(nodeId, countsOfNode);
    else this.holderCounts.delete(nodeId);
  }

  /** Returns the first of `ports` that a replica holds on the node; undefined when all are free. */
  findHeld(nodeId: string, ports: readonly SchedulerHostPort[]): SchedulerHostPort | undefined {
    const countsOfNode = ports.length === 0 ? undefined : this.holderCounts.get(nodeId);
    return countsOfNode && ports.find((port) => countsOfNode.has(hostPortKey(port)));
  }

  /** Returns an independent copy. */
  clone(): HeldPorts {
    const copy = new HeldPorts();
    for (const [nodeId, countsOfNode] of this.holderCounts)
      copy.holderCounts.set(nodeId, new Map(countsOfNode));
    return copy;
  }
}
