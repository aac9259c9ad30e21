import type { AgentMessage } from '@cloudless/api';
import type { Clock } from '@cloudless/base';
import type { KnownLeader } from './leader-directory.js';

/**
 * Time for which a coordinator that follows holds a session, milliseconds: longer than an election
 * takes after a crash of the leader. A leader that still has its lease then is alive.
 */
export const SESSION_HOLD_MS = 3_000;
/**
 * Time between two sessions that go on after the hold, milliseconds: about the admission of one agent.
 * Thousands of sessions at once would keep the new leader from the renewal of its lease.
 */
const RELEASE_INTERVAL_MS = 3;

export interface HeldSessionsDeps {
  readonly clock: Clock;
  /** Resolves at the next change of the leader or of the role, after a time, or at the abort. */
  readonly waitForChange: (timeoutMs: number, signal: AbortSignal) => Promise<void>;
  /** Resolves after a time, or at the abort. */
  readonly sleep: (delayMs: number, signal: AbortSignal) => Promise<void>;
  /** True while this coordinator leads. */
  readonly isLeading: () => boolean;
  /** The leader to name to an agent; undefined when this coordinator knows none. */
  readonly namedLeader: () => KnownLeader | undefined;
  /** True when the view is so old that another coordinator may know more. */
  readonly isCutOff: () => boolean;
}

/**
 * The sessions that agents open at a coordinator that follows while no coordinator leads. When a
 * leader is lost, thousands of agents dial the others at once. Each agent that is refused dials again,
 * which costs more than everything else in a change of the leader, so the coordinator lets them wait
 * until it leads itself or can name the next leader.
 */
export class HeldSessions {
  /** Monotonic time at which the next session may go on, milliseconds. */
  private nextReleaseMs = 0;

  constructor(private readonly deps: HeldSessionsDeps) {}

  /**
   * Waits until this coordinator leads, knows a leader that the agent may reach, or gives up.
   * @param unreachableEpoch - As `unreachable_epoch` of the Hello.
   */
  async hold(unreachableEpoch: bigint, signal: AbortSignal): Promise<void> {
    const { clock, waitForChange, sleep } = this.deps;
    const giveUpAtMs = clock.now() + SESSION_HOLD_MS;
    while (this.mustWait(unreachableEpoch) && !signal.aborted) {
      const leftMs = giveUpAtMs - clock.now();
      if (leftMs <= 0) return;
      await waitForChange(leftMs, signal);
      if (!this.mustWait(unreachableEpoch)) await sleep(this.takeReleaseDelay(), signal);
    }
  }

  private mustWait(unreachableEpoch: bigint): boolean {
    const { isLeading, namedLeader, isCutOff } = this.deps;
    if (isLeading() || isCutOff()) return false;
    const leader = namedLeader();
    return leader === undefined || leader.epoch <= unreachableEpoch;
  }

  private takeReleaseDelay(): number {
    const now = this.deps.clock.now();
    const atMs = Math.max(now, this.nextReleaseMs);
    this.nextReleaseMs = atMs + RELEASE_INTERVAL_MS;
    return atMs - now;
  }
}

/** Reads `unreachable_epoch` of the first message of a session; 0 when that message has none. */
export function readUnreachableEpoch(first: IteratorResult<AgentMessage>): bigint {
  const message = first.done === true ? undefined : first.value.message;
  return message?.case === 'hello' ? message.value.unreachableEpoch : 0n;
}

/** Returns the messages of a session whose first one was already read. */
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
