import type { Clock, Log } from '@cloudless/base';
import { NodeStatus_Phase as NodePhase } from '@cloudless/api';
import type { ContainerEvent } from '@cloudless/runtime';
import type { Commit } from '../checks/commit-checkers.js';
import { expectServices, findNetworkDifferences } from '../checks/network-convergence.js';
import { ServiceAddressChecker } from '../checks/service-checkers.js';
import { StoppedEndpointsChecker } from '../checks/stopped-endpoints.js';
import type { SimNode } from '../parts/sim-node.js';
import type { Drift } from '../parts/sim-process.js';
import { SimProxy } from '../parts/sim-proxy.js';
import type { SimRandom } from '../parts/sim-random.js';
import type { ControlPlane } from './control-plane.js';
import type { InjectedBug } from './injected-bug.js';

/** Shortest and longest pause between two faults of proxies, milliseconds. */
const FAULT_PAUSE_MS: readonly [number, number] = [500, 4_000];
/** Shortest and longest time until a dead proxy is started again, milliseconds. */
const RESTART_MS: readonly [number, number] = [50, 1_500];
/** Shortest and longest pause of a proxy, milliseconds. Some exceed the time a stop waits. */
const PAUSE_MS: readonly [number, number] = [200, 4_500];
/** Longest time after all faults for which a proxy may know something else, milliseconds. */
const CONVERGENCE_MS = 5_000;
/** Time between two comparisons, milliseconds. */
const COMPARE_MS = 500;

export interface NetworkPartDeps {
  readonly time: Clock;
  readonly random: SimRandom;
  readonly log: Log;
  readonly coordinators: ControlPlane;
  /** Draws the clock error of a process. */
  readonly drift: () => Drift;
  readonly trace: (source: string, text: string) => void;
  readonly injected: InjectedBug | undefined;
  readonly reportViolation: (text: string) => void;
}

/** The network proxies of all nodes of a world, with their faults and checkers. */
export class NetworkPart {
  private readonly proxies = new Map<string, SimProxy>();
  private readonly ended = new Set<string>();
  private readonly replicaOf = new Map<string, string>();
  private readonly addresses: ServiceAddressChecker;
  private readonly stops: StoppedEndpointsChecker;
  /** Time of the world since which a difference exists. */
  private readonly since = new Map<string, number>();
  private inTurmoil = true;

  constructor(private readonly deps: NetworkPartDeps) {
    const { time, coordinators, reportViolation } = deps;
    const now = (): number => time.now();
    this.addresses = new ServiceAddressChecker(now);
    this.stops = new StoppedEndpointsChecker({
      ...{ now, reportViolation },
      proxies: () => this.proxies.values(),
      leaderAddress: () =>
        coordinators.addresses.find((address) => {
          const process = coordinators.at(address)?.process;
          return process !== undefined && process === coordinators.leaderProcess;
        }),
    });
    this.scheduleFault();
  }

  /** Number of stops that were checked with a proxy that had to know them. */
  get checkedStops(): number {
    return this.stops.checkedStops;
  }

  /** Starts the proxy of a new node. */
  addNode({ id: nodeId, link, options: { zone } }: SimNode): void {
    const { time, random, log, coordinators, injected } = this.deps;
    const proxy = new SimProxy({
      ...{ nodeId, zone, time, link, log },
      drift: this.deps.drift(),
      random: random.fork(),
      addresses: coordinators.addresses,
      coordinator: (address) => coordinators.at(address),
      onApplied: (applied, update) => this.stops.onApplied(applied, update),
      wrapUpdate: injected?.proxyUpdate?.(nodeId),
    });
    this.proxies.set(nodeId, proxy);
    proxy.start();
  }

  /** Ends the proxy of a machine that was restarted or destroyed. */
  onMachineEnd({ id, isDestroyed }: SimNode): void {
    if (isDestroyed) this.ended.add(id);
    this.kill(id);
  }

  onContainerEvent({ status }: ContainerEvent): void {
    this.replicaOf.set(status.containerId, status.labels['cloudless.replica'] ?? '');
  }

  /** Notes that an agent requests the end of a container. */
  onContainerStop(containerId: string): void {
    this.stops.onContainerStop(this.replicaOf.get(containerId) ?? '');
  }

  /** Checks one commit. */
  checkCommit({ changes }: Commit, revision: bigint): void {
    for (const text of this.addresses.check(changes)) this.deps.reportViolation(text);
    this.stops.check(changes, revision);
  }

  /** Ends all faults of proxies. From now on, their data must be right within 5 s. */
  heal(): void {
    this.inTurmoil = false;
    for (const [nodeId, proxy] of this.proxies) {
      proxy.resume();
      if (!this.ended.has(nodeId)) proxy.start();
    }
    this.compareLater();
  }

  /** Returns what proxies know wrongly now. */
  findDifferences(): readonly string[] {
    const { leading } = this.deps.coordinators;
    if (leading === undefined) return [];
    const { nodes, presenter } = leading.controllers;
    const expected = expectServices(leading.state.view(), {
      isLost: (nodeId) => nodes.status(nodeId).phase === NodePhase.LOST,
      getWeight: (workload) => presenter.describeWeights(workload),
    });
    return [...this.proxies].flatMap(([nodeId, proxy]) =>
      this.ended.has(nodeId) ? [] : findNetworkDifferences(proxy, expected),
    );
  }

  private compareLater(): void {
    const { time, coordinators, reportViolation } = this.deps;
    time.setTimer(COMPARE_MS, () => {
      const differences = new Set(this.findDifferences());
      if (coordinators.leading === undefined) this.since.clear();
      for (const text of this.since.keys()) if (!differences.has(text)) this.since.delete(text);
      for (const text of differences) {
        const since = this.since.get(text) ?? time.now();
        this.since.set(text, since);
        if (time.now() - since >= CONVERGENCE_MS)
          reportViolation(`for ${CONVERGENCE_MS / 1_000} s without a fault ${text}`);
      }
      this.compareLater();
    });
  }

  private scheduleFault(): void {
    const { time, random } = this.deps;
    time.setTimer(random.between(...FAULT_PAUSE_MS), () => {
      if (!this.inTurmoil) return;
      const nodeId = random.pick([...this.proxies.keys()]);
      if (nodeId !== undefined) this.injectFault(nodeId);
      this.scheduleFault();
    });
  }

  private injectFault(nodeId: string): void {
    const { time, random, trace } = this.deps;
    const proxy = this.proxies.get(nodeId);
    if (proxy === undefined || proxy.isDead) return;
    if (random.chance(0.6)) return this.kill(nodeId);
    trace('fault', `the proxy of ${nodeId} pauses`);
    proxy.pause();
    time.setTimer(random.between(...PAUSE_MS), () => proxy.resume());
  }

  private kill(nodeId: string): void {
    const { time, random, trace } = this.deps;
    const proxy = this.proxies.get(nodeId);
    if (proxy === undefined || proxy.isDead) return;
    trace('fault', `the proxy of ${nodeId} is dead`);
    proxy.kill();
    time.setTimer(random.between(...RESTART_MS), () => {
      if (!this.ended.has(nodeId)) proxy.start();
    });
  }
}
