import type { NetworkView } from '../model/network-model.js';

/**
 * Returns the virtual addresses of services, sorted, each once. Services without a virtual address
 * have none.
 * @param patterns - `<namespace>/<name>`, `<namespace>/*` for a namespace, or `*` for all services.
 *   Other texts match nothing.
 */
export function listServiceAddresses(
  { services }: Pick<NetworkView, 'services'>,
  patterns: readonly string[],
): readonly string[] {
  const addresses = new Set<string>();
  for (const pattern of patterns) {
    const clusterIp = services.get(pattern)?.clusterIp ?? '';
    if (clusterIp !== '') addresses.add(clusterIp);
  }
  const matchesAll = patterns.includes('*');
  const namespaces = new Set(
    patterns.flatMap((pattern) => (pattern.endsWith('/*') ? [pattern.slice(0, -2)] : [])),
  );
  if (matchesAll || namespaces.size > 0)
    for (const { namespace, clusterIp } of services.values())
      if (clusterIp !== '' && (matchesAll || namespaces.has(namespace))) addresses.add(clusterIp);
  return [...addresses].sort();
}
