import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { EndpointHealth_Status as Status, type NetworkEndpointEntry } from '@cloudless/api';
import type { Log, Random, Timer } from '@cloudless/base';
import { isReportable, nextHealth, UNCHECKED_HEALTH, type CheckedHealth } from '@cloudless/network';
import { toServiceKey, type NetworkChanges, type NetworkView } from '../model/network-model.js';
import type { HealthReport } from '../ports.js';
import { checkAddress, type AddressCheckDeps } from './check-address.js';
import { toCheckSettings, type CheckSettings } from './check-settings.js';

/** Checks at a time. Further ones wait, the longest waiting first. */
const MAX_CHECKS = 256;
/** Part of the interval by which two checks are nearer or farther, so that nodes do not align. */
const JITTER = 0.1;
/** Longest delay of the first check of an endpoint, milliseconds. */
const FIRST_CHECK_MS = 1_000;
/** Time after a report in which the coordinator has told its effect, milliseconds. */
const REPORT_AGAIN_MS = 30_000;

export interface EndpointChecksOptions extends AddressCheckDeps {
  readonly nodeId: string;
  readonly view: NetworkView;
  readonly random: Random;
  readonly log: Log;
  readonly report: (report: HealthReport) => void;
}

interface CheckedEndpoint {
  entry: NetworkEndpointEntry;
  settings: CheckSettings;
  readonly ip: string;
  readonly port: number;
  health: CheckedHealth;
  /** Time of the last report; undefined: none yet. */
  reportedMs: number | undefined;
  /** The next check; absent while a check is due or under way. */
  timer: Timer | undefined;
  readonly stop: Set<AbortController>;
}

/** Checks the endpoints outside the cluster that the coordinator has assigned to this node. */
export class EndpointChecks {
  private readonly checked = new Map<string, CheckedEndpoint>();
  /** Endpoints whose check is due. */
  private readonly due = new Set<CheckedEndpoint>();
  private running = 0;
  private isStopped = false;

  constructor(private readonly options: EndpointChecksOptions) {}

  /** Number of endpoints that this node checks. */
  get size(): number {
    return this.checked.size;
  }

  /** Follows a change. The cost is proportional to the endpoints of the changed services. */
  apply({ services, endpointsOf, removedEndpoints }: NetworkChanges): void {
    const { view, nodeId } = this.options;
    if (this.isStopped) return;
    for (const id of removedEndpoints) this.forget(id);
    for (const key of new Set([...services, ...endpointsOf])) {
      const settings = toCheckSettings(view.services.get(key));
      if (settings === undefined && this.checked.size === 0) continue;
      for (const entry of view.endpointsOf(key).values()) {
        const isOurs = entry.checkedByNodeId === nodeId && entry.nodeId === '';
        const [port] = entry.ports;
        if (settings === undefined || !isOurs || port === undefined) this.forget(entry.id);
        else this.put(entry, settings, port);
      }
    }
  }

  /** Ends all checks. */
  stop(): void {
    this.isStopped = true;
    for (const id of [...this.checked.keys()]) this.forget(id);
  }

  private put(
    entry: NetworkEndpointEntry,
    settings: CheckSettings,
    { ip, port }: { readonly ip: string; readonly port: number },
  ): void {
    const known = this.checked.get(entry.id);
    if (known !== undefined && known.ip === ip && known.port === port) {
      const isSooner = settings.intervalMs < known.settings.intervalMs;
      Object.assign(known, { entry, settings });
      if (isSooner && known.timer !== undefined) this.schedule(known, this.jitter(settings));
      return;
    }
    this.forget(entry.id);
    const endpoint: CheckedEndpoint = {
      ...{ entry, settings, ip, port, health: UNCHECKED_HEALTH },
      ...{ reportedMs: undefined, timer: undefined, stop: new Set() },
    };
    this.checked.set(entry.id, endpoint);
    const spreadMs = Math.min(FIRST_CHECK_MS, settings.intervalMs);
    this.schedule(endpoint, spreadMs * this.options.random.next());
  }

  private forget(id: string): void {
    const endpoint = this.checked.get(id);
    if (endpoint === undefined) return;
    this.checked.delete(id);
    this.due.delete(endpoint);
    endpoint.timer?.cancel();
    for (const stop of endpoint.stop) stop.abort();
  }

  private schedule(endpoint: CheckedEndpoint, delayMs: number): void {
    endpoint.timer?.cancel();
    endpoint.timer = this.options.clock.setTimer(delayMs, () => {
      endpoint.timer = undefined;
      this.due.add(endpoint);
      this.startDue();
    });
  }

  private jitter({ intervalMs }: CheckSettings): number {
    return intervalMs * (1 - JITTER + 2 * JITTER * this.options.random.next());
  }

  private startDue(): void {
    for (const endpoint of this.due) {
      if (this.running >= MAX_CHECKS) return;
      this.due.delete(endpoint);
      void this.check(endpoint);
    }
  }

  private async check(endpoint: CheckedEndpoint): Promise<void> {
    const { clock, log } = this.options;
    const startMs = clock.now();
    const stop = new AbortController();
    this.running += 1;
    endpoint.stop.add(stop);
    const result = await checkAddress(endpoint, this.options, stop);
    endpoint.stop.delete(stop);
    this.running -= 1;
    if (this.checked.get(endpoint.entry.id) === endpoint) {
      const before = endpoint.health;
      endpoint.health = nextHealth(before, result, endpoint.settings.thresholds);
      const { status, reason } = endpoint.health;
      if (before.status !== status)
        log.info('the health of an endpoint outside the cluster has changed', {
          ...{ endpoint: endpoint.entry.id, from: before.status, to: status, reason },
        });
      if (this.mustReport(endpoint, before)) this.report(endpoint);
      const passedMs = clock.now() - startMs;
      this.schedule(endpoint, Math.max(0, this.jitter(endpoint.settings) - passedMs));
    }
    this.startDue();
  }

  /**
   * A report that had no effect, such as one before the endpoint was registered again, is repeated.
   */
  private mustReport(
    { entry, health, reportedMs }: CheckedEndpoint,
    before: CheckedHealth,
  ): boolean {
    if (isReportable(before, health)) return true;
    if (health.status === 'unknown' || entry.ready === (health.status === 'healthy')) return false;
    return this.options.clock.now() - (reportedMs ?? -Infinity) >= REPORT_AGAIN_MS;
  }

  private report(endpoint: CheckedEndpoint): void {
    const { nodeId, clock, report } = this.options;
    const { entry, health } = endpoint;
    const { id, namespace, service } = entry;
    endpoint.reportedMs = clock.now();
    report({
      ...{ namespace, service, nodeId },
      endpointId: id.slice(toServiceKey(namespace, service).length + 1),
      health: {
        status: health.status === 'healthy' ? Status.HEALTHY : Status.UNHEALTHY,
        consecutiveSuccesses: health.consecutiveSuccesses,
        consecutiveFailures: health.consecutiveFailures,
        lastCheck: timestampFromMs(Math.round(clock.wallTime())),
        reason: health.reason,
      },
    });
  }
}
