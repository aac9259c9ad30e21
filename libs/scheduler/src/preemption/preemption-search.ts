import type { NodeId, WorkloadId } from '@cloudless/base';
import { customAmount } from '../input/custom-resources.js';
import { hostPortKey } from '../input/host-ports.js';
import { matchesAll } from '../input/labels.js';
import type { FullRequest } from '../input/request.js';
import type { HeldReservation } from '../input/reservation.js';
import { compareNumbers } from '../order.js';
import { amountOf, toAmounts, type Demand } from './demand.js';
import { EligibilityMasks } from './eligibility-masks.js';
import { FITS, FITS_AFTER_LEAVING, NEVER_FITS, NodeSums, toVictimBound } from './node-sums.js';
import type { PreemptionSource } from './preemption-source.js';
import { NeedColumns, type PreparedRequest } from './request-needs.js';
import {
  compareVictimPriorities,
  type Preemption,
  type PreemptionDecision,
  type PreemptOptions,
} from './preemption.js';
import { findVictimSet, type Candidate } from './victim-set.js';

/**
 * Decides which reservations of lower priority have to leave so that one replica of a request fits
 * on a node. Bounds from prefix sums order the nodes; the exact victim set is computed on the most
 * promising nodes only, until no other node can have a better one. The result is the best over all
 * nodes, and does not depend on the order in which nodes and reservations were added.
 */
export class PreemptionSearch {
  private readonly sums: NodeSums;
  private readonly masks: EligibilityMasks;
  private readonly columns: NeedColumns;
  /** Needs of the nodes of one decision; the entries of all others are of earlier decisions. */
  private cheapestNeeds = new Float64Array(0);
  /** Number of nodes whose exact victim set was computed, over all decisions. */
  examinedNodes = 0;

  constructor(private readonly source: PreemptionSource) {
    this.sums = new NodeSums(source);
    this.masks = new EligibilityMasks(source, this.sums);
    this.columns = new NeedColumns(this.sums, this.masks);
  }

  /** Notes a change of the reservations of a node. */
  touchReservations(nodeId: NodeId): void {
    this.sums.touch(nodeId);
  }

  /** Notes that a node was added, changed or removed. */
  touchNode(nodeId: NodeId): void {
    this.sums.touch(nodeId);
    this.masks.touch(nodeId);
  }

  /** Decides about one replica of a request. */
  decide(request: FullRequest, options: PreemptOptions = {}): PreemptionDecision {
    const { sums } = this;
    sums.refresh();
    const only = options.nodeIds?.flatMap((nodeId) => sums.index(nodeId) ?? []);
    const prepared = this.columns.prepare(request, only === undefined);
    if (prepared === 'fits') return { kind: 'fits' };
    const ties = this.rankTies(request, options);
    if (only === undefined && prepared.demand.custom.length === 0) {
      const early = this.decideOnCheapest(prepared, ties, options);
      if (early !== undefined) return early;
    }
    const { demand } = prepared;
    const round: Round = { request, demand, needs: this.columns.get(prepared), only, ties };
    if (this.fitsNow(round)) return { kind: 'fits' };
    const best = this.findBest(round, options);
    if (best !== undefined) return this.toDecision(best);
    if (options.permitsOf === undefined) return { kind: 'impossible', withoutPermits: undefined };
    const { permitsOf: _, ...withoutPermits } = options;
    const unlimitedBest = this.findBest(round, withoutPermits);
    return {
      kind: 'impossible',
      withoutPermits: unlimitedBest && this.toPreemption(unlimitedBest),
    };
  }

  /**
   * Decides by the nodes on which the lowest priorities are enough, before the needs of all others
   * are computed.
   * @returns Undefined when another node may be better, because permits or ports are missing there.
   */
  private decideOnCheapest(
    { request, demand, mask }: PreparedRequest,
    ties: Round['ties'],
    options: PreemptOptions,
  ): PreemptionDecision | undefined {
    const { sums } = this;
    const cheapest = sums.listCheapest(mask.passes, demand, request.priority);
    if (cheapest === undefined) return { kind: 'impossible', withoutPermits: undefined };
    if (this.cheapestNeeds.length < sums.size) this.cheapestNeeds = new Float64Array(sums.size * 2);
    const needs = this.cheapestNeeds;
    for (const index of cheapest.indexes) needs[index] = sums.need(index, demand, request.priority);
    const round: Round = { request, demand, needs, only: cheapest.indexes, ties };
    if (this.fitsNow(round)) return { kind: 'fits' };
    const best = this.findBest(round, options);
    return best !== undefined && (best.priorities[0] ?? -1) < cheapest.nextPriority
      ? this.toDecision(best)
      : undefined;
  }

  private fitsNow({ request, needs, only }: Round): boolean {
    if (only === undefined && !needs.includes(FITS)) return false;
    const wanted = new Set(request.hostPorts.map(hostPortKey));
    const hasFreePorts = (index: number): boolean =>
      wanted.size === 0 ||
      !this.sums
        .reservationsOn(index)
        .some(({ hostPorts }) => hostPorts.some((port) => wanted.has(hostPortKey(port))));
    const fits = (index: number): boolean => needs[index] === FITS && hasFreePorts(index);
    if (only !== undefined) return only.some(fits);
    for (let index = 0; index < needs.length; index += 1) if (fits(index)) return true;
    return false;
  }

  private findBest(round: Round, options: PreemptOptions): NodeVictims | undefined {
    const { needs, ties } = round;
    const order = new NodeOrder(round);
    let best: NodeVictims | undefined;
    for (let index = order.next(); index !== undefined; index = order.next()) {
      if (best !== undefined && !mayBeat(needs[index] ?? 0, best, needs[best.index] ?? 0)) break;
      const victims = this.findVictimsOn(index, round, options);
      if (victims === undefined) continue;
      const priorities = victims.map(({ held }) => held.priority);
      if (best !== undefined) {
        const comparison = compareVictimPriorities(priorities, best.priorities);
        if (comparison > 0) continue;
        if (comparison === 0 && (ties[index] ?? 0) > (ties[best.index] ?? 0)) continue;
      }
      best = { index, priorities, victims };
    }
    return best;
  }

  private toDecision(best: NodeVictims): PreemptionDecision {
    return { kind: 'preempt', ...this.toPreemption(best) };
  }

  private toPreemption({ index, victims }: NodeVictims): Preemption {
    const nodeId = this.sums.nodeAt(index);
    if (nodeId === undefined) throw new Error('a node with victims has an id');
    return {
      nodeId,
      victims: victims.map(({ held: { replicaId, workloadId, priority } }) => ({
        replicaId,
        workloadId,
        priority,
      })),
    };
  }

  /**
   * Returns a number for each node that orders nodes with equal victims: the preferred node, then
   * the fewest replicas of the workload in the zone, then on the node, then the node id.
   */
  private rankTies(
    { workloadId }: FullRequest,
    { preferredNodeId }: PreemptOptions,
  ): Float64Array | Int32Array {
    const { sums, source } = this;
    const ranks = sums.rankById();
    const preferred = preferredNodeId === undefined ? undefined : sums.index(preferredNodeId);
    const staying = source.countStaying(workloadId);
    if (staying.size === 0 && preferred === undefined) return ranks;
    const inZone = new Array<number>(sums.zoneCount).fill(0);
    const onNode = new Map<number, number>();
    for (const [nodeId, count] of staying) {
      const index = sums.index(nodeId);
      if (index === undefined) continue;
      const zone = sums.zoneOf(index);
      inZone[zone] = (inZone[zone] ?? 0) + count;
      onNode.set(index, count);
    }
    const ties = new Float64Array(ranks.length);
    for (let index = 0; index < ties.length; index += 1)
      ties[index] = (inZone[sums.zoneOf(index)] ?? 0) * ZONE_STEP + (ranks[index] ?? 0);
    for (const [index, count] of onNode) ties[index] = (ties[index] ?? 0) + count * NODE_STEP;
    if (preferred !== undefined) ties[preferred] = -1;
    return ties;
  }

  /** Returns the best victims on one node; empty when its leaving replicas make enough room. */
  private findVictimsOn(
    index: number,
    { request, demand }: Round,
    options: PreemptOptions,
  ): readonly Candidate[] | undefined {
    const { source, sums } = this;
    const nodeId = sums.nodeAt(index);
    const node = nodeId === undefined ? undefined : source.node(nodeId);
    if (nodeId === undefined || node === undefined) return undefined;
    this.examinedNodes += 1;
    const candidates: Candidate[] = [];
    const forced: Candidate[] = [];
    const wanted = new Set(request.hostPorts.map(hostPortKey));
    const { custom } = demand;
    const free = [...toAmounts(node.allocatable), node.maxReplicas];
    for (const name of custom) free.push(customAmount(node.allocatable.custom, name));
    for (const held of sums.reservationsOn(index)) {
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
    return source.isEligibleWithout(request, nodeId, ids) ? victims : undefined;
  }
}

/** More than the number of nodes. */
const NODE_STEP = 2 ** 20;
/** Room for 4 096 replicas of the workload on a node. */
const ZONE_STEP = NODE_STEP * 2 ** 12;

/** The input of one decision. */
interface Round {
  readonly request: FullRequest;
  readonly demand: Demand;
  /** Result of {@link NodeSums.need} by index. */
  readonly needs: Float64Array;
  /** Order of nodes with equal victims, by index; all different. */
  readonly ties: Float64Array | Int32Array;
  /** The only indexes to consider; undefined for all. */
  readonly only: readonly number[] | undefined;
}

interface NodeVictims {
  readonly index: number;
  readonly priorities: readonly number[];
  readonly victims: readonly Candidate[];
}

const unlimited = (_workloadId: WorkloadId): number => Infinity;

/** Number of nodes that are selected one by one before all remaining nodes are sorted. */
const SELECTED_BEFORE_SORT = 8;

/** Returns the nodes that may fit, by their needs, then ties. */
class NodeOrder {
  private lastNeed = -Infinity;
  private lastTie = -Infinity;
  private selected = 0;
  private sorted: number[] | undefined;

  constructor(private readonly round: Round) {}

  next(): number | undefined {
    this.selected += 1;
    if (this.selected <= SELECTED_BEFORE_SORT) return this.select();
    this.sorted ??= this.sort();
    return this.sorted.pop();
  }

  /** Returns the first node after the last one. */
  private select(): number | undefined {
    const { needs, ties, only } = this.round;
    const { lastNeed, lastTie } = this;
    let first: number | undefined;
    let firstNeed = NEVER_FITS;
    let firstTie = Infinity;
    const length = only?.length ?? needs.length;
    for (let each = 0; each < length; each += 1) {
      const index = only === undefined ? each : (only[each] ?? 0);
      const need = needs[index] ?? NEVER_FITS;
      if (need > firstNeed || need < lastNeed || need === NEVER_FITS) continue;
      const tie = ties[index] ?? 0;
      if (need === lastNeed && tie <= lastTie) continue;
      if (need === firstNeed && tie >= firstTie) continue;
      first = index;
      firstNeed = need;
      firstTie = tie;
    }
    this.lastNeed = firstNeed;
    this.lastTie = firstTie;
    return first;
  }

  /** Returns the nodes after the last one, the first at the end. */
  private sort(): number[] {
    const { needs, ties, only } = this.round;
    const { lastNeed, lastTie } = this;
    const compare = (a: number, b: number): number =>
      compareNumbers(needs[b] ?? 0, needs[a] ?? 0) || (ties[b] ?? 0) - (ties[a] ?? 0);
    const indexes = only ?? Array.from(needs.keys());
    return indexes
      .filter((index) => {
        const need = needs[index] ?? NEVER_FITS;
        if (need === NEVER_FITS) return false;
        return need > lastNeed || (need === lastNeed && (ties[index] ?? 0) > lastTie);
      })
      .sort(compare);
  }
}

/**
 * Returns false when no victim set of a node can be better than `best`. Of the nodes with the need
 * of `best`, those that come first in the order of ties have been examined.
 */
function mayBeat(need: number, best: NodeVictims, needOfBest: number): boolean {
  const { priority, victims } = toVictimBound(need);
  const bound = need <= FITS_AFTER_LEAVING ? [] : new Array<number>(victims).fill(priority);
  const comparison = compareVictimPriorities(bound, best.priorities);
  return comparison < 0 || (comparison === 0 && need !== needOfBest);
}

function toCandidate(
  held: HeldReservation,
  request: FullRequest,
  { evictabilityOf, permitsOf = unlimited }: PreemptOptions,
): Candidate | undefined {
  // A rollout replaces the replicas of the same workload that have another priority.
  if (held.priority >= request.priority || held.workloadId === request.workloadId) return undefined;
  const evictability = evictabilityOf === undefined ? 'free' : evictabilityOf(held);
  if (evictability === 'never') return undefined;
  // Without a single permit, the search on the node does not have to try.
  if (evictability === 'counted' && permitsOf(held.workloadId) <= 0) return undefined;
  return { held, evictability };
}

/** Returns true when the request has to be near replicas of which a victim may be one. */
function needsNearReplica({ workloadAffinity }: FullRequest, victims: readonly Candidate[]) {
  return workloadAffinity.some(
    ({ mode, selector }) =>
      mode === 'required' && victims.some(({ held }) => matchesAll(selector, held.labels)),
  );
}
