import { NodeStatus_Phase as NodePhase } from '@cloudless/api';
import type { NodeBanRecord, NodeRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';

/** A machine that wants to join, and what the cluster knows of the node id. */
export interface EnrolmentRequest {
  readonly nodeId: string;
  readonly instanceId: string;
  /** SHA-256 of the public key of the request, hexadecimal. */
  readonly publicKeySha256: string;
  /** Record of the node id; undefined: new, or removed. */
  readonly existing: NodeRecord | undefined;
  readonly ban: NodeBanRecord | undefined;
  /** Phase of the node now. */
  readonly phase: NodePhase;
  /** Number of the records of replicas that are assigned to the node, also of lost ones. */
  readonly replicaCount: number;
}

/** What an accepted enrolment does with the record of the node id. */
export type EnrolmentDecision =
  /** The node id is free: a new record. */
  | 'create'
  /** The machine of the record repeats its request: another certificate for the same key. */
  | 'repeat'
  /** The machine of the record comes back with a new key: the record stays, older certificates end. */
  | 'return'
  /** Another machine takes the place of one that is certainly dead: settings stay, the rest is new. */
  | 'replace';

/**
 * Decides whether a machine with a valid join token gets a node id.
 *
 * | node                                             | the same instance id | another instance id |
 * | ------------------------------------------------ | -------------------- | ------------------- |
 * | unknown or removed                               | create               | create              |
 * | alive: connected, or its lease runs              | repeat with the same key, else refused | refused |
 * | away, or not connected since the start           | return               | refused             |
 * | lost, with replicas, loss not confirmed          | return               | refused             |
 * | lost, without replicas, or with a confirmed loss | return               | replace             |
 * | banned                                           | refused              | refused             |
 *
 * @throws reason NODE_BANNED for a banned node id, NODE_EXISTS for a node id that is taken.
 */
export function decideEnrolment(request: EnrolmentRequest): EnrolmentDecision {
  const { nodeId, existing, ban, phase } = request;
  if (ban !== undefined) throw createBannedError(nodeId);
  if (existing === undefined) return 'create';
  const isAlive = phase === NodePhase.READY || phase === NodePhase.DISCONNECTED;
  if (existing.instanceId === request.instanceId) {
    if (existing.identity?.current?.publicKeySha256 === request.publicKeySha256) return 'repeat';
    if (!isAlive) return 'return';
    throw new CloudlessError(
      'NODE_EXISTS',
      `node "${nodeId}" is alive, so its machine cannot join again; stop its agent, and join once the lease of the node has ended`,
    );
  }
  const isLost = phase === NodePhase.LOST || existing.lost;
  if (isLost && !isAlive && (existing.lossConfirmed || request.replicaCount === 0))
    return 'replace';
  throw new CloudlessError('NODE_EXISTS', explainTaken(request, { isAlive, isLost }));
}

/** Creates the error for a banned node. */
export function createBannedError(nodeId: string): CloudlessError {
  return new CloudlessError(
    'NODE_BANNED',
    `node "${nodeId}" is banned; an administrator can remove the ban with "cloudlessctl node unban ${nodeId}", then the machine must join again`,
  );
}

function explainTaken(
  { nodeId, replicaCount }: EnrolmentRequest,
  { isAlive, isLost }: { readonly isAlive: boolean; readonly isLost: boolean },
): string {
  if (isAlive)
    return `node "${nodeId}" is alive on another machine; choose another name for this machine`;
  if (isLost) {
    return `node "${nodeId}" is lost, but its machine may still run ${replicaCount} ${replicaCount === 1 ? 'replica' : 'replicas'}; if that machine is dead, run "cloudlessctl node confirm-lost ${nodeId}" and join again, otherwise choose another name for this machine`;
  }
  return `node "${nodeId}" belongs to another machine, which may come back; choose another name for this machine, or remove the node with "cloudlessctl node remove ${nodeId}" and join again`;
}
