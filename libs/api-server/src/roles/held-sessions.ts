import type { AgentMessage, Hello } from '@cloudless/api';
import type { Clock, Timer } from '@cloudless/base';
import type { KnownLeader } from './leader-directory.js';

/**
 * Longest time for which a coordinator that follows holds a session, milliseconds. Longer than an
 * election takes after a crash of the leader: a leader that still has its lease then is alive.
 */
const SESSION_HOLD_MS = 3_000;
/**
 * The same while the view of the coordinator is old, milliseconds. Short compared with the lease of
 * a node, because another coordinator may know the leader.
 */
const CUT_OFF_HOLD_MS = 1_000;
/**
 * Time between two sessions that leave the hold, milliseconds: about as long as the admission of
 * one agent takes. Thousands of sessions at once would keep a new leader from the renewal of its
 * lease.
 */
const RELEASE_INTERVAL_MS = 3;

type UnreachableLeader = Pick<Hello, 'unreachableEpoch' | 'unreachableAddress'>;

export interface HeldSessionsDeps {
  readonly clock: Clock;
  /** Resolves at the next change of the leader or of the role, after a time, or at the abort. */
  readonly waitForChange: (timeoutMs: number, signal: AbortSignal) => Promise<void>;
  /** Resolves after a time, or at the abort. */
  readonly sleep: (delayMs: number, signal: AbortSignal) => Promise<void>;
  /** True while this coordinator leads. */
  readonly isLeading: () => boolean;
  /** Returns another coordinator that leads; undefined when this one knows none. */
  readonly findOtherLeader: () => KnownLeader | undefined;
  /** True while the view is so old that the leader that it shows may have lost its lease. */
  readonly isCutOff: () => boolean;
}

/**
 * The sessions that agents open at a coordinator that follows while no coordinator leads. When a
 * leader is lost, thousands of agents dial the others at once, and each agent that is refused dials
 * again. These dials cost more than the rest of the change, so the coordinator lets the agents wait
 * until it leads itself or can name the next leader.
 */
export class HeldSessions {
  /** Monotonic time at which the next session may leave the hold, milliseconds. */
  private nextReleaseMs = 0;
  private isClosed = false;

  constructor(private readonly deps: HeldSessionsDeps) {}

  /** Ends the hold of all sessions, and holds no session any more. */
  close(): void {
    this.isClosed = true;
  }

  /**
   * Reads the first message of a session.
   * @returns Undefined when the client has sent nothing for as long as sessions are held.
   */
  async readFirst(
    incoming: AsyncIterator<AgentMessage>,
  ): Promise<IteratorResult<AgentMessage> | undefined> {
    let timer: Timer | undefined;
    const timeout = new Promise<undefined>((resolve) => {
      timer = this.deps.clock.setTimer(SESSION_HOLD_MS, () => resolve(undefined));
    });
    try {
      return await Promise.race([incoming.next(), timeout]);
    } finally {
      timer?.cancel();
    }
  }

  /**
   * Resolves when this coordinator leads or can name a leader that the agent may reach; at the
   * latest after {@link SESSION_HOLD_MS}, and at the abort. Check the role afterwards.
   * @param hello - Says which leader the agent does not reach.
   */
  async hold(hello: UnreachableLeader, signal: AbortSignal): Promise<void> {
    const { clock, waitForChange, sleep } = this.deps;
    const startedAtMs = clock.now();
    for (;;) {
      const holdMs = this.chooseHoldMs(hello);
      const leftMs = startedAtMs + holdMs - clock.now();
      if (leftMs <= 0 || signal.aborted) return;
      await waitForChange(leftMs, signal);
      if (this.chooseHoldMs(hello) === 0 && !signal.aborted)
        await sleep(this.reserveRelease(), signal);
    }
  }

  /** Returns how long a session is held in the present state of this coordinator, milliseconds. */
  private chooseHoldMs({ unreachableEpoch, unreachableAddress }: UnreachableLeader): number {
    const { isLeading, findOtherLeader, isCutOff } = this.deps;
    if (this.isClosed || isLeading()) return 0;
    const leader = findOtherLeader();
    if (leader !== undefined)
      return leader.epoch <= unreachableEpoch && leader.address === unreachableAddress
        ? SESSION_HOLD_MS
        : 0;
    return isCutOff() ? CUT_OFF_HOLD_MS : SESSION_HOLD_MS;
  }

  /**
   * Reserves the next release.
   * @returns The time until that release, milliseconds.
   */
  private reserveRelease(): number {
    const now = this.deps.clock.now();
    const atMs = Math.max(now, this.nextReleaseMs);
    this.nextReleaseMs = atMs + RELEASE_INTERVAL_MS;
    return atMs - now;
  }
}

/** Returns all messages of a session: the first, which the caller has read, then the rest. */
export async function* withFirst(
  first: IteratorResult<AgentMessage>,
  rest: AsyncIterator<AgentMessage>,
): AsyncGenerator<AgentMessage> {
  try {
    for (let next = first; next.done !== true; next = await rest.next()) yield next.value;
  } finally {
    await rest.return?.();
  }
}
