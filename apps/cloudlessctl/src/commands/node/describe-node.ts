import { NodeSchema } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import { formatNodeDescription } from '../../views/node-description.js';
import { listRecentEvents } from '../event/list-recent-events.js';
import { fetchReplicas } from '../replica/fetch-replicas.js';
import { findNode } from './find-node.js';

/** Shows the properties, the status, the replicas and the newest events of one node. */
export async function describeNode({ session }: Invocation, nodeId: string): Promise<void> {
  const node = await findNode(session, nodeId);
  if (session.isStructured) return session.printValue(toMessageJson(NodeSchema, node));
  const workloads = await fetchReplicas(session, { nodeId });
  const events = await listRecentEvents(session, { nodeId });
  await session.print(formatNodeDescription(node, workloads, events, session.nowMs, session.style));
}
