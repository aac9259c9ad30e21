import {
  DEFAULT_ENDPOINT_WEIGHT,
  type BalancedEndpoint,
  type Nearness,
  type Place,
} from './balancer-types.js';
import { changeWeight, joinTurns, type FairItem } from './fair-shares.js';
import type { EjectionState } from './outlier-ejection.js';

/** An endpoint with what this node knows of the endpoint. `weight` and `turn`: see FairItem. */
export interface Member extends FairItem {
  endpoint: BalancedEndpoint;
  nearness: Nearness;
  readonly hash: number;
  readonly ejection: EjectionState;
  openConnections: number;
  /** False for an endpoint that left while connections to it are open. */
  isListed: boolean;
  /** True when the member was in the last set of candidates. */
  wasCandidate: boolean;
}

/** Endpoints of one version that are equally near. `weight`: share of the connections. */
export interface Level extends FairItem {
  readonly nearness: Nearness;
  members: readonly Member[];
  /** Sums of the members' weights up to and including each member. */
  sums: readonly number[];
  wasCandidate: boolean;
}

/** Endpoints whose common share of the connections holds on every node. */
export interface Group extends FairItem {
  /** Unique among the groups. */
  readonly key: string;
  readonly levelOf: Map<Nearness, Level>;
  /** Levels with a share, nearest first. */
  levels: readonly Level[];
  /** Further levels with candidates, for connections that fail at `levels`. Nearest first. */
  spare: readonly Level[];
  wasCandidate: boolean;
}

/**
 * A level receives its whole share while at least 1 / 1.4 (71 %) of its weight can be chosen;
 * below, the rest spills over to the next level in proportion.
 * @see Envoy, "Priority levels", overprovisioning factor
 */
export const SPILL_FACTOR = 1.4;

const ORDER: readonly Nearness[] = ['node', 'zone', 'region', 'any'];
/** Key of the group of all endpoints whose workload has no versions with weights. */
const UNSTEERED = '*';
/** Workload of the endpoints outside the cluster. */
const OUTSIDE = '';

/** Returns how near an endpoint is. */
export function nearnessOf(endpoint: Place, here: Place): Nearness {
  if (endpoint.nodeId !== '' && endpoint.nodeId === here.nodeId) return 'node';
  if (endpoint.zone !== '' && endpoint.zone === here.zone) return 'zone';
  if (endpoint.region !== '' && endpoint.region === here.region) return 'region';
  return 'any';
}

/** Options of the arrangement of members. */
export interface ArrangeOptions {
  /** Returns true when a member can be chosen now. */
  readonly isCandidate: (member: Member) => boolean;
  /** Near members are in levels of their own. */
  readonly localityAware: boolean;
  /** See {@link joinTurns}. */
  readonly spread: () => number;
}

/** Keeps the turns of groups and levels from one set of candidates to the next. */
export class CandidateGroups {
  private readonly groups = new Map<string, Group>();

  /**
   * Arranges the members that can be chosen.
   * @param members - All listed members with a weight above 0.
   */
  arrange(members: readonly Member[], options: ArrangeOptions): readonly Group[] {
    const parts = splitByShare(members);
    for (const key of this.groups.keys()) if (!parts.has(key)) this.groups.delete(key);
    const arranged: ArrangedGroup[] = [];
    for (const [key, part] of parts) {
      const group = this.groupOf(key);
      const { weight, count } = arrangeLevels(group, part.members, options);
      if (weight > 0) arranged.push({ group, weight, count, workload: part.workload });
      else group.wasCandidate = false;
    }
    arranged.sort((left, right) => (left.group.key < right.group.key ? -1 : 1));
    return settleTurns(toShares(arranged), options.spread);
  }

  private groupOf(key: string): Group {
    const known = this.groups.get(key);
    if (known !== undefined) return known;
    const group: Group = {
      key,
      levelOf: new Map(),
      levels: [],
      spare: [],
      weight: 1,
      turn: 0,
      wasCandidate: false,
    };
    this.groups.set(key, group);
    return group;
  }
}

/**
 * Returns the groups without some members: what remains when a connection to those failed. The
 * turns of groups and levels do not change.
 */
export function withoutMembers(
  groups: readonly Group[],
  isExcluded: (member: Member) => boolean,
): readonly Group[] {
  const remaining = (levels: readonly Level[]): readonly Level[] =>
    levels
      .map((level) => {
        const members = level.members.filter((each) => !isExcluded(each));
        return { ...level, members, sums: runningSums(members) };
      })
      .filter(({ members }) => members.length > 0);
  return groups
    .map((group) => {
      const levels = remaining(group.levels);
      return { ...group, levels: levels.length > 0 ? levels : remaining(group.spare).slice(0, 1) };
    })
    .filter(({ levels }) => levels.length > 0);
}

/** Candidates of one group. */
interface GroupSize {
  readonly count: number;
  /** Sum of the weights. */
  readonly weight: number;
}

/** Members of one group. */
interface GroupMembers {
  /** Workload of which the members are one version; undefined for a group of whole workloads. */
  readonly workload: string | undefined;
  readonly members: Member[];
}

/** A group with the number of its candidates and the sum of their weights, above 0. */
interface ArrangedGroup extends GroupSize {
  readonly group: Group;
  readonly workload: string | undefined;
}

/**
 * Keeps the versions of a workload apart only while a rollout gives them weights of their own: then
 * the share of a version must not depend on which version is near. All other endpoints of the
 * service are one group.
 */
function splitByShare(members: readonly Member[]): ReadonlyMap<string, GroupMembers> {
  const steered = new Set<string>();
  for (const { endpoint } of members)
    if (endpoint.workload !== OUTSIDE && endpoint.weight !== DEFAULT_ENDPOINT_WEIGHT)
      steered.add(endpoint.workload);
  const parts = new Map<string, GroupMembers>();
  for (const member of members) {
    const { workload, version } = member.endpoint;
    const isSteered = steered.has(workload);
    const key = isSteered ? `${workload}/${version}` : UNSTEERED;
    const known = parts.get(key);
    if (known !== undefined) known.members.push(member);
    else parts.set(key, { workload: isSteered ? workload : undefined, members: [member] });
  }
  return parts;
}

/**
 * Returns the share of each group. The versions of a workload divide, in proportion to their
 * weights, what as many endpoints of the usual weight would receive, so that a canary takes nothing
 * from the other workloads of the service.
 */
function toShares(arranged: readonly ArrangedGroup[]): readonly (readonly [Group, number])[] {
  const totals = new Map<string, { weight: number; count: number }>();
  for (const { weight, count, workload } of arranged) {
    if (workload === undefined) continue;
    const total = totals.get(workload) ?? { weight: 0, count: 0 };
    total.weight += weight;
    total.count += count;
    totals.set(workload, total);
  }
  return arranged.map(({ group, weight, workload }) => {
    const total = workload === undefined ? undefined : totals.get(workload);
    if (total === undefined) return [group, weight];
    return [group, (weight / total.weight) * total.count * DEFAULT_ENDPOINT_WEIGHT];
  });
}

/** Fills the levels of a group and returns the size of its candidates. */
function arrangeLevels(
  group: Group,
  members: readonly Member[],
  { isCandidate, localityAware, spread }: ArrangeOptions,
): GroupSize {
  const order: readonly Nearness[] = localityAware ? ORDER : ['any'];
  const shares: [Level, number][] = [];
  const spare: Level[] = [];
  const size = { count: 0, weight: 0 };
  let remaining = 1;
  for (const nearness of order) {
    const here = localityAware ? members.filter((each) => each.nearness === nearness) : members;
    const candidates = here.filter(isCandidate);
    const level = levelOf(group, nearness);
    settleTurns(
      candidates.map((each) => [each, each.endpoint.weight]),
      spread,
    );
    for (const each of here) each.wasCandidate = isCandidate(each);
    level.members = candidates;
    level.sums = runningSums(candidates);
    const weight = level.sums.at(-1) ?? 0;
    const health = weight === 0 ? 0 : Math.min(1, (SPILL_FACTOR * weight) / sumOfWeights(here));
    const share = Math.min(remaining, health);
    remaining -= share;
    size.weight += weight;
    size.count += candidates.length;
    if (share > 0) shares.push([level, share]);
    else level.wasCandidate = false;
    if (share === 0 && weight > 0) spare.push(level);
  }
  group.spare = spare;
  // The remainder that no level takes is shared in the same proportion.
  const taken = 1 - remaining;
  group.levels = settleTurns(
    shares.map(([level, share]) => [level, share / taken]),
    spread,
  );
  return size;
}

function levelOf(group: Group, nearness: Nearness): Level {
  const known = group.levelOf.get(nearness);
  if (known !== undefined) return known;
  const level: Level = {
    nearness,
    members: [],
    sums: [],
    weight: 1,
    turn: 0,
    wasCandidate: false,
  };
  group.levelOf.set(nearness, level);
  return level;
}

function settleTurns<Item extends FairItem & { wasCandidate: boolean }>(
  weighted: readonly (readonly [Item, number])[],
  spread: () => number,
): readonly Item[] {
  const present = weighted.filter(([item]) => item.wasCandidate);
  const joining = weighted.filter(([item]) => !item.wasCandidate);
  const nextTurn = present.reduce((least, [item]) => Math.min(least, item.turn), Infinity);
  for (const [item, weight] of present) {
    if (item.weight !== weight) changeWeight(item, weight, nextTurn);
  }
  for (const [item, weight] of joining) item.weight = weight;
  joinTurns(
    present.map(([item]) => item),
    joining.map(([item]) => item),
    spread,
  );
  for (const [item] of joining) item.wasCandidate = true;
  return weighted.map(([item]) => item);
}

function runningSums(members: readonly Member[]): readonly number[] {
  let sum = 0;
  return members.map(({ endpoint }) => (sum += endpoint.weight));
}

function sumOfWeights(members: readonly Member[]): number {
  return members.reduce((sum, { endpoint }) => sum + endpoint.weight, 0);
}
