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

/** A changed node, with the event that tells of it. */
export type NodeChange = { readonly after: NodeRecord } & Pick<EventInit, 'reason' | 'message'>;

/** What a drain is decided on. */
export interface DrainFacts {
  readonly nowMs: number;
  /** Replicas that the node holds. */
  readonly held: number;
}

/**
 * Begins the drain of a node. For one that is being drained already a deadline or force takes the
 * place of both, and a request with neither changes nothing, as nothing does for one that is
 * drained.
 */
export function drainedNode(
  before: NodeRecord,
  request: DrainNodeRequest,
  facts: DrainFacts,
): NodeChange | undefined {
  if (before.draining) return changedDrain(before, request, facts);
  const drain = create(DrainRecordSchema, {
    ...termsOf(request, facts),
    startedAt: timestampFromMs(facts.nowMs),
    total: facts.held,
    phase: DrainPhase.DRAINING,
  });
  const message = `node ${before.id} is being drained: ${facts.held} ${facts.held === 1 ? 'replica' : 'replicas'} to move${describeTerms(drain)}`;
  return { after: withDrain(before, drain), reason: 'NodeDraining', message };
}

/** The node in use again: neither cordoned nor drained. */
export function uncordonedNode(before: NodeRecord): NodeChange | undefined {
  if (!before.cordoned && !before.draining) return undefined;
  const after = Object.assign(clone(NodeRecordSchema, before), {
    cordoned: false,
    draining: false,
  });
  delete after.drain;
  return { after, reason: 'NodeUncordoned', message: `node ${after.id} is usable again` };
}

function changedDrain(
  before: NodeRecord,
  request: DrainNodeRequest,
  facts: DrainFacts,
): NodeChange | undefined {
  const { drain } = before;
  if (drain?.phase === DrainPhase.DRAINED || (request.deadline === undefined && !request.force))
    return undefined;
  const terms = termsOf(request, facts);
  if (terms.deadline === undefined && drain?.deadline === undefined && drain?.force === terms.force)
    return undefined;
  const fallback = {
    startedAt: timestampFromMs(facts.nowMs),
    total: facts.held,
    phase: DrainPhase.DRAINING,
  };
  const next =
    drain === undefined ? create(DrainRecordSchema, fallback) : clone(DrainRecordSchema, drain);
  delete next.deadline;
  Object.assign(next, terms);
  // Begun by a coordinator whose clock was ahead of ours: how long it may take is counted from no
  // later than now.
  if (next.startedAt !== undefined && timestampMs(next.startedAt) > facts.nowMs)
    next.startedAt = timestampFromMs(facts.nowMs);
  const message = `the drain of node ${before.id} goes on with other terms${describeTerms(next)}`;
  return { after: withDrain(before, next), reason: 'NodeDrainChanged', message };
}

function termsOf(
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
  if (deadline === undefined) return force ? ', at once and whatever must stay available' : '';
  const by = `, by ${new Date(timestampMs(deadline)).toISOString()}`;
  return force
    ? `${by}; what is left then is stopped whatever must stay available`
    : `${by}, or it has failed`;
}
