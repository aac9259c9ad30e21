import type { Clock, Log, Timer } from '@cloudless/base';
import { HEALTHY, type ContainerRuntime } from '@cloudless/runtime';
import { SILENT_AFTER_MS } from '@cloudless/runtime-process';

/** Interval of the checks, as the health of the supervisor counts whole seconds. */
const CHECK_INTERVAL_MS = 1_000;
/**
 * Longest time for which a stop waits for a supervisor that has begun to hang, milliseconds: two
 * calls one after the other, each of which fails after 10 s. A stop of workloads also waits for
 * their grace periods.
 */
const LIMIT_MS = 20_000;

export interface StopWatchOptions {
  readonly runtime: Pick<ContainerRuntime, 'health'>;
  /** True when the agent stops its workloads. */
  readonly stopWorkloads: boolean;
  readonly clock: Pick<Clock, 'setTimer'>;
  readonly log: Pick<Log, 'warn'>;
}

/**
 * Watches the supervisor of processes while an agent stops. Logs once, as soon as the supervisor
 * does not answer, that the stop waits, for how long at most, and what the operator can do. Logs
 * nothing when the supervisor has been silent for {@link SILENT_AFTER_MS}: such a stop does not wait
 * for the supervisor.
 * @returns A function that ends the watch.
 */
export function watchStop({ runtime, stopWorkloads, clock, log }: StopWatchOptions): () => void {
  let timer: Timer | undefined;
  const check = (): void => {
    const { processesSilentMs, supervisorPid } = runtime.health?.() ?? HEALTHY;
    if (processesSilentMs === 0) {
      timer = clock.setTimer(CHECK_INTERVAL_MS, check);
      return;
    }
    log.warn('the stop waits for the supervisor of the processes, which does not answer', {
      supervisorPid,
      atMost: `${LIMIT_MS / 1_000} s${stopWorkloads ? ' and the longest grace period' : ''}`,
      remedy:
        supervisorPid === undefined
          ? "wait, or read supervisor.log in the directory runtime of the agent's data directory"
          : `wait, or run kill -9 ${supervisorPid} on the machine: another supervisor is started, which adopts the processes`,
    });
  };
  if ((runtime.health?.() ?? HEALTHY).processesSilentMs < SILENT_AFTER_MS) check();
  return () => timer?.cancel();
}
