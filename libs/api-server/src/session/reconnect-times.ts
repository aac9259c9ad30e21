import { create, type Message } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  CoordinatorMessageSchema,
  type CoordinatorMessage,
  type ReconnectTimes,
} from '@cloudless/api';
import type { RecordChange } from '@cloudless/cluster-state';

/**
 * Approximate time to admit one agent on one core of a small machine. The reconnects of all agents
 * are spread over the time that all admissions take.
 */
const ADMISSION_MS = 0.5;
/**
 * Bounds of the longest pause between two dials of an agent: not so short that the agents of a
 * small cluster dial all the time, not so long that a restarted coordinator waits for agents.
 */
const PAUSE_MAX_BOUNDS_MS = { min: 1_000, max: 10_000 } as const;
/**
 * Largest share of the lease by which an agent may delay its first dial: a node whose connection
 * breaks once must not lose its lease.
 */
const SPREAD_LEASE_RATIO = 1 / 3;
/**
 * Time per node over which agents spread their dials after the loss of the leader: as long as the
 * next leader adds to all leases for the return of each node.
 */
const LEADER_LOSS_MS_PER_NODE = 2;
/** Longest spread after the loss of the leader. */
const MAX_LEADER_LOSS_MS = 10_000;

/**
 * Computes how agents delay their dials when all of them lose their sessions at once.
 * @param nodes - Number of registered nodes.
 */
export function computeReconnectTimes(nodes: number, leaseMs: number): Times {
  const allMs = nodes * ADMISSION_MS;
  const { min, max } = PAUSE_MAX_BOUNDS_MS;
  return {
    reconnectSpread: durationFromMs(Math.min(allMs, leaseMs * SPREAD_LEASE_RATIO)),
    reconnectPauseMax: durationFromMs(Math.min(max, Math.max(min, allMs))),
    leaderLossSpread: durationFromMs(Math.min(MAX_LEADER_LOSS_MS, nodes * LEADER_LOSS_MS_PER_NODE)),
  };
}

type Times = Required<Omit<ReconnectTimes, keyof Message>>;

/** Factor by which the number of nodes changes before agents get new times. */
const ANNOUNCED_CHANGE = 1.5;
/** Number of nodes up to which the times hardly matter. */
const FEW_NODES = 100;

/** The times for the number of registered nodes, of which agents learn when it has changed much. */
export class CurrentReconnectTimes {
  /** Number of nodes for which agents have the times. */
  private announcedNodes: number;

  /** @param nodes - Number of registered nodes at the start. */
  constructor(
    private nodes: number,
    private readonly leaseMs: number,
  ) {
    this.announcedNodes = nodes;
  }

  /** The times for a session that begins now. */
  get times(): Times {
    return computeReconnectTimes(this.nodes, this.leaseMs);
  }

  /**
   * Counts the nodes that a commit has added or removed, and sends the new times to the agents when
   * the number has changed much.
   */
  noteChanges(changes: readonly NodeCountChange[], sessions: Iterable<NotifiedSession>): void {
    for (const { kind, before, after } of changes)
      if (kind === 'node') this.nodes += Number(after !== undefined) - Number(before !== undefined);
    const [few, many] = [this.nodes, this.announcedNodes].sort((a, b) => a - b) as [number, number];
    if (many <= FEW_NODES || many < ANNOUNCED_CHANGE * few) return;
    this.announcedNodes = this.nodes;
    const message = create(CoordinatorMessageSchema, {
      message: { case: 'reconnectTimes', value: this.times },
    });
    for (const { outbox } of sessions) outbox.push('reconnectTimes', message);
  }
}

/** The part of a record change that {@link CurrentReconnectTimes} reads. */
interface NodeCountChange extends Pick<RecordChange, 'kind'> {
  readonly before?: unknown;
  readonly after?: unknown;
}

/** A session whose agent gets new times. */
interface NotifiedSession {
  readonly outbox: { push(key: string, message: CoordinatorMessage): void };
}
