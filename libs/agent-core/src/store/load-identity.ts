import { CloudlessError, randomHex } from '@cloudless/base';
import type { AgentOptions } from '../agent-options.js';
import type { AgentIdentity, StoredAgent } from './agent-store.js';

/**
 * Returns the stored identity, or stores a new one. Until a cluster has accepted the node, as after
 * a refused join, the stored name binds nothing.
 * @throws kind `precondition` when the store belongs to another node.
 */
export async function loadIdentity(
  options: AgentOptions,
  { identity: stored, replicas }: StoredAgent,
): Promise<AgentIdentity> {
  const { nodeId, store, random, resetCommand } = options;
  if (stored?.nodeId === nodeId) return stored;
  if (stored !== undefined && (hasJoined(stored) || replicas.length > 0)) {
    throw new CloudlessError(
      'precondition',
      `the data directory belongs to node ${stored.nodeId}, not to ${nodeId}; start the agent with --name ${stored.nodeId}, choose another data directory, or run: ${resetCommand}`,
    );
  }
  const identity: AgentIdentity = { nodeId, instanceId: randomHex(random, 16), highestEpoch: 0n };
  await store.saveIdentity(identity);
  return identity;
}

function hasJoined({ clusterId, highestEpoch }: AgentIdentity): boolean {
  return clusterId !== undefined || highestEpoch > 0n;
}
