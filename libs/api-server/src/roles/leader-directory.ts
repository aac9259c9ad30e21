import type { Clock, StopSignal } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';

/** The leader as this coordinator knows it. */
export type KnownLeader = NonNullable<ReturnType<ClusterState['leader']>>;

/** Tells who leads, and when that changes. */
export interface LeaderDirectory {
  /** The leader that this coordinator knows, also itself; undefined when it knows none. */
  leader(): KnownLeader | undefined;
  /**
   * Calls the listener after each change of the leader.
   * @returns A function that ends the subscription.
   */
  onChange(listener: () => void): () => void;
}

/** Returns the directory of a state. */
export function createLeaderDirectory(
  state: Pick<ClusterState, 'leader' | 'subscribe' | 'onRoleChange'>,
): LeaderDirectory {
  return {
    leader: () => state.leader(),
    onChange: (listener) => {
      const unsubscribes = [
        state.onRoleChange(listener),
        state.subscribe((changes) => {
          if (changes.some(({ kind }) => kind === 'leader' || kind === 'leaderlease')) listener();
        }),
      ];
      return () => unsubscribes.forEach((unsubscribe) => unsubscribe());
    },
  };
}

/** Listeners that each run at most once, at the next change. */
export class ChangeSignal {
  private readonly listeners = new Set<() => void>();

  /** Ends all waits. */
  notify(): void {
    for (const listener of [...this.listeners]) listener();
  }

  /** Resolves at the next {@link notify}, after `timeoutMs`, or when `signal` is aborted. */
  wait(clock: Clock, timeoutMs: number, signal: StopSignal): Promise<void> {
    return new Promise((resolve) => {
      const finish = (): void => {
        timer.cancel();
        this.listeners.delete(finish);
        signal.removeEventListener('abort', finish);
        resolve();
      };
      const timer = clock.setTimer(Math.max(0, timeoutMs), finish);
      this.listeners.add(finish);
      signal.addEventListener('abort', finish);
      if (signal.aborted) finish();
    });
  }
}
