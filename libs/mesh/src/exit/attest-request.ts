import type { OpenRequest } from '../link/open-request.js';
import { toSpiffeId, type ProxyContext } from '../proxy/proxy-context.js';

/**
 * Returns the request of a peer with an identity that the peer may speak for: a workload with a
 * replica on the node of the peer, otherwise the node. The address of the client stays as the peer
 * says, because only the node that accepted the client knows the address.
 */
export function attestRequest(
  context: Pick<ProxyContext, 'trustDomain' | 'places'>,
  request: OpenRequest,
  peerNodeId: string,
): OpenRequest {
  const ofNode = toSpiffeId(context, 'node', peerNodeId);
  if (request.identity === ofNode) return request;
  const prefix = toSpiffeId(context, 'workload', '');
  const mayClaim =
    request.identity.startsWith(prefix) &&
    context.places.runsOn(peerNodeId, request.identity.slice(prefix.length));
  return mayClaim ? request : { ...request, identity: ofNode };
}
