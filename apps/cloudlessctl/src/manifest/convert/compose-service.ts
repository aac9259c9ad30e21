import { declarePort, listPorts, toServicePort } from './converted-object.js';
import type { ConvertedDocument, ConvertedWorkload } from './converted-object.js';
import { isMap } from './source-map.js';
import type { SourceMap } from './source-map.js';

/** Declares the ports of `expose`, such as `3000` or `53/udp`. */
export function declareExposed(service: SourceMap, workload: ConvertedWorkload): void {
  for (const [index, text] of service.takeTexts('expose').entries()) {
    const [, port, protocol] = /^(\d+)(?:\/(tcp|udp))?$/.exec(text) ?? [];
    if (port === undefined)
      service.report(
        [...service.path, 'expose', index],
        `left out: ${text} is no single port; declare each port`,
      );
    else declarePort(workload, Number(port), protocol === 'udp' ? 'UDP' : undefined);
  }
}

/**
 * Returns the service of a workload, by whose name other services of the file reach the ports of
 * `ports` and `expose`; none for a workload without ports.
 */
export function createServices(workload: ConvertedWorkload): readonly ConvertedDocument[] {
  const ports = new Map<string, Record<string, unknown>>();
  for (const port of listPorts(workload)) {
    const key = `${port.containerPort}/${port.protocol ?? 'TCP'}`;
    if (!ports.has(key)) ports.set(key, toServicePort(port));
  }
  if (ports.size === 0) return [];
  const { namespace, name } = workload;
  const spec = { ports: [...ports.values()], workload: name };
  return [{ kind: 'Service', namespace, name, body: { spec } }];
}

/** Reports services without ports that others depend on, because no name leads to their replicas. */
export function reportUnreachable(
  services: SourceMap,
  workloads: ReadonlyMap<string, ConvertedWorkload>,
): void {
  const needed = new Set(
    services.keys.flatMap((name) => {
      const service = services.take(name);
      if (!isMap(service)) return [];
      return [...listNames(service['depends_on']), ...listNames(service['links'])];
    }),
  );
  for (const [name, workload] of workloads)
    if (needed.has(name) && listPorts(workload).length === 0)
      services.note(
        name,
        'has no ports, so its name leads nowhere: declare in expose the ports that other services connect to',
      );
}

/** Returns the names of services in a list, or the keys of a map. `db:alias` names `db`. */
function listNames(value: unknown): readonly string[] {
  const names = Array.isArray(value) ? value : isMap(value) ? Object.keys(value) : [];
  return names.map((name) => String(name).split(':')[0] ?? '');
}
