import type { Egress, Order } from '@cloudless/api';
import {
  errorFields,
  errorKindOf,
  errorMessageOf,
  type Clock,
  type ContainerId,
  type Log,
  type Timer,
} from '@cloudless/base';
import type { ContainerRuntime, EgressRule } from '@cloudless/runtime';
import { requireStart, usesNodeDnsServer } from '../container/to-container-request.js';
import type { NodeNetworkAccess } from '../network/node-network.js';
import type { ReplicaHost } from '../replica/replica-host.js';
import type { ReplicaListener } from '../replica/replica-listener.js';
import { listServicePatterns, toEgressRules, type ServiceAddresses } from './egress-rules.js';

/** Time between two questions for the addresses of services, milliseconds. */
const INTERVAL_MS = 1_000;
/** Calls of `limitEgress` at a time: a container that does not answer delays no other one. */
const CONCURRENCY = 4;
/** No namespace has this name, so the answer names the DNS server and no services. */
const NO_NAMESPACE = '';

/** The replicas of the node whose containers the updates follow. */
export interface EgressReplicas {
  find(replicaId: string): Pick<ReplicaHost, 'current' | 'startOrder'> | undefined;
  listRunners(): readonly Pick<ReplicaHost, 'current'>[];
  /** Returns a function that ends the calls of the listener. */
  subscribe(listener: ReplicaListener): () => void;
}

export interface ReplicaEgressOptions {
  /** The network proxy of the node. Absent: services have no virtual addresses here. */
  readonly network?: Pick<NodeNetworkAccess, 'findServices' | 'findServiceAddresses'> | undefined;
  readonly runtime: Pick<ContainerRuntime, 'limitEgress'>;
  readonly replicas: () => EgressReplicas;
  readonly clock: Clock;
  readonly log: Log;
}

/** A running container with services among its destinations. */
interface LimitedContainer {
  readonly replicaId: string;
  readonly containerId: ContainerId;
  readonly egress: Egress;
  readonly patterns: readonly string[];
  readonly usesNodeDns: boolean;
  /** Rules in force, as JSON; undefined: not known. */
  applied: string | undefined;
  /**
   * Message of the latest failure, and how many calls in a row have failed with it; absent after a
   * success.
   */
  failure: { readonly message: string; readonly count: number } | undefined;
}

/**
 * Keeps the services among the destinations of containers up to date: asks the network proxy for
 * their addresses before a start, and every second while containers with such destinations run.
 */
export class ReplicaEgress {
  /** By replica id. */
  private readonly limited = new Map<string, LimitedContainer>();
  /** Set while a turn is planned or under way. */
  private timer: Timer | undefined;
  private isOpen = false;
  private unsubscribe: () => void = () => undefined;
  /** Last known address: while the DNS server restarts, containers keep access to it. */
  private dnsServer: string | undefined;

  constructor(private readonly options: ReplicaEgressOptions) {}

  /**
   * Returns the addresses of the services among the destinations of a replica, for its start. Asks
   * nothing for a replica without services. Patterns without an answer are absent: the container
   * reaches those services after a later update.
   */
  async findAddresses(order: Order): Promise<ServiceAddresses> {
    const patterns = listServicePatterns(requireStart(order).spec.network?.egress);
    if (patterns.length === 0) return new Map();
    const { network, log } = this.options;
    const { replicaId } = order;
    if (network === undefined) {
      log.info('services not reachable: this node has no network proxy', { replicaId, patterns });
      return new Map();
    }
    const addresses = await this.ask(network, patterns);
    const unknown = patterns.filter((pattern) => !addresses.has(pattern));
    if (unknown.length > 0)
      log.info('services not reachable yet: the network proxy has not answered', {
        ...{ replicaId, patterns: unknown },
      });
    return addresses;
  }

  /**
   * Takes the rules of a start as the rules in force, so that the first update does not apply them
   * again.
   * @param dnsServer - Address of the DNS server of the node at the start.
   */
  noteStarted(
    order: Order,
    containerId: ContainerId,
    rules: readonly EgressRule[],
    dnsServer: string | undefined,
  ): void {
    this.dnsServer = dnsServer ?? this.dnsServer;
    const limited = this.put(order, containerId);
    if (limited !== undefined) limited.applied ??= JSON.stringify(rules);
  }

  /** Begins to follow the services of the running containers and of those that start later. */
  start(): void {
    if (this.options.network === undefined) return;
    this.isOpen = true;
    const replicas = this.options.replicas();
    this.unsubscribe = replicas.subscribe({
      onChanged: (replicaId) => this.track(replicaId),
      onRefused: () => undefined,
      onForgotten: ({ replicaId }) => this.track(replicaId),
    });
    for (const { current } of replicas.listRunners()) this.track(current.replicaId);
    this.plan();
  }

  /** Ends the updates. The rules stay in force. */
  close(): void {
    this.isOpen = false;
    this.unsubscribe();
    this.timer?.cancel();
  }

  /** Adds or removes the container of a replica. */
  private track(replicaId: string): void {
    const runner = this.options.replicas().find(replicaId);
    const activity = runner?.current.activity;
    const order = runner?.startOrder;
    if (order === undefined || (activity?.kind !== 'running' && activity?.kind !== 'leaving'))
      this.limited.delete(replicaId);
    else this.put(order, activity.containerId);
  }

  /** Returns the entry of a container; undefined without services among the destinations. */
  private put(order: Order, containerId: ContainerId): LimitedContainer | undefined {
    const { replicaId } = order;
    const known = this.limited.get(replicaId);
    if (known?.containerId === containerId) return known;
    this.limited.delete(replicaId);
    const { spec } = requireStart(order);
    const egress = spec.network?.egress;
    const patterns = listServicePatterns(egress);
    if (egress === undefined || patterns.length === 0) return undefined;
    const limited: LimitedContainer = {
      ...{ replicaId, containerId, egress, patterns },
      usesNodeDns: usesNodeDnsServer(spec),
      ...{ applied: undefined, failure: undefined },
    };
    this.limited.set(replicaId, limited);
    this.plan();
    return limited;
  }

  /** Schedules the next update, unless an update is scheduled or no container has services. */
  private plan(): void {
    if (!this.isOpen || this.timer !== undefined || this.limited.size === 0) return;
    this.timer = this.options.clock.setTimer(INTERVAL_MS, () => {
      void this.update().finally(() => {
        this.timer = undefined;
        this.plan();
      });
    });
  }

  private async update(): Promise<void> {
    const { network } = this.options;
    const queue = [...this.limited.values()];
    const patterns = new Set(queue.flatMap((limited) => limited.patterns));
    if (network === undefined || patterns.size === 0) return;
    const addresses = await this.ask(network, [...patterns]);
    if (addresses.size === 0) return;
    const access = await network.findServices(NO_NAMESPACE);
    this.dnsServer = access?.dns?.server ?? this.dnsServer;
    const isDnsKnown = access !== undefined || this.dnsServer !== undefined;
    await Promise.all(
      Array.from({ length: CONCURRENCY }, async () => {
        for (let next = queue.shift(); next !== undefined; next = queue.shift())
          if (isDnsKnown || !next.usesNodeDns) await this.apply(next, addresses);
      }),
    );
  }

  /** Replaces the rules of a container if they have changed and are known. Never rejects. */
  private async apply(limited: LimitedContainer, addresses: ServiceAddresses): Promise<void> {
    const { replicaId, containerId, egress, patterns, usesNodeDns } = limited;
    const isKnown = patterns.every((pattern) => addresses.has(pattern));
    if (!isKnown || !this.isCurrent(limited)) return;
    try {
      const rules = toEgressRules(egress, addresses, usesNodeDns ? this.dnsServer : undefined);
      const wanted = JSON.stringify(rules);
      if (wanted === limited.applied) return;
      limited.applied = undefined; // a failed call may have replaced the rules
      await this.options.runtime.limitEgress(containerId, rules);
      limited.applied = wanted;
      limited.failure = undefined;
      const fields = { replicaId, containerId, rules: rules.length };
      this.options.log.info('egress limits of the replica replaced', fields);
    } catch (reason) {
      if (this.isCurrent(limited)) this.noteFailure(limited, reason);
    }
  }

  /**
   * Logs a failure once for each cause. A call for an ending container fails as well, so a failure of
   * the kinds that an end causes is logged only when it repeats.
   */
  private noteFailure(limited: LimitedContainer, reason: unknown): void {
    const { replicaId, containerId, failure } = limited;
    const message = errorMessageOf(reason);
    const count = failure?.message === message ? failure.count + 1 : 1;
    limited.failure = { message, count };
    const mayHaveEnded = ['notFound', 'precondition'].includes(errorKindOf(reason));
    if (count !== (mayHaveEnded ? 2 : 1)) return;
    const fields = { replicaId, containerId, ...errorFields(reason) };
    this.options.log.warn('egress limits of the replica not up to date', fields);
  }

  /** True while the container runs and the updates go on. */
  private isCurrent(limited: LimitedContainer): boolean {
    return this.isOpen && this.limited.get(limited.replicaId) === limited;
  }

  /** Asks for the addresses of each pattern. The result lacks the patterns without an answer. */
  private async ask(
    network: Pick<NodeNetworkAccess, 'findServiceAddresses'>,
    patterns: readonly string[],
  ): Promise<ServiceAddresses> {
    const answers = await Promise.all(
      patterns.map(async (pattern) => {
        const addresses = await network.findServiceAddresses([pattern]);
        return addresses === undefined ? [] : [[pattern, addresses] as const];
      }),
    );
    return new Map(answers.flat());
  }
}
