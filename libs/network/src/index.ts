/** Domain below which services have names, unless the cluster sets another. */
export const DEFAULT_CLUSTER_DOMAIN = 'cloudless.internal';
/** Range of virtual addresses, unless the cluster sets another. */
export const DEFAULT_SERVICE_CIDR = '10.96.0.0/16';
/** Range of virtual addresses in a cluster whose proxies cannot add routes: loopback addresses. */
export const UNPRIVILEGED_SERVICE_CIDR = '127.64.0.0/16';

export {
  assignableCount,
  dnsAddressOf,
  isAssignable,
  isInRange,
  parseAddressRange,
} from './addresses/address-range.js';
export type { AddressRange } from './addresses/address-range.js';
export {
  explainRefusedAddress,
  findServerAddress,
  toCanonicalAddress,
} from './addresses/external-address.js';
export {
  ADDRESS_HOLD_MS,
  FIRST_NODE_PORT,
  LAST_NODE_PORT,
  allocateAddress,
  allocateNodePort,
  isAddressFree,
} from './addresses/allocate-address.js';
export type {
  AddressAllocation,
  AddressRequest,
  AssignedAddress,
  NodePortAllocation,
} from './addresses/allocate-address.js';

export { ServiceBalancer } from './balancing/service-balancer.js';
export type { OpenConnections, ServiceBalancerOptions } from './balancing/service-balancer.js';
export { DEFAULT_BALANCER_CONFIG, DEFAULT_ENDPOINT_WEIGHT } from './balancing/balancer-types.js';
export type {
  BalancedEndpoint,
  BalancerConfig,
  BalancingAlgorithm,
  Choice,
  ChoiceRefusal,
  ChoiceRequest,
  EndpointState,
  Nearness,
  OutlierEjectionConfig,
  Place,
} from './balancing/balancer-types.js';
export { nearnessOf } from './balancing/candidates.js';

export { UNCHECKED_HEALTH, isReportable, nextHealth } from './health/endpoint-health.js';
export type { CheckResult, CheckedHealth, HealthThresholds } from './health/endpoint-health.js';

export { DnsZone } from './names/dns-zone.js';
export type { DnsZoneSettings } from './names/dns-zone.js';
export { RESOLVER_NDOTS, searchDomains, serviceDnsName } from './names/service-names.js';
export { NEGATIVE_TTL_SECONDS, RECORD_TTL_SECONDS } from './names/zone-records.js';
export type {
  QueryType,
  ZoneAnswer,
  ZoneEndpoint,
  ZoneRecord,
  ZoneService,
} from './names/zone-records.js';
export {
  DURATION_BUCKETS,
  estimateQuantile,
  toDurationBucket,
} from './traffic/duration-buckets.js';
