import type { ClusterView, Transaction } from '@cloudless/cluster-state';
import { NETWORK_SETTINGS_KEY } from '@cloudless/cluster-state';
import {
  DEFAULT_CLUSTER_DOMAIN,
  DEFAULT_SERVICE_CIDR,
  parseAddressRange,
  type AddressRange,
} from '@cloudless/network';

/** The network of the cluster as the store describes it. */
export interface StoredNetwork {
  /** Range of virtual addresses. */
  readonly range: AddressRange;
  /** Domain below which services have names. */
  readonly clusterDomain: string;
}

/** Returns the network of the cluster; the defaults before the leader has stored any settings. */
export function readNetwork(view: ClusterView): StoredNetwork {
  const settings = view.networkSettings()?.value;
  return {
    range: parseAddressRange(settings?.serviceCidr || DEFAULT_SERVICE_CIDR),
    clusterDomain: settings?.clusterDomain || DEFAULT_CLUSTER_DOMAIN,
  };
}

/** Makes the commit of a transaction conflict when the network has changed since `view`. */
export function requireSameNetwork(transaction: Transaction, view: ClusterView): void {
  transaction.require('network', NETWORK_SETTINGS_KEY, view.networkSettings() ?? 'absent');
}
