import type { ServiceImpl } from '@connectrpc/connect';
import type { NodeNetworkService } from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import type { NetworkRelay } from '../node-network/network-relay.js';
import type { NetworkSync } from '../node-network/network-sync.js';

/** Creates the implementation of NodeNetworkService. */
export function createNodeNetworkRoutes({
  sync,
  relay,
}: {
  readonly sync: NetworkSync;
  readonly relay: NetworkRelay;
}): ServiceImpl<typeof NodeNetworkService> {
  return {
    syncNetwork: (reports, context) => sync.syncNetwork(reports, context),
    relayNetwork: (requests, context) => relay.relayNetwork(requests, context),
    getRouteCertificate: () => {
      throw new CloudlessError('unimplemented', 'certificates from secrets are not supported yet');
    },
  };
}
