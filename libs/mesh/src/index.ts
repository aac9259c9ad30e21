export { createNetworkProxy } from './proxy/network-proxy.js';
export { DEFAULT_PROXY_LIMITS } from './ports.js';
export type {
  AccessRecord,
  CheckClients,
  CheckTarget,
  CoordinatorConnection,
  EndpointChoice,
  EndpointRequest,
  HealthReport,
  IdentitySource,
  LinkStatus,
  ListedService,
  ListeningSockets,
  LocalClient,
  MeshAddressSource,
  NetworkProxy,
  NetworkProxyOptions,
  NetworkProxyStatus,
  ProxyIdentity,
  ProxyLimits,
  ProxyNode,
  ServedDns,
} from './ports.js';
export { followNetwork, TRAFFIC_INTERVAL_MS } from './feed/follow-network.js';
export type { EndpointResponse } from './traffic/traffic-counts.js';
export type { FollowOptions } from './feed/follow-network.js';
export { ServiceTable } from './service/service-table.js';
export { ZoneFeed } from './dns/zone-feed.js';
export { NetworkModel, toServiceKey } from './model/network-model.js';
export { ADDRESS_CHECK_MS, MachineAddresses } from './entry/machine-addresses.js';
export { listExternalAddresses } from './entry/plan-listeners.js';
export type { ReservableListener } from './entry/plan-listeners.js';
export type { MachineAddressesOptions } from './entry/machine-addresses.js';
export type { NetworkChanges, NetworkView } from './model/network-model.js';
export { listServedRoutes } from './model/served-routes.js';
export type {
  ServedRoute,
  ServedRule,
  ServedSecretVersion,
  ServedTls,
} from './model/served-routes.js';
export { NetworkDns } from './dns/network-dns.js';
export type { DnsAddress, NetworkDnsOptions } from './dns/network-dns.js';
export { DnsServer } from './dns/dns-server.js';
export type { DnsCounts, DnsServerOptions } from './dns/dns-server.js';
