import { clone, create } from '@bufbuild/protobuf';
import { durationMs, timestampFromMs, timestampMs, type Timestamp } from '@bufbuild/protobuf/wkt';
import { DrainStatus_Phase as DrainPhase, type DrainNodeRequest } from '@cloudless/api';
import {
  DrainRecordSchema,
  NodeRecordSchema,
  type DrainRecord,
  type NodeRecord,
} from '@cloudless/api/store';
import type { EventInit } from '@cloudless/cluster-state';

/** A changed node record and the event about the change. */
export type NodeChange = { readonly after: NodeRecord } & Pick<EventInit, 'reason' | 'message'>;

/** The facts about the moment of a drain request. */
export interface DrainFacts {
  /** Wall-clock milliseconds. */
  readonly nowMs: number;
  /** Number of replicas that hold resources on the node. */
  readonly replicaCount: number;
}

/**
 * Starts the drain of a node. On a node that is being drained already, deadline and `force` of the
 * request replace the deadline and `force` of the drain; a request without both changes nothing. A
 * completed drain does not change.
 * @returns The cordoned and draining node record; undefined when nothing changes.
 */
export function startDrain(
  before: NodeRecord,
  request: DrainNodeRequest,
  facts: DrainFacts,
): NodeChange | undefined {
  if (before.draining) return updateDrain(before, request, facts);
  const drain = create(DrainRecordSchema, {
    ...resolveTerms(request, facts),
    startedAt: timestampFromMs(facts.nowMs),
    total: facts.replicaCount,
    phase: DrainPhase.DRAINING,
  });
  const message = `node ${before.id} is being drained: ${facts.replicaCount} ${facts.replicaCount === 1 ? 'replica' : 'replicas'} to move${describeTerms(drain)}`;
  return { after: withDrain(before, drain), reason: 'NodeDraining', message };
}

/**
 * Ends the cordon and the drain of a node.
 * @returns The changed node record; undefined when the node is neither cordoned nor draining.
 */
export function uncordonNode(before: NodeRecord): NodeChange | undefined {
  if (!before.cordoned && !before.draining) return undefined;
  const after = Object.assign(clone(NodeRecordSchema, before), {
    cordoned: false,
    draining: false,
  });
  delete after.drain;
  return {
    after,
    reason: 'NodeUncordoned',
    message: `node ${after.id} accepts new replicas again`,
  };
}

function updateDrain(
  before: NodeRecord,
  request: DrainNodeRequest,
  facts: DrainFacts,
): NodeChange | undefined {
  const { drain } = before;
  if (drain?.phase === DrainPhase.DRAINED || (request.deadline === undefined && !request.force))
    return undefined;
  const terms = resolveTerms(request, facts);
  if (terms.deadline === undefined && drain?.deadline === undefined && drain?.force === terms.force)
    return undefined;
  const fallback = {
    startedAt: timestampFromMs(facts.nowMs),
    total: facts.replicaCount,
    phase: DrainPhase.DRAINING,
  };
  const next =
    drain === undefined ? create(DrainRecordSchema, fallback) : clone(DrainRecordSchema, drain);
  delete next.deadline;
  Object.assign(next, terms);
  // A start time in the future comes from a coordinator whose clock was ahead. It would shorten the
  // period of the drain, which lasts from the start time to the deadline.
  if (next.startedAt !== undefined && timestampMs(next.startedAt) > facts.nowMs)
    next.startedAt = timestampFromMs(facts.nowMs);
  const message = `the drain of node ${before.id} was changed${describeTerms(next)}`;
  return { after: withDrain(before, next), reason: 'NodeDrainChanged', message };
}

/** Returns `force` and the absolute deadline of a request. */
function resolveTerms(
  { deadline, force }: DrainNodeRequest,
  { nowMs }: DrainFacts,
): { deadline?: Timestamp; force: boolean } {
  return {
    force,
    ...(deadline === undefined ? {} : { deadline: timestampFromMs(nowMs + durationMs(deadline)) }),
  };
}

function withDrain(before: NodeRecord, drain: DrainRecord): NodeRecord {
  return Object.assign(clone(NodeRecordSchema, before), { cordoned: true, draining: true, drain });
}

function describeTerms({ deadline, force }: DrainRecord): string {
  if (deadline === undefined) return force ? ', at once and regardless of min_available' : '';
  const by = `, by ${new Date(timestampMs(deadline)).toISOString()}`;
  return force
    ? `${by}; the remaining replicas are then stopped regardless of min_available`
    : `${by}, or the drain fails`;
}
