import { withoutEmpty } from './source-map.js';

/** A workload that a foreign file describes, as the JSON form of a manifest. */
export interface ConvertedWorkload {
  readonly kind: 'Workload';
  /** Undefined: the namespace of the command line that applies the manifest. */
  readonly namespace: string | undefined;
  readonly name: string;
  /** {@link declarePort} and {@link addLabels} change the spec for services that need it. */
  readonly spec: Record<string, unknown>;
  /** Labels by which services of the foreign file select the replicas. */
  readonly podLabels: Readonly<Record<string, string>>;
}

/** Another object that a foreign file describes, with the keys of a manifest beside its name. */
export interface ConvertedDocument {
  readonly kind: 'Config' | 'Service' | 'Route';
  readonly namespace: string | undefined;
  readonly name: string;
  readonly body: Readonly<Record<string, unknown>>;
}

/** An object of the manifest that foreign files are converted to. */
export type ConvertedObject = ConvertedWorkload | ConvertedDocument;

/** Creates the objects that depend on the workloads of all foreign files. */
export type DeferredObjects = (
  workloads: readonly ConvertedWorkload[],
) => readonly ConvertedObject[];

/** A port of a workload in the JSON form of a manifest. */
export interface ConvertedPort {
  readonly name?: string;
  readonly containerPort?: number;
  /** Undefined: reached at the address of the replica only. */
  readonly hostPort?: number;
  /** Undefined: TCP. */
  readonly protocol?: 'UDP';
}

/** Returns the ports that a workload declares. */
export function listPorts({ spec }: ConvertedWorkload): readonly ConvertedPort[] {
  return Array.isArray(spec['ports']) ? (spec['ports'] as readonly ConvertedPort[]) : [];
}

/**
 * Declares a port of a workload, unless the workload declares the port already: services lead to
 * declared ports only, while other systems lead to any port.
 * @returns True when the port was added.
 */
export function declarePort(
  workload: ConvertedWorkload,
  containerPort: number,
  protocol: ConvertedPort['protocol'],
): boolean {
  const ports = listPorts(workload);
  if (ports.some((port) => port.containerPort === containerPort && port.protocol === protocol))
    return false;
  const port = { containerPort, ...(protocol === undefined ? {} : { protocol }) };
  workload.spec['ports'] = withDistinctNames([...ports, port]);
  return true;
}

/**
 * Returns ports whose names differ: a port without a name has the name `port-<number>`, which only
 * the first of several ports of the same number can have.
 */
export function withDistinctNames(ports: readonly ConvertedPort[]): readonly ConvertedPort[] {
  const taken = new Set<string>();
  return ports.map((port) => {
    if (port.name !== undefined) {
      taken.add(port.name);
      return port;
    }
    const first = `port-${port.containerPort ?? ''}`;
    let name = first;
    if (taken.has(name) && port.protocol === 'UDP') name = `${first}-udp`;
    for (let number = 2; taken.has(name); number += 1) name = `${first}-${number}`;
    taken.add(name);
    return name === first ? port : { name, ...port };
  });
}

/**
 * Adds labels by which a service selects a workload.
 * @returns The labels that the workload has with another value, which stay.
 */
export function addLabels(
  { spec }: ConvertedWorkload,
  labels: Readonly<Record<string, string>>,
): readonly string[] {
  const current = (spec['labels'] ?? {}) as Readonly<Record<string, string>>;
  spec['labels'] = { ...labels, ...current };
  return Object.keys(labels).filter((key) => (current[key] ?? labels[key]) !== labels[key]);
}

/** Returns the port of a service that leads to the declared port of the same number. */
export function toServicePort({
  name,
  containerPort,
  protocol,
}: ConvertedPort): Record<string, unknown> {
  return withoutEmpty({ name, port: containerPort, protocol });
}
