import type { Random } from '@cloudless/base';
import type {
  BalancedEndpoint,
  BalancerConfig,
  Choice,
  ChoiceRefusal,
  ChoiceRequest,
  EndpointState,
  Place,
} from './balancer-types.js';
import {
  CandidateGroups,
  nearnessOf,
  withoutMembers,
  type Group,
  type Level,
  type Member,
} from './candidates.js';
import { takeNext } from './fair-shares.js';
import {
  createEjectionState,
  endEjection,
  maxEjected,
  noteConnected,
  noteFailed,
} from './outlier-ejection.js';
import { SessionAffinity } from './session-affinity.js';
import { chooseByHash, hashPair, hashText } from './source-hash.js';

/** Number of open connections of one node to a service, shared by the balancers of its ports. */
export interface OpenConnections {
  count: number;
}

/** Options of a {@link ServiceBalancer}. */
export interface ServiceBalancerOptions {
  readonly config: BalancerConfig;
  /** Place of the proxy. */
  readonly here: Place;
  readonly random: Random;
  /** Default: a count of its own. */
  readonly connections?: OpenConnections;
}

/**
 * Chooses endpoints for the connections of one node to one port of a service. The cost of a choice
 * is at most proportional to the number of endpoints, and that of a change of an endpoint is paid
 * by the next choice. Times are monotonic milliseconds and must not go backwards.
 */
export class ServiceBalancer {
  private readonly members = new Map<string, Member>();
  private readonly candidateGroups = new CandidateGroups();
  private readonly affinity = new SessionAffinity();
  private readonly connections: OpenConnections;
  private readonly random: Random;
  private readonly here: Place;
  private config: BalancerConfig;
  /** Undefined: to arrange at the next choice. */
  private groups: readonly Group[] | undefined;
  /** Time of the first end of an ejection. */
  private nextReturnMs = Infinity;

  constructor(options: ServiceBalancerOptions) {
    this.config = options.config;
    this.here = options.here;
    this.random = options.random;
    this.connections = options.connections ?? { count: 0 };
  }

  /** Number of endpoints, ready or not. */
  get endpointCount(): number {
    let count = 0;
    for (const { isListed } of this.members.values()) count += isListed ? 1 : 0;
    return count;
  }

  /** Changes how connections are balanced. Without affinity, clients are forgotten. */
  configure(config: BalancerConfig): void {
    this.config = config;
    if (config.sessionAffinityMs === undefined) this.affinity.clear();
    if (config.outlierEjection === undefined) {
      for (const { ejection } of this.members.values())
        Object.assign(ejection, createEjectionState());
    }
    this.groups = undefined;
  }

  /** Replaces all endpoints. Endpoints that stay keep their failures, connections and turns. */
  setEndpoints(endpoints: readonly BalancedEndpoint[]): void {
    const ids = new Set(endpoints.map(({ id }) => id));
    for (const id of this.members.keys()) if (!ids.has(id)) this.removeEndpoint(id);
    for (const endpoint of endpoints) this.setEndpoint(endpoint);
  }

  /** Adds or changes one endpoint. */
  setEndpoint(endpoint: BalancedEndpoint): void {
    const known = this.members.get(endpoint.id);
    if (known === undefined) {
      this.members.set(endpoint.id, {
        endpoint,
        nearness: nearnessOf(endpoint, this.here),
        hash: hashText(endpoint.id),
        ejection: createEjectionState(),
        openConnections: 0,
        isListed: true,
        weight: 1,
        turn: 0,
        wasCandidate: false,
      });
    } else {
      known.endpoint = endpoint;
      known.nearness = nearnessOf(endpoint, this.here);
      known.isListed = true;
    }
    this.groups = undefined;
  }

  /** Removes one endpoint. Its open connections count until they are closed. */
  removeEndpoint(id: string): void {
    const member = this.members.get(id);
    if (member === undefined) return;
    member.isListed = false;
    if (member.openConnections === 0) this.members.delete(id);
    this.groups = undefined;
  }

  /**
   * Chooses an endpoint for a new connection. The caller reports `reportConnected` or
   * `reportFailed` for the endpoint; after a failure the caller chooses again with the endpoint in
   * `exclude`.
   */
  choose(request: ChoiceRequest): Choice {
    const { config } = this;
    if (config.maxConnections > 0 && this.connections.count >= config.maxConnections) {
      return { kind: 'refused', reason: 'tooManyConnections' };
    }
    const groups = this.arrangedGroups(request.nowMs);
    const kept = this.keptMember(request);
    const member = kept ?? this.chooseMember(groups, request);
    if (member === undefined) return { kind: 'refused', reason: this.whyNone(groups) };
    const { id: endpointId } = member.endpoint;
    if (config.sessionAffinityMs !== undefined) {
      const { clientAddress, nowMs } = request;
      this.affinity.keep(clientAddress, endpointId, nowMs, config.sessionAffinityMs);
    }
    return {
      kind: 'endpoint',
      endpointId,
      nearness: member.nearness,
      byAffinity: kept !== undefined,
    };
  }

  /** Notes that a connect to the endpoint succeeded. */
  reportConnected(endpointId: string, nowMs: number): void {
    const member = this.members.get(endpointId);
    const { outlierEjection } = this.config;
    if (member !== undefined && outlierEjection !== undefined) {
      noteConnected(member.ejection, outlierEjection, nowMs);
    }
  }

  /**
   * Notes that a connect to the endpoint failed.
   * @returns True when this failure ejects the endpoint.
   */
  reportFailed(endpointId: string, nowMs: number): boolean {
    const member = this.members.get(endpointId);
    const { outlierEjection } = this.config;
    if (member === undefined || outlierEjection === undefined) return false;
    const eligible = this.eligibleMembers();
    const ejected = eligible.filter((each) => each.ejection.ejectedUntilMs !== undefined).length;
    const mayEject = ejected < maxEjected(outlierEjection, eligible.length);
    if (!noteFailed(member.ejection, outlierEjection, nowMs, mayEject)) return false;
    this.groups = undefined;
    return true;
  }

  /** Notes that a connection to the endpoint is open. */
  opened(endpointId: string): void {
    this.connections.count += 1;
    const member = this.members.get(endpointId);
    if (member !== undefined) member.openConnections += 1;
  }

  /** Notes that a connection to the endpoint is closed. Call once for each `opened`. */
  closed(endpointId: string): void {
    this.connections.count = Math.max(0, this.connections.count - 1);
    const member = this.members.get(endpointId);
    if (member === undefined) return;
    member.openConnections = Math.max(0, member.openConnections - 1);
    if (!member.isListed && member.openConnections === 0) this.members.delete(endpointId);
  }

  /** Returns the state of each endpoint, by id. */
  states(nowMs: number): readonly EndpointState[] {
    this.arrangedGroups(nowMs);
    return [...this.members.values()]
      .filter(({ isListed }) => isListed)
      .map((member) => ({
        endpointId: member.endpoint.id,
        nearness: member.nearness,
        openConnections: member.openConnections,
        state: stateOf(member),
      }))
      .sort((left, right) => (left.endpointId < right.endpointId ? -1 : 1));
  }

  private keptMember({ clientAddress, nowMs, exclude }: ChoiceRequest): Member | undefined {
    if (this.config.sessionAffinityMs === undefined) return undefined;
    const id = this.affinity.endpointOf(clientAddress, nowMs);
    if (id === undefined || exclude?.has(id) === true) return undefined;
    const member = this.members.get(id);
    return member !== undefined && isAvailable(member) ? member : undefined;
  }

  private chooseMember(groups: readonly Group[], request: ChoiceRequest): Member | undefined {
    const { clientAddress, exclude } = request;
    const open =
      exclude === undefined || exclude.size === 0
        ? groups
        : withoutMembers(groups, ({ endpoint }) => exclude.has(endpoint.id));
    if (this.config.algorithm === 'sourceHash')
      return chooseBySource(open, hashText(clientAddress));
    const level = takeNext(takeNext(open)?.levels ?? []);
    if (level === undefined) return undefined;
    switch (this.config.algorithm) {
      case 'roundRobin':
      case 'weighted':
        return takeNext(level.members);
      case 'leastConnections':
        return this.leastBusy(level);
      case 'randomTwo':
        return this.lessBusyOfTwo(level);
    }
  }

  private lessBusyOfTwo({ members, sums }: Level): Member | undefined {
    const first = this.drawIndex(sums);
    const second = this.drawIndex(sums);
    const other = second === first ? (first + 1) % members.length : second;
    const [left, right] = [members[first], members[other]];
    if (left === undefined || right === undefined) return left;
    return busyness(right) < busyness(left) ? right : left;
  }

  /** Draws an index in proportion to the weights, by binary search. */
  private drawIndex(sums: readonly number[]): number {
    const drawn = this.random.next() * (sums.at(-1) ?? 0);
    let low = 0;
    let high = sums.length - 1;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((sums[middle] ?? 0) > drawn) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** Begins at a random member, so that equally busy members take turns by chance. */
  private leastBusy({ members }: Level): Member | undefined {
    const start = Math.floor(this.random.next() * members.length);
    let best: Member | undefined;
    let least = Infinity;
    for (let offset = 0; offset < members.length; offset += 1) {
      const member = members[(start + offset) % members.length];
      if (member === undefined) continue;
      const busy = (member.openConnections + 1) / member.endpoint.weight;
      if (busy < least) {
        best = member;
        least = busy;
      }
    }
    return best;
  }

  private arrangedGroups(nowMs: number): readonly Group[] {
    if (this.groups !== undefined && nowMs < this.nextReturnMs) return this.groups;
    const weighted = [...this.members.values()].filter(
      ({ isListed, endpoint }) => isListed && endpoint.weight > 0,
    );
    this.endEjections(nowMs);
    this.groups = this.candidateGroups.arrange(weighted, {
      isCandidate: isAvailable,
      localityAware: this.config.localityAware,
      spread: () => this.random.next(),
    });
    return this.groups;
  }

  /** Ends ejections whose time is over, and the oldest ones while more are ejected than may be. */
  private endEjections(nowMs: number): void {
    const { outlierEjection } = this.config;
    this.nextReturnMs = Infinity;
    if (outlierEjection === undefined) return;
    const endOf = ({ ejection }: Member): number => ejection.ejectedUntilMs ?? Infinity;
    const ejected = [...this.members.values()].filter((member) => endOf(member) < Infinity);
    for (const member of ejected) {
      if (endOf(member) <= nowMs) endEjection(member.ejection, outlierEjection, nowMs);
    }
    const eligible = this.eligibleMembers();
    const still = eligible
      .filter((member) => endOf(member) < Infinity)
      .sort((left, right) => endOf(left) - endOf(right));
    const surplus = still.length - maxEjected(outlierEjection, eligible.length);
    for (const member of still.splice(0, Math.max(0, surplus))) {
      endEjection(member.ejection, outlierEjection, nowMs);
    }
    for (const member of ejected) this.nextReturnMs = Math.min(this.nextReturnMs, endOf(member));
  }

  /** Members that receive connections unless they are ejected. */
  private eligibleMembers(): readonly Member[] {
    return [...this.members.values()].filter(isEligible);
  }

  private whyNone(groups: readonly Group[]): ChoiceRefusal {
    if (groups.length > 0) return 'allExcluded';
    if (this.endpointCount === 0) return 'noEndpoints';
    return this.eligibleMembers().length === 0 ? 'noReadyEndpoints' : 'allEjected';
  }
}

function isEligible({ isListed, endpoint }: Member): boolean {
  return isListed && endpoint.ready && endpoint.weight > 0;
}

function isAvailable(member: Member): boolean {
  return isEligible(member) && member.ejection.ejectedUntilMs === undefined;
}

function busyness({ openConnections, endpoint }: Member): number {
  return openConnections / endpoint.weight;
}

/** Groups and levels are chosen by the client's hash as well, so that a client keeps its place. */
function chooseBySource(groups: readonly Group[], key: number): Member | undefined {
  const group = chooseShare(groups, hashPair(key, GROUP_SALT));
  const level = chooseShare(group?.levels ?? [], hashPair(key, LEVEL_SALT));
  return chooseByHash(level?.members ?? [], key);
}

const GROUP_SALT = 0x67726f75;
const LEVEL_SALT = 0x6c657665;

function chooseShare<Item extends { readonly weight: number }>(
  items: readonly Item[],
  point: number,
): Item | undefined {
  const total = items.reduce((sum, { weight }) => sum + weight, 0);
  let reached = 0;
  for (const item of items) {
    reached += item.weight;
    if (point * total < reached) return item;
  }
  return items.at(-1);
}

function stateOf({ endpoint, ejection }: Member): EndpointState['state'] {
  if (!endpoint.ready) return { kind: 'notReady' };
  if (endpoint.weight <= 0) return { kind: 'noWeight' };
  if (ejection.ejectedUntilMs === undefined) return { kind: 'available' };
  return { kind: 'ejected', untilMs: ejection.ejectedUntilMs, failures: ejection.failures };
}
