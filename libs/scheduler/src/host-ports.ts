import { compareNumbers, compareText } from './order.js';
import type { Problems } from './problems.js';

/** A port of a node: whoever holds it is reached there, so one replica at a time holds it. */
export interface HostPort {
  /** The same number of the two is two ports. */
  readonly protocol: 'tcp' | 'udp';
  /** 1 to 65535. */
  readonly number: number;
}

const NO_PORTS: readonly HostPort[] = [];

/** Names a port among those of a node. */
export function hostPortKey({ protocol, number }: HostPort): string {
  return `${number}/${protocol}`;
}

/** The port for people: `8080`, and `53/udp` where it is not TCP. */
export function describeHostPort(port: HostPort): string {
  return port.protocol === 'tcp' ? `${port.number}` : hostPortKey(port);
}

/** The same ports, each once, in the order in which one that is taken is reported. */
export function inPortOrder(ports: readonly HostPort[] = NO_PORTS): readonly HostPort[] {
  if (ports.length < 2) return ports;
  const byKey = new Map(ports.map((port) => [hostPortKey(port), port]));
  return [...byKey.values()].sort(
    (a, b) => compareNumbers(a.number, b.number) || compareText(a.protocol, b.protocol),
  );
}

/** Notes ports that no node has. */
export function checkHostPorts(problems: Problems, path: string, ports: readonly HostPort[]): void {
  ports.forEach(({ protocol, number }, index) => {
    problems.oneOf(`${path}[${index}].protocol`, protocol, ['tcp', 'udp']);
    problems.wholeNumber(`${path}[${index}].number`, number, 1, 65_535);
  });
}

/** Which host ports are held on which node. Nodes and ports that nobody holds are not in it. */
export class HeldPorts {
  /**
   * How often each is held, by node and port: facts may clash, as when a node comes back with what
   * was replaced.
   */
  private readonly holders = new Map<string, Map<string, number>>();

  /** Enters (1) or takes back (-1) what one replica holds of a node. */
  count(nodeId: string, ports: readonly HostPort[], change: 1 | -1): void {
    if (ports.length === 0) return;
    const ofNode = this.holders.get(nodeId) ?? new Map<string, number>();
    for (const port of ports) {
      const held = (ofNode.get(hostPortKey(port)) ?? 0) + change;
      if (held > 0) ofNode.set(hostPortKey(port), held);
      else ofNode.delete(hostPortKey(port));
    }
    if (ofNode.size > 0) this.holders.set(nodeId, ofNode);
    else this.holders.delete(nodeId);
  }

  /** The first of `ports` that is held on the node. */
  firstTaken(nodeId: string, ports: readonly HostPort[]): HostPort | undefined {
    const ofNode = ports.length === 0 ? undefined : this.holders.get(nodeId);
    return ofNode && ports.find((port) => ofNode.has(hostPortKey(port)));
  }

  /** An equal one that goes its own way. */
  clone(): HeldPorts {
    const copy = new HeldPorts();
    for (const [nodeId, ofNode] of this.holders) copy.holders.set(nodeId, new Map(ofNode));
    return copy;
  }
}
