import type { HandlerContext } from '@connectrpc/connect';
import type { NodeRecord } from '@cloudless/api/store';
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
  requireMember(nodeId, view);
}

/**
 * Returns the record of a node that belongs to the cluster.
 * @throws kind `denied` for a banned node, `notFound` for a node that is not enrolled.
 */
export function requireMember(nodeId: string, view: ClusterView): NodeRecord {
  if (view.nodeBan(nodeId) !== undefined)
    throw new CloudlessError('NODE_BANNED', `node "${nodeId}" is banned from this cluster`);
  const node = view.node(nodeId)?.value;
  if (node !== undefined) return node;
  throw new CloudlessError('NODE_NOT_FOUND', `node "${nodeId}" is not enrolled`);
}
