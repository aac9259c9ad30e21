import type { NodeRecord } from './node.js';
import { Problems } from './problems.js';
import type { FullRequest } from './request.js';
import type { Resources } from './resources.js';

/** How much each term counts. Only the proportions matter: they are normalised to sum 1. */
export interface ScoreWeights {
  readonly locality: number;
  readonly reliability: number;
  readonly cost: number;
  readonly utilisation: number;
  /** Of the term that is subtracted. */
  readonly networkPenalty: number;
}

export const DEFAULT_WEIGHTS: ScoreWeights = {
  locality: 0.25,
  reliability: 0.3,
  cost: 0.15,
  utilisation: 0.2,
  networkPenalty: 0.1,
};

/**
 * The parts of a score. The first five lie between 0 and 1 and are yet to be weighted; the last
 * three are added as they are. All speak of one node and one request: what other nodes there are
 * changes nothing.
 */
export interface ScoreTerms {
  readonly locality: number;
  readonly reliability: number;
  readonly cost: number;
  readonly utilisation: number;
  readonly networkPenalty: number;
  /** +0.2 × weight/100 for each preferred affinity term, of nodes or workloads, that holds. */
  readonly affinity: number;
  /** −0.3 × weight/100 for each preferred anti-affinity term that is broken. */
  readonly antiAffinity: number;
  /** −0.1 for each PreferNoSchedule taint that is not tolerated. */
  readonly taints: number;
}

/** What is preferred and found on a node, before it is turned into score. */
export interface Preferences {
  /** Sum of the weights of preferred affinity terms that hold. */
  readonly affinityWeight: number;
  /** Sum of the weights of preferred anti-affinity terms that are broken. */
  readonly antiAffinityWeight: number;
  readonly untoleratedTaints: number;
}

/**
 * Brings the weights to sum 1.
 * @throws InvalidInputError naming each weight that is negative or not finite, or `weights` when
 *   all are 0.
 */
export function normaliseWeights(weights: ScoreWeights): ScoreWeights {
  const { locality, reliability, cost, utilisation, networkPenalty } = weights;
  const all = { locality, reliability, cost, utilisation, networkPenalty };
  const problems = new Problems();
  for (const [name, weight] of Object.entries(all)) {
    if (!(Number.isFinite(weight) && weight >= 0))
      problems.note(`weights.${name}`, `must be a finite number of at least 0, is ${weight}`);
  }
  problems.throwIfAny();
  // Against the largest first: a sum of very large weights would not be finite, one of very small
  // ones not exact.
  const largest = Math.max(...Object.values(all));
  if (largest === 0) problems.note('weights', 'at least one must be above 0');
  problems.throwIfAny();
  const sum = Object.values(all).reduce((total, weight) => total + weight / largest, 0);
  const share = (weight: number): number => weight / largest / sum;
  return {
    locality: share(locality),
    reliability: share(reliability),
    cost: share(cost),
    utilisation: share(utilisation),
    networkPenalty: share(networkPenalty),
  };
}

/**
 * Locality, reliability, cost and utilisation add to it, the network penalty takes away;
 * preferences come on top.
 */
export function totalScore(terms: ScoreTerms, weights: ScoreWeights): number {
  return (
    weights.locality * terms.locality +
    weights.reliability * terms.reliability +
    weights.cost * terms.cost +
    weights.utilisation * terms.utilisation -
    weights.networkPenalty * terms.networkPenalty +
    terms.affinity +
    terms.antiAffinity +
    terms.taints
  );
}

/** @param allocated - What other replicas have booked on the node. */
export function scoreTerms(
  record: NodeRecord,
  allocated: Resources,
  request: FullRequest,
  preferences: Preferences,
): ScoreTerms {
  return {
    locality: localityOf(record, request),
    reliability: reliabilityOf(record),
    cost: costOf(record, request.resources),
    utilisation: utilisationOf(record, allocated, request.resources),
    networkPenalty: networkPenaltyOf(record, allocated, request),
    affinity: (preferences.affinityWeight / 100) * 0.2,
    antiAffinity: 0 - (preferences.antiAffinityWeight / 100) * 0.3,
    taints: 0 - preferences.untoleratedTaints * 0.1,
  };
}

/** The first region listed is worth 1, each further one 0.1 less. */
function localityOf({ region, zone }: NodeRecord, { regions, zones }: FullRequest): number {
  const index = regions.indexOf(region);
  const byRegion = regions.length === 0 ? 0.7 : index < 0 ? 0.5 : 1 - 0.1 * index;
  const byZone = zones.length === 0 ? 0 : zones.includes(zone) ? 0.2 : -0.2;
  return clamp(byRegion + byZone);
}

function reliabilityOf({ reliability, conditions }: NodeRecord): number {
  const pressures = Number(conditions.memoryPressure) + Number(conditions.diskPressure);
  return clamp(reliability - 0.2 * pressures - (conditions.networkUnavailable ? 0.4 : 0));
}

/**
 * Prefers nodes that the request suits: of the whole machine it takes some, neither next to nothing
 * nor most.
 */
function costOf({ capacity }: NodeRecord, need: Resources): number {
  const share =
    (ratio(need.cpuMillis, capacity.cpuMillis) + ratio(need.memoryBytes, capacity.memoryBytes)) / 2;
  const byShare = share < 0.1 ? 0.7 : share < 0.3 ? 1 : share < 0.5 ? 0.8 : share < 0.7 ? 0.6 : 0.3;
  return clamp(byShare - (capacity.gpus > 0 && need.gpus === 0 ? 0.3 : 0));
}

/**
 * Used share of the whole machine, where what is kept for the system counts as used; best at this.
 */
const TARGET_UTILISATION = 0.65;
/** Above this little is left for peaks. */
const HIGH_UTILISATION = 0.9;
/** Differences of shares below this are noise of floating point. */
const NOISE = 1e-9;

function utilisationOf(
  { capacity, systemReserved }: NodeRecord,
  allocated: Resources,
  need: Resources,
): number {
  const cpuUsed = systemReserved.cpuMillis + allocated.cpuMillis;
  const memoryUsed = systemReserved.memoryBytes + allocated.memoryBytes;
  const cpu = ratio(cpuUsed + need.cpuMillis, capacity.cpuMillis);
  const memory = ratio(memoryUsed + need.memoryBytes, capacity.memoryBytes);
  if (cpu > 1 || memory > 1) return 0;
  const imbalanceNow = Math.abs(
    ratio(cpuUsed, capacity.cpuMillis) - ratio(memoryUsed, capacity.memoryBytes),
  );
  const shrinks = Math.abs(cpu - memory) < imbalanceNow - NOISE;
  const distance = (Math.abs(cpu - TARGET_UTILISATION) + Math.abs(memory - TARGET_UTILISATION)) / 2;
  const high = cpu > HIGH_UTILISATION || memory > HIGH_UTILISATION;
  return clamp(1 - distance + (shrinks ? 0.1 : 0) - (high ? 0.3 : 0));
}

/**
 * The shortfall is the share of the requested bandwidth that the node has not free; where the
 * replica fits it is 0.
 */
function networkPenaltyOf(
  record: NodeRecord,
  allocated: Resources,
  { resources, regions }: FullRequest,
): number {
  const free = record.allocatable.bandwidthBps - allocated.bandwidthBps;
  const shortfall =
    resources.bandwidthBps === 0
      ? 0
      : clamp((resources.bandwidthBps - free) / resources.bandwidthBps);
  const missed = regions.length > 0 && !regions.includes(record.region);
  return clamp(
    shortfall * 0.5 + (record.conditions.networkUnavailable ? 1 : 0) + (missed ? 0.2 : 0),
  );
}

function clamp(value: number): number {
  return Math.min(1, Math.max(0, value));
}

/** Of nothing, nothing is no share; anything is too much. */
function ratio(part: number, whole: number): number {
  if (whole > 0) return part / whole;
  return part > 0 ? Infinity : 0;
}
