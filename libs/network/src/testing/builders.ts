import { createSeededRandom } from '@cloudless/base';
import {
  DEFAULT_BALANCER_CONFIG,
  type BalancedEndpoint,
  type BalancerConfig,
} from '../balancing/balancer-types.js';
import { ServiceBalancer } from '../balancing/service-balancer.js';
import type { ZoneEndpoint, ZoneService } from '../names/zone-records.js';

/** A ready endpoint on a node of its own. */
export function anEndpoint(overrides: Partial<BalancedEndpoint> = {}): BalancedEndpoint {
  const id = overrides.id ?? 'e1';
  return {
    id,
    nodeId: `node-of-${id}`,
    zone: '',
    region: '',
    ready: true,
    workload: 'web',
    weight: 100,
    version: 1,
    ...overrides,
  };
}

/** Ready endpoints `e0`, `e1`, … */
export function endpoints(
  count: number,
  overrides: (index: number) => Partial<BalancedEndpoint> = () => ({}),
): BalancedEndpoint[] {
  return Array.from({ length: count }, (_, index) =>
    anEndpoint({ id: `e${index}`, ...overrides(index) }),
  );
}

/** A balancer of a proxy on node `here` in zone `z1` of region `r1`. */
export function aBalancer(config: Partial<BalancerConfig> = {}, seed = 1): ServiceBalancer {
  return new ServiceBalancer({
    config: { ...DEFAULT_BALANCER_CONFIG, ...config },
    here: { nodeId: 'here', zone: 'z1', region: 'r1' },
    random: createSeededRandom(seed),
  });
}

/** Chooses once and returns the id of the endpoint, or the reason of the refusal. */
export function chooseId(
  balancer: ServiceBalancer,
  request: { clientAddress?: string; nowMs?: number; exclude?: ReadonlySet<string> } = {},
): string {
  const choice = balancer.choose({ clientAddress: '10.0.0.1', nowMs: 0, ...request });
  return choice.kind === 'endpoint' ? choice.endpointId : choice.reason;
}

/** Chooses `count` times for as many clients and returns how often each endpoint was chosen. */
export function countChoices(
  balancer: ServiceBalancer,
  count: number,
  options: { nowMs?: number; keepOpen?: boolean } = {},
): Map<string, number> {
  const counts = new Map<string, number>();
  for (let index = 0; index < count; index += 1) {
    const clientAddress = `10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`;
    const id = chooseId(balancer, { clientAddress, nowMs: options.nowMs ?? 0 });
    if (options.keepOpen === true) balancer.opened(id);
    counts.set(id, (counts.get(id) ?? 0) + 1);
  }
  return counts;
}

/** Service `web` of namespace `default` at 10.96.0.20 with port `http` (80). */
export function aZoneService(overrides: Partial<ZoneService> = {}): ZoneService {
  return {
    namespace: 'default',
    name: 'web',
    clusterIp: '10.96.0.20',
    headless: false,
    externalName: '',
    ports: [{ name: 'http', port: 80, protocol: 'tcp' }],
    ...overrides,
  };
}

/** Ready endpoint of slot 0 of service `web` at 10.1.0.1:8080. */
export function aZoneEndpoint(overrides: Partial<ZoneEndpoint> = {}): ZoneEndpoint {
  return {
    id: 'default/web/a-1',
    namespace: 'default',
    service: 'web',
    slot: 0,
    ready: true,
    local: false,
    ports: [{ name: 'http', ip: '10.1.0.1', port: 8080 }],
    ...overrides,
  };
}
