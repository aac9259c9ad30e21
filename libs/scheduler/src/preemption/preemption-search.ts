import type { WorkloadId } from '@cloudless/base';
import type { Slot } from '../columns/value-column.js';
import { customAmount } from '../input/custom-resources.js';
import { hostPortKey } from '../input/host-ports.js';
import { matchesAll } from '../input/labels.js';
import type { FullRequest } from '../input/request.js';
import type { HeldReservation } from '../input/reservation.js';
import { CheapestNodes } from './cheapest-nodes.js';
import { amountOf, toAmounts, toDemand, type Demand } from './demand.js';
import { FITS, FITS_AFTER_LEAVING, toNeed, toVictimBound } from './need.js';
import { NodeOrder, type OrderedNodes } from './node-order.js';
import { NodeSums } from './node-sums.js';
import type { PreemptionSource } from './preemption-source.js';
import {
  compareVictimPriorities,
  type Evictability,
  type Preemption,
  type PreemptionDecision,
  type PreemptOptions,
} from './preemption.js';
import { NeedColumns, type PreparedRequest } from './request-needs.js';
import { TieOrder } from './tie-order.js';
import { findVictimSet, type Candidate } from './victim-set.js';

/**
 * Decides which reservations of lower priority have to leave so that one replica of a request fits
 * on a node. Bounds from prefix sums order the nodes; the exact victim set is computed on the most
 * promising nodes only, until no other node can have a better one. The result is the best over all
 * nodes, and does not depend on the order in which nodes and reservations were added.
 */
export class PreemptionSearch {
  private readonly sums: NodeSums;
  private readonly cheapest: CheapestNodes;
  private readonly columns: NeedColumns;
  /** Number of nodes whose exact victim set was computed, over all decisions. */
  examinedNodes = 0;

  constructor(private readonly source: PreemptionSource) {
    this.sums = new NodeSums(source);
    this.cheapest = new CheapestNodes(this.sums);
    this.columns = new NeedColumns(this.sums);
  }

  /** Notes that a node, or what is reserved on the node, has changed. */
  touch(slot: Slot): void {
    this.sums.touch(slot);
  }

  /** Decides about one replica of a request. */
  decide(request: FullRequest, options: PreemptOptions = {}): PreemptionDecision {
    const { sums, source } = this;
    sums.refresh();
    this.cheapest.start();
    const demand = toDemand(request);
    const eligible = source.findEligible(request);
    const prepared: PreparedRequest = { request, demand, eligible };
    const only = options.nodeIds?.flatMap((nodeId) => source.slotOf(nodeId) ?? []);
    let known: NodeVictims | undefined;
    if (only === undefined && demand.custom.length === 0) {
      const early = this.decideOnCheapest(prepared, options);
      if ('kind' in early) return early;
      known = early.best;
    }
    const ties = new TieOrder(source, request, options);
    const round: Round = { request, demand, needs: this.needsOf(prepared, only), only, ties };
    if (this.fitsNow(round)) return { kind: 'fits' };
    const best = this.findBest(round, options, known);
    if (best !== undefined) return this.toDecision(best);
    if (options.permitsOf === undefined) return { kind: 'impossible', withoutPermits: undefined };
    const { permitsOf: _, ...withoutPermits } = options;
    const unlimitedBest = this.findBest(round, withoutPermits);
    return {
      kind: 'impossible',
      withoutPermits: unlimitedBest && this.toPreemption(unlimitedBest),
    };
  }

  /** @param only - The only slots to consider; undefined for all. */
  private needsOf(prepared: PreparedRequest, only: readonly Slot[] | undefined): Float64Array {
    if (only === undefined) return this.columns.get(prepared);
    const { needs } = this.cheapest;
    for (const slot of only) needs[slot] = this.columns.needOf(slot, prepared);
    return needs;
  }

  /**
   * Decides by the nodes on which the lowest priorities are enough, before the needs of all others
   * are computed.
   * @returns The best of these nodes when another one may be better, because permits or ports are
   *   missing.
   */
  private decideOnCheapest(
    { request, demand, eligible }: PreparedRequest,
    options: PreemptOptions,
  ): PreemptionDecision | Undecided {
    const { sums, cheapest } = this;
    const { priority } = request;
    const fitting = sums.amounts.listFitting(eligible, demand, request.hostPorts.length === 0);
    if (fitting === 'now') return { kind: 'fits' };
    const ties = new TieOrder(this.source, request, options);
    const problem = { demand, eligible, priority };
    const round = { request, demand, needs: cheapest.needs, ties };
    if (fitting.length > 0) {
      for (const slot of fitting) cheapest.needOf(slot, problem);
      return this.decideOn({ ...round, only: fitting }, FITS_AFTER_LEAVING, options);
    }
    const first = cheapest.findFirst(problem, ties);
    if (first === undefined) return { kind: 'impossible', withoutPermits: undefined };
    const need = cheapest.needOf(first, problem);
    const victims = this.findVictimsOn(first, request, demand, options);
    if (victims !== undefined && isAsGoodAs(need, victims))
      return this.toDecision({ slot: first, priorities: toPriorities(victims), victims });
    return this.decideOn({ ...round, only: cheapest.listLike(first, problem) }, need, options);
  }

  /**
   * Decides by the nodes of a round.
   * @param need - Need of the best node of the round. On every other node, the highest priority
   *   that has to leave is higher than the one of this need.
   * @returns The best of the nodes when another one may be better.
   */
  private decideOn(
    round: Round,
    need: number,
    options: PreemptOptions,
  ): PreemptionDecision | Undecided {
    if (this.fitsNow(round)) return { kind: 'fits' };
    const best = this.findBest(round, options);
    const { priority } = toVictimBound(need);
    return best !== undefined && (best.priorities[0] ?? -1) <= priority
      ? this.toDecision(best)
      : { best };
  }

  private fitsNow({ request, needs, only }: Round): boolean {
    if (only === undefined && !needs.includes(FITS)) return false;
    const wanted = new Set(request.hostPorts.map(hostPortKey));
    const hasFreePorts = (slot: Slot): boolean =>
      wanted.size === 0 ||
      !this.sums
        .reservationsOn(slot)
        .some(({ hostPorts }) => hostPorts.some((port) => wanted.has(hostPortKey(port))));
    const fits = (slot: Slot): boolean => needs[slot] === FITS && hasFreePorts(slot);
    if (only !== undefined) return only.some(fits);
    for (let slot = 0; slot < needs.length; slot += 1) if (fits(slot)) return true;
    return false;
  }

  /** @param known - Victims on a node of the round, which are returned when none are better. */
  private findBest(
    round: Round,
    options: PreemptOptions,
    known?: NodeVictims,
  ): NodeVictims | undefined {
    const { ties } = round;
    const order = new NodeOrder(round, known === undefined ? Infinity : toNeedOf(known));
    let best = known;
    for (let slot = order.next(); slot !== undefined; slot = order.next()) {
      if (best !== undefined && isPast(slot, best, round)) break;
      if (!this.mayBeat(slot, best, round, options)) continue;
      const victims = this.findVictimsOn(slot, round.request, round.demand, options);
      if (victims === undefined) continue;
      const priorities = toPriorities(victims);
      if (best !== undefined) {
        const comparison = compareVictimPriorities(priorities, best.priorities);
        if (comparison > 0) continue;
        if (comparison === 0 && ties.of(slot) > ties.of(best.slot)) continue;
      }
      best = { slot, priorities, victims };
    }
    return best;
  }

  /**
   * Returns false when a node has no victim set, or none can be better than `best`. Takes a
   * fraction of the time of the exact set.
   */
  private mayBeat(
    slot: Slot,
    best: NodeVictims | undefined,
    { request, demand, ties }: Round,
    options: PreemptOptions,
  ): boolean {
    const { sums } = this;
    let highest = request.priority;
    if (best !== undefined) {
      const least = sums.listLeastPriorities(slot, demand, request.priority);
      const comparison = compareVictimPriorities(least, best.priorities);
      if (comparison > 0 || (comparison === 0 && ties.of(slot) >= ties.of(best.slot))) return false;
      highest = best.priorities[0] ?? -1;
    }
    return sums.isEnoughUpTo(
      slot,
      demand,
      highest,
      (held) => findEvictability(held, request, options) !== 'never',
    );
  }

  private toDecision(best: NodeVictims): PreemptionDecision {
    return { kind: 'preempt', ...this.toPreemption(best) };
  }

  private toPreemption({ slot, victims }: NodeVictims): Preemption {
    return {
      nodeId: this.source.nodeIdOf(slot),
      victims: victims.map(({ held: { replicaId, workloadId, priority } }) => ({
        replicaId,
        workloadId,
        priority,
      })),
    };
  }

  /** Returns the best victims on one node; empty when its leaving replicas make enough room. */
  private findVictimsOn(
    slot: Slot,
    request: FullRequest,
    demand: Demand,
    options: PreemptOptions,
  ): readonly Candidate[] | undefined {
    const { source, sums } = this;
    const node = source.node(slot);
    if (node === undefined) return undefined;
    this.examinedNodes += 1;
    const candidates: Candidate[] = [];
    const forced: Candidate[] = [];
    const wanted = new Set(request.hostPorts.map(hostPortKey));
    const { custom } = demand;
    const free = [...toAmounts(node.allocatable), node.maxReplicas];
    for (const name of custom) free.push(customAmount(node.allocatable.custom, name));
    for (const held of sums.reservationsOn(slot)) {
      if (held.leaving) continue;
      for (const dimension of demand.dimensions)
        free[dimension] = (free[dimension] ?? 0) - amountOf(held.resources, dimension, custom);
      const candidate = toCandidate(held, request, options);
      if (candidate !== undefined) candidates.push(candidate);
      if (wanted.size === 0 || !held.hostPorts.some((port) => wanted.has(hostPortKey(port))))
        continue;
      if (candidate === undefined) return undefined;
      forced.push(candidate);
    }
    const short = demand.dimensions.filter(
      (dimension) => (demand.amounts[dimension] ?? 0) > (free[dimension] ?? 0),
    );
    const victims = findVictimSet({
      candidates,
      forced,
      dimensions: short,
      custom,
      shortages: short.map(
        (dimension) => (demand.amounts[dimension] ?? 0) - (free[dimension] ?? 0),
      ),
      permitsOf: options.permitsOf ?? unlimited,
    });
    if (victims === undefined || !needsNearReplica(request, victims)) return victims;
    // The victims may be the replicas that the request has to be near.
    const ids = new Set(victims.map(({ held }) => held.replicaId));
    return source.isEligibleWithout(request, slot, ids) ? victims : undefined;
  }
}

/** The input of one decision. */
interface Round extends OrderedNodes {
  readonly request: FullRequest;
  readonly demand: Demand;
}

/** Not decided yet: the best of some nodes, if they have any victims. */
interface Undecided {
  readonly best: NodeVictims | undefined;
}

interface NodeVictims {
  readonly slot: Slot;
  readonly priorities: readonly number[];
  readonly victims: readonly Candidate[];
}

const unlimited = (_workloadId: WorkloadId): number => Infinity;

/** Returns true when the victims reach the bound of a need: no node with this need is better. */
function isAsGoodAs(need: number, victims: readonly Candidate[]): boolean {
  const bound = toVictimBound(need);
  return (
    victims.length === bound.victims &&
    victims.every(({ held }) => held.priority === bound.priority)
  );
}

function toPriorities(victims: readonly Candidate[]): readonly number[] {
  return victims.map(({ held }) => held.priority);
}

/** Returns true when neither a node nor those after it in the order can have better victims. */
function isPast(slot: Slot, best: NodeVictims, { needs, ties }: Round): boolean {
  const need = needs[slot] ?? 0;
  const most = toNeedOf(best);
  if (need !== most) return need > most;
  const isBound = best.priorities.length === toVictimBound(most).victims;
  return isBound && ties.of(slot) > ties.of(best.slot);
}

/** Returns a need such that no node with a greater need has better victims. */
function toNeedOf({ priorities }: NodeVictims): number {
  const [priority] = priorities;
  if (priority === undefined) return FITS_AFTER_LEAVING;
  const after = priorities.findIndex((other) => other < priority);
  return toNeed({ priority, victims: after < 0 ? priorities.length : after });
}

function toCandidate(
  held: HeldReservation,
  request: FullRequest,
  options: PreemptOptions,
): Candidate | undefined {
  const evictability = findEvictability(held, request, options);
  return evictability === 'never' ? undefined : { held, evictability };
}

function findEvictability(
  held: HeldReservation,
  request: FullRequest,
  { evictabilityOf, permitsOf = unlimited }: PreemptOptions,
): Evictability {
  // A rollout replaces the replicas of the same workload that have another priority.
  if (held.priority >= request.priority || held.workloadId === request.workloadId) return 'never';
  const evictability = evictabilityOf === undefined ? 'free' : evictabilityOf(held);
  // Without a single permit, the search on the node does not have to try.
  return evictability === 'counted' && permitsOf(held.workloadId) <= 0 ? 'never' : evictability;
}

/** Returns true when the request has to be near replicas of which a victim may be one. */
function needsNearReplica({ workloadAffinity }: FullRequest, victims: readonly Candidate[]) {
  return workloadAffinity.some(
    ({ mode, selector }) =>
      mode === 'required' && victims.some(({ held }) => matchesAll(selector, held.labels)),
  );
}
