import type { IndexedNode } from '../input/node.js';
import { Problems } from '../input/problems.js';
import type { FullRequest } from '../input/request.js';
import type { Resources } from '../input/resources.js';

/** Weights of the score terms. Only their proportions matter: they are normalised to sum 1. */
export interface ScoreWeights {
  readonly locality: number;
  readonly reliability: number;
  readonly cost: number;
  readonly utilisation: number;
  /** Weight of the network penalty, which is subtracted. */
  readonly networkPenalty: number;
}

/** The default weights: reliability counts most, the network penalty least. */
export const DEFAULT_WEIGHTS: ScoreWeights = {
  locality: 0.25,
  reliability: 0.3,
  cost: 0.15,
  utilisation: 0.2,
  networkPenalty: 0.1,
};

/**
 * Parts of a score. The first five lie between 0 and 1 and are multiplied by their weights; the
 * last three are added unchanged. All terms depend on one node and one request, not on other nodes.
 */
export interface ScoreTerms {
  readonly locality: number;
  readonly reliability: number;
  readonly cost: number;
  readonly utilisation: number;
  readonly networkPenalty: number;
  /** +0.2 × weight/100 for each preferred node or workload affinity term that matches. */
  readonly affinity: number;
  /** −0.3 × weight/100 for each preferred anti-affinity term that matches. */
  readonly antiAffinity: number;
  /** −0.1 for each untolerated PreferNoSchedule taint. */
  readonly taints: number;
}

/** Matching preferences of one node, before they become score terms. */
export interface Preferences {
  /** Sum of the weights of matching preferred affinity terms. */
  readonly affinityWeight: number;
  /** Sum of the weights of matching preferred anti-affinity terms. */
  readonly antiAffinityWeight: number;
  readonly untoleratedTaints: number;
}

/**
 * Scales the weights to sum 1.
 * @throws InvalidInputError naming each weight that is negative or not finite, or `weights` when
 *   all are 0.
 */
export function normaliseWeights(weights: ScoreWeights): ScoreWeights {
  const { locality, reliability, cost, utilisation, networkPenalty } = weights;
  const byName = { locality, reliability, cost, utilisation, networkPenalty };
  const problems = new Problems();
  for (const [name, weight] of Object.entries(byName)) {
    if (!(Number.isFinite(weight) && weight >= 0))
      problems.add(`weights.${name}`, `must be a finite number of at least 0, is ${weight}`);
  }
  problems.throwIfAny();
  // Divide by the largest weight first: the sum of very large weights would not be finite, the sum
  // of very small weights not exact.
  const largest = Math.max(...Object.values(byName));
  if (largest === 0) problems.add('weights', 'at least one must be above 0');
  problems.throwIfAny();
  const sum = Object.values(byName).reduce((total, weight) => total + weight / largest, 0);
  const normalise = (weight: number): number => weight / largest / sum;
  return {
    locality: normalise(locality),
    reliability: normalise(reliability),
    cost: normalise(cost),
    utilisation: normalise(utilisation),
    networkPenalty: normalise(networkPenalty),
  };
}

/**
 * Returns the weighted sum of locality, reliability, cost and utilisation, minus the weighted
 * network penalty, plus the preferences.
 */
export function computeScore(terms: ScoreTerms, weights: ScoreWeights): number {
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

/**
 * Computes the score terms of one node for one request.
 * @param allocated - Resources that other replicas reserve on the node.
 */
export function computeScoreTerms(
  record: IndexedNode,
  allocated: Resources,
  request: FullRequest,
  preferences: Preferences,
): ScoreTerms {
  return {
    locality: scoreLocality(record, request),
    reliability: scoreReliability(record),
    cost: scoreCost(record, request.resources),
    utilisation: scoreUtilisationOf(record, allocated, request.resources),
    networkPenalty: computeNetworkPenalty(record, allocated, request),
    affinity: (preferences.affinityWeight / 100) * 0.2,
    antiAffinity: 0 - (preferences.antiAffinityWeight / 100) * 0.3,
    taints: 0 - preferences.untoleratedTaints * 0.1,
  };
}

/**
 * Prefers the requested regions and zones. The first listed region scores 1, each further region
 * 0.1 less, another region 0.5, and any region 0.7 when none is requested. A requested zone adds
 * 0.2, another zone subtracts 0.2.
 */
export function scoreLocality(
  { region, zone }: Pick<IndexedNode, 'region' | 'zone'>,
  { regions, zones }: Pick<FullRequest, 'regions' | 'zones'>,
): number {
  const index = regions.indexOf(region);
  const regionScore = regions.length === 0 ? 0.7 : index < 0 ? 0.5 : 1 - 0.1 * index;
  const zoneScore = zones.length === 0 ? 0 : zones.includes(zone) ? 0.2 : -0.2;
  return clamp(regionScore + zoneScore);
}

/** The reliability of the node, lowered by 0.2 for each pressure and 0.4 without a network. */
export function scoreReliability({ reliability, conditions }: IndexedNode): number {
  const pressures = Number(conditions.memoryPressure) + Number(conditions.diskPressure);
  return clamp(reliability - 0.2 * pressures - (conditions.networkUnavailable ? 0.4 : 0));
}

/**
 * Prefers nodes whose size fits the request: a share of 10 to 30 % of the whole machine scores
 * best. A node with GPUs that the request does not need scores 0.3 less.
 */
export function scoreCost({ capacity }: Pick<IndexedNode, 'capacity'>, need: Resources): number {
  const share =
    (divide(need.cpuMillis, capacity.cpuMillis) + divide(need.memoryBytes, capacity.memoryBytes)) /
    2;
  const shareScore =
    share < 0.1 ? 0.7 : share < 0.3 ? 1 : share < 0.5 ? 0.8 : share < 0.7 ? 0.6 : 0.3;
  return clamp(shareScore - (capacity.gpus > 0 && need.gpus === 0 ? 0.3 : 0));
}

/** Preferred used share of the whole machine. The system reservation counts as used. */
export const TARGET_UTILISATION = 0.65;
/** Used share above which a node has little left for load peaks. */
export const HIGH_UTILISATION = 0.9;
/** Differences of shares below this value are floating-point noise. */
const NOISE = 1e-9;

/**
 * Prefers nodes whose utilisation after the placement is near {@link TARGET_UTILISATION}. A
 * placement that reduces the difference between the CPU and the memory share scores 0.1 more, a
 * highly used node 0.3 less, and a node without enough capacity 0.
 *
 * Plain numbers in and out, as the scan calls this function for every node: amounts used before the
 * placement (with the system reservation), their {@link computeImbalance}, amounts of the request
 * and of the whole machine.
 */
export function scoreUtilisation(
  cpuUsed: number,
  memoryUsed: number,
  imbalanceNow: number,
  cpuNeed: number,
  memoryNeed: number,
  cpuCapacity: number,
  memoryCapacity: number,
): number {
  const cpu = divide(cpuUsed + cpuNeed, cpuCapacity);
  const memory = divide(memoryUsed + memoryNeed, memoryCapacity);
  if (cpu > 1 || memory > 1) return 0;
  const reducesImbalance = Math.abs(cpu - memory) < imbalanceNow - NOISE;
  const distance = (Math.abs(cpu - TARGET_UTILISATION) + Math.abs(memory - TARGET_UTILISATION)) / 2;
  const isHighlyUsed = cpu > HIGH_UTILISATION || memory > HIGH_UTILISATION;
  return clamp(1 - distance + (reducesImbalance ? 0.1 : 0) - (isHighlyUsed ? 0.3 : 0));
}

/**
 * Returns the largest distance from {@link TARGET_UTILISATION}, as the sum of the distances of CPU
 * and memory after the placement, at which {@link scoreUtilisation} may reach `score`. A placement
 * that reduces the imbalance may be {@link BALANCE_DISTANCE} further away.
 *
 * @returns Infinity when every node reaches the score, -Infinity when none does.
 */
export function findLargestDistance(score: number): number {
  if (score <= 0) return Infinity;
  return score > 1 ? -Infinity : 2 * (1 - score) + NOISE;
}

/** See {@link findLargestDistance}. */
export const BALANCE_DISTANCE = 0.2;

/** A node that is highly used after the placement must be nearer by this distance. */
export const HIGH_USE_DISTANCE = 0.6;

/** Returns the difference between the used shares of CPU and memory of a machine. */
export function computeImbalance(
  cpuUsed: number,
  memoryUsed: number,
  cpuCapacity: number,
  memoryCapacity: number,
): number {
  return Math.abs(divide(cpuUsed, cpuCapacity) - divide(memoryUsed, memoryCapacity));
}

function scoreUtilisationOf(
  { capacity, systemReserved }: IndexedNode,
  allocated: Resources,
  need: Resources,
): number {
  const cpuUsed = systemReserved.cpuMillis + allocated.cpuMillis;
  const memoryUsed = systemReserved.memoryBytes + allocated.memoryBytes;
  return scoreUtilisation(
    cpuUsed,
    memoryUsed,
    computeImbalance(cpuUsed, memoryUsed, capacity.cpuMillis, capacity.memoryBytes),
    need.cpuMillis,
    need.memoryBytes,
    capacity.cpuMillis,
    capacity.memoryBytes,
  );
}

/**
 * Computes the penalty: half of the missing share of the requested bandwidth (0 when the replica
 * fits), 1 without a network, and 0.2 outside the requested regions, together at most 1.
 */
export function computeNetworkPenalty(
  record: IndexedNode,
  allocated: Resources,
  { resources, regions }: FullRequest,
): number {
  const free = record.allocatable.bandwidthBps - allocated.bandwidthBps;
  const shortfall =
    resources.bandwidthBps === 0
      ? 0
      : clamp((resources.bandwidthBps - free) / resources.bandwidthBps);
  const isOutsideRegions = regions.length > 0 && !regions.includes(record.region);
  return clamp(
    shortfall * 0.5 + (record.conditions.networkUnavailable ? 1 : 0) + (isOutsideRegions ? 0.2 : 0),
  );
}

function clamp(value: number): number {
  return Math.min(1, Math.max(0, value));
}

/** Returns `part / whole`; with `whole` 0, returns 0 for no part and Infinity otherwise. */
function divide(part: number, whole: number): number {
  if (whole > 0) return part / whole;
  return part > 0 ? Infinity : 0;
}
