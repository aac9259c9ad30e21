import type { ServiceImpl } from '@connectrpc/connect';
import { NodeNetworkService } from '@cloudless/api';
import type { NetworkRelay } from '../node-network/network-relay.js';
import type { NetworkSync } from '../node-network/network-sync.js';
import {
  describeCertificateCall,
  type RouteCertificateHandler,
} from '../node-network/route-certificates.js';
import type { CallRoutes } from './call-routes.js';

const calls = NodeNetworkService.method;

/** The handlers of NodeNetworkService. */
export interface NodeNetworkHandlers {
  readonly sync: NetworkSync;
  readonly relay: NetworkRelay;
  readonly certificates: RouteCertificateHandler;
}

/** Creates the implementation of NodeNetworkService. */
export function createNodeNetworkRoutes(
  routes: CallRoutes,
  { sync, relay, certificates }: NodeNetworkHandlers,
): ServiceImpl<typeof NodeNetworkService> {
  return {
    syncNetwork: (reports, context) => sync.syncNetwork(reports, context),
    relayNetwork: (requests, context) => relay.relayNetwork(requests, context),
    getRouteCertificate: routes.change(
      calls.getRouteCertificate,
      (request, entry, context) => certificates.getRouteCertificate(request, entry, context),
      describeCertificateCall,
    ),
  };
}
