import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { Transport } from '@connectrpc/connect';
import {
  Condition_Type as ConditionType,
  NodeStatus_Phase as Phase,
  WatchNodesResponse_Kind as WatchKind,
  createCoordinatorClient,
  type Node,
  type WatchNodesResponse,
} from '@cloudless/api';
import { errorFields, type Clock, type Log, type Timer } from '@cloudless/base';
import type { NodeLiveStatus } from '@cloudless/cluster-state';
import type { LivenessView } from '../ports.js';
import { createForwardingHeaders } from './forwarding-headers.js';
import { ChangeSignal, type KnownLeader, type LeaderDirectory } from './leader-directory.js';

/** What a {@link LivenessMirror} needs. */
export interface LivenessMirrorDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly leaders: LeaderDirectory;
  /** Id of this coordinator. */
  readonly coordinatorId: string;
  /** As in `RoleRouterDeps`. */
  readonly connect: (leader: KnownLeader, signal: AbortSignal) => Promise<Transport>;
}

/**
 * Time for which the copy counts as current without the leader: a change of the leader,
 * milliseconds.
 */
export const CURRENT_FOR_MS = 5_000;
/** Delay before the next attempt to reach the leader, milliseconds. */
const RETRY_MS = 200;
/** Longest silence of the leader, which sends a bookmark every 15 s, milliseconds. */
const MAX_SILENCE_MS = 20_000;

/**
 * The live status of nodes as the leader knows it: a copy that follows a watch of the leader. While
 * the leader is not reached, the last known status stays, and says so; no node then counts as alive.
 */
export class LivenessMirror implements LivenessView {
  private readonly statuses = new Map<string, NodeLiveStatus>();
  private readonly listeners = new Set<(nodeId: string) => void>();
  private readonly usageListeners = new Set<(nodeId: string) => void>();
  private readonly stopping = new AbortController();
  private readonly changes = new ChangeSignal();
  private readonly unsubscribe: () => void;
  private watch = new AbortController();
  private isSynced = false;
  private isCurrent = false;
  private expiry: Timer | undefined;

  constructor(private readonly deps: LivenessMirrorDeps) {
    this.unsubscribe = deps.leaders.onChange(() => {
      this.watch.abort();
      this.changes.notify();
    });
    void this.follow();
  }

  /** True while the copy is current: the leader sends changes, or did a moment ago. */
  get isFresh(): boolean {
    return this.isCurrent;
  }

  close(): void {
    this.unsubscribe();
    this.expiry?.cancel();
    this.stopping.abort();
    this.watch.abort();
    this.changes.notify();
  }

  isAlive(nodeId: string): boolean {
    return this.isCurrent && this.statuses.get(nodeId)?.alive === true;
  }

  status(nodeId: string): NodeLiveStatus {
    const known = this.statuses.get(nodeId) ?? UNKNOWN_STATUS;
    if (this.isCurrent) return known;
    return { ...known, alive: false, reason: describeOld(known) };
  }

  subscribe(listener: (nodeId: string) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  onUsage(listener: (nodeId: string) => void): () => void {
    this.usageListeners.add(listener);
    return () => this.usageListeners.delete(listener);
  }

  private async follow(): Promise<void> {
    const { clock, leaders, coordinatorId, log } = this.deps;
    const { signal } = this.stopping;
    while (!signal.aborted) {
      const leader = leaders.leader();
      this.watch = new AbortController();
      try {
        if (leader !== undefined && leader.address !== '' && leader.coordinatorId !== coordinatorId)
          await this.copyFrom(leader, this.watch.signal);
      } catch (reason) {
        if (!signal.aborted)
          log.debug('copy of the status of nodes interrupted', errorFields(reason));
      } finally {
        this.watch.abort();
        this.setSynced(false);
      }
      await this.changes.wait(clock, RETRY_MS, signal);
    }
  }

  private async copyFrom(leader: KnownLeader, signal: AbortSignal): Promise<void> {
    const { clock, coordinatorId } = this.deps;
    const transport = await this.deps.connect(leader, signal);
    const headers = createForwardingHeaders(new Headers(), { forwardedBy: coordinatorId });
    const items = createCoordinatorClient(transport).watchNodes(
      { includeUsage: true },
      { signal, headers },
    );
    const seen = new Set<string>();
    let timer: Timer | undefined;
    try {
      for await (const item of items) {
        timer?.cancel();
        timer = clock.setTimer(MAX_SILENCE_MS, () => this.watch.abort());
        this.apply(item, seen);
      }
    } finally {
      timer?.cancel();
    }
  }

  /** @param seen - Ids of the nodes that the watch has sent. */
  private apply({ kind, node }: WatchNodesResponse, seen: Set<string>): void {
    const id = node?.id ?? '';
    if (kind === WatchKind.PUT && node !== undefined) {
      const before = this.statuses.get(id);
      const after = toLiveStatus(node);
      seen.add(id);
      this.statuses.set(id, after);
      if (before === undefined || isOtherStatus(before, after)) this.notify(this.listeners, id);
      if (after.usage !== undefined) this.notify(this.usageListeners, id);
    } else if (kind === WatchKind.DELETED) {
      this.statuses.delete(id);
      this.notify(this.listeners, id);
    } else if (kind === WatchKind.SYNCED) {
      for (const known of [...this.statuses.keys()])
        if (!seen.has(known)) this.statuses.delete(known);
      this.setSynced(true);
    }
  }

  private setSynced(isSynced: boolean): void {
    if (this.isSynced === isSynced) return;
    this.isSynced = isSynced;
    this.expiry?.cancel();
    if (isSynced) this.setCurrent(true);
    else if (!this.stopping.signal.aborted)
      this.expiry = this.deps.clock.setTimer(CURRENT_FOR_MS, () => this.setCurrent(false));
  }

  private setCurrent(isCurrent: boolean): void {
    if (this.isCurrent === isCurrent) return;
    this.isCurrent = isCurrent;
    for (const id of [...this.statuses.keys()]) this.notify(this.listeners, id);
  }

  private notify(listeners: ReadonlySet<(nodeId: string) => void>, nodeId: string): void {
    for (const listener of listeners) listener(nodeId);
  }
}

const UNKNOWN_STATUS: NodeLiveStatus = {
  phase: Phase.UNKNOWN,
  alive: false,
  reason: 'the leader has not sent the status of this node yet',
  memoryPressure: false,
  diskPressure: false,
  diskFull: false,
  diskFullReason: '',
  networkUnavailable: false,
  containersUnavailable: false,
  processesProblem: '',
  networkProxyProblem: '',
  agentSlow: false,
  agentSlowReason: '',
  quarantined: false,
  reliability: 0,
};

function describeOld({ phase, reason }: NodeLiveStatus): string {
  const before = phase === Phase.UNKNOWN ? '' : ', last known status';
  const was = phase === Phase.UNKNOWN || reason === '' ? '' : `: ${reason}`;
  return `this coordinator does not reach the leader${before}${was}`;
}

function toLiveStatus({ status }: Node): NodeLiveStatus {
  const find = (type: ConditionType) =>
    status?.conditions.find((condition) => condition.type === type);
  const has = (type: ConditionType): boolean => find(type)?.status === true;
  const findProblem = (type: ConditionType) => (has(type) ? (find(type)?.reason ?? '') : '');
  const phase = status?.phase ?? Phase.UNKNOWN;
  const agentSlow = has(ConditionType.AGENT_SLOW);
  const diskFull = has(ConditionType.DISK_FULL);
  return {
    phase,
    alive: phase === Phase.READY && !agentSlow,
    reason: status?.reason ?? '',
    memoryPressure: has(ConditionType.MEMORY_PRESSURE),
    diskPressure: has(ConditionType.DISK_PRESSURE),
    diskFull,
    diskFullReason: findProblem(ConditionType.DISK_FULL),
    networkUnavailable: has(ConditionType.NETWORK_UNAVAILABLE),
    containersUnavailable: has(ConditionType.CONTAINER_RUNTIME_UNAVAILABLE),
    processesProblem: findProblem(ConditionType.PROCESS_RUNTIME_UNAVAILABLE),
    networkProxyProblem: findProblem(ConditionType.NETWORK_PROXY_DEGRADED),
    agentSlow,
    agentSlowReason: agentSlow ? (find(ConditionType.AGENT_SLOW)?.reason ?? '') : '',
    quarantined: has(ConditionType.QUARANTINED),
    reliability: status?.reliability ?? 0,
    ...(status?.usage === undefined ? {} : { usage: status.usage }),
    ...(status?.connectedSince === undefined
      ? {}
      : { connectedSinceMs: timestampMs(status.connectedSince) }),
    ...(status?.lastSeen === undefined ? {} : { lastSeenMs: timestampMs(status.lastSeen) }),
  };
}

/** Returns true unless two statuses differ only in usage, reliability and times. */
function isOtherStatus(a: NodeLiveStatus, b: NodeLiveStatus): boolean {
  return COMPARED.some((name) => a[name] !== b[name]);
}

const COMPARED = [
  'phase',
  'alive',
  'reason',
  'memoryPressure',
  'diskPressure',
  'diskFull',
  'networkUnavailable',
  'containersUnavailable',
  'processesProblem',
  'networkProxyProblem',
  'agentSlow',
  'quarantined',
] as const;
