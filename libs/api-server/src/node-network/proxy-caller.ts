import type { HandlerContext } from '@connectrpc/connect';
import { CloudlessError } from '@cloudless/base';
import type { ClusterView } from '@cloudless/cluster-state';
import type { CallAccess } from '../access/call-access.js';

/**
 * Checks that the client of a call is the network proxy of a node that belongs to the cluster.
 * @throws kind `denied` for another client and for a banned node, `notFound` for a node that is not
 *   enrolled.
 */
export function requireProxyOf(
  nodeId: string,
  { access, view }: { readonly access: CallAccess; readonly view: ClusterView },
  context: HandlerContext,
): void {
  access.requireNode(access.getCaller(context), nodeId);
  if (view.nodeBan(nodeId) !== undefined)
    throw new CloudlessError('NODE_BANNED', `node "${nodeId}" is banned from this cluster`);
  if (view.node(nodeId) === undefined)
    throw new CloudlessError('NODE_NOT_FOUND', `node "${nodeId}" is not enrolled`);
}
