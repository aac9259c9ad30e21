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
  /** Whether the member was in the last set of candidates. */
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
  readonly version: number;
  readonly levelOf: Map<Nearness, Level>;
  /** Levels with a share, nearest first. */
  levels: readonly Level[];
  /** Further levels with candidates, for connections that fail at `levels`. Nearest first. */
  spare: readonly Level[];
  wasCandidate: boolean;
}

/**
 * A level receives its whole share while at least 1 / 1.4 (71 %) of its weight can be chosen; below,
 * the rest spills over to the next level in proportion.
 * @see Envoy, "Priority levels", overprovisioning factor
 */
export const SPILL_FACTOR = 1.4;

const ORDER: readonly Nearness[] = ['node', 'zone', 'region', 'any'];
const ALL_VERSIONS = -1;

/** Returns how near an endpoint is. */
export function nearnessOf(endpoint: Place, here: Place): Nearness {
  if (endpoint.nodeId !== '' && endpoint.nodeId === here.nodeId) return 'node';
  if (endpoint.zone !== '' && endpoint.zone === here.zone) return 'zone';
  if (endpoint.region !== '' && endpoint.region === here.region) return 'region';
  return 'any';
}

/** How members are arranged. */
export interface ArrangeOptions {
  /** Whether a member can be chosen now. */
  readonly isCandidate: (member: Member) => boolean;
  /** Near members are in levels of their own. */
  readonly localityAware: boolean;
  /** See {@link joinTurns}. */
  readonly spread: () => number;
}

/** Keeps the turns of groups and levels from one set of candidates to the next. */
export class CandidateGroups {
  private readonly groups = new Map<number, Group>();

  /**
   * Arranges the members that can be chosen.
   * @param members - All listed members with a weight above 0.
   */
  arrange(members: readonly Member[], options: ArrangeOptions): readonly Group[] {
    const byVersion = splitByVersion(members);
    for (const version of this.groups.keys()) {
      if (!byVersion.has(version)) this.groups.delete(version);
    }
    const groups: { group: Group; weight: number }[] = [];
    for (const [version, ofVersion] of byVersion) {
      const group = this.groupOf(version);
      const weight = arrangeLevels(group, ofVersion, options);
      if (weight > 0) groups.push({ group, weight });
      else group.wasCandidate = false;
    }
    groups.sort((left, right) => left.group.version - right.group.version);
    return settleTurns(
      groups.map(({ group, weight }) => [group, weight]),
      options.spread,
    );
  }

  private groupOf(version: number): Group {
    const known = this.groups.get(version);
    if (known !== undefined) return known;
    const group: Group = {
      version,
      levelOf: new Map(),
      levels: [],
      spare: [],
      weight: 1,
      turn: 0,
      wasCandidate: false,
    };
    this.groups.set(version, group);
    return group;
  }
}

/**
 * Returns the groups without some members: what remains when a connection to those failed. The turns
 * of groups and levels do not change.
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

/**
 * Versions are kept apart only while a rollout gives them weights of their own: then the share of a
 * version must not depend on which version is near.
 */
function splitByVersion(members: readonly Member[]): Map<number, Member[]> {
  const isSteered = members.some(({ endpoint }) => endpoint.weight !== DEFAULT_ENDPOINT_WEIGHT);
  const byVersion = new Map<number, Member[]>();
  for (const member of members) {
    const version = isSteered ? member.endpoint.version : ALL_VERSIONS;
    const known = byVersion.get(version);
    if (known === undefined) byVersion.set(version, [member]);
    else known.push(member);
  }
  return byVersion;
}

/** Fills the levels of a group and returns the weight of its candidates. */
function arrangeLevels(
  group: Group,
  members: readonly Member[],
  { isCandidate, localityAware, spread }: ArrangeOptions,
): number {
  const order: readonly Nearness[] = localityAware ? ORDER : ['any'];
  const shares: [Level, number][] = [];
  const spare: Level[] = [];
  let groupWeight = 0;
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
    groupWeight += weight;
    if (share > 0) shares.push([level, share]);
    else level.wasCandidate = false;
    if (share === 0 && weight > 0) spare.push(level);
  }
  group.spare = spare;
  // What no level takes is shared in the same proportion.
  const taken = 1 - remaining;
  group.levels = settleTurns(
    shares.map(([level, share]) => [level, share / taken]),
    spread,
  );
  return groupWeight;
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
