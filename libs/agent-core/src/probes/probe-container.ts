import {
  StoppedError,
  errorFields,
  type Clock,
  type Log,
  type Random,
  type StopSignal,
} from '@cloudless/base';
import type { CurrentContainer } from '../replica/replica-state.js';
import { checkContainer, type CheckDeps } from './check-container.js';
import type { ProbeSchedule, ProbeSchedules } from './probe-schedule.js';
import {
  createProbeState,
  reduceProbe,
  formatProbeReason,
  type CheckResult,
  type ProbeState,
  type ProbeVerdict,
} from './probe-state.js';
import { runProbe } from './run-probe.js';

/** Receives the results of the probes of one container. */
export interface ProbeListener {
  /** Called when the startup probe has passed. */
  onStartupPassed(): void;
  /**
   * Called when readiness or its reason changes; also with `false` while the startup probe has not
   * passed.
   */
  onReadiness(ready: boolean, reason: string): void;
  /**
   * Called when the liveness or startup probe has reached its failure threshold. No further calls
   * follow.
   */
  onUnhealthy(reason: string): void;
}

/** A container and its probes. */
export interface ProbedContainer {
  readonly schedules: ProbeSchedules;
  readonly container: CurrentContainer;
  /** Age of the container when its probes begin, milliseconds. */
  readonly upMs: number;
  /**
   * True when the container was ready before a restart of the agent: it stays ready until its
   * readiness probe reaches the failure threshold.
   */
  readonly wasReady: boolean;
}

export interface ProbeDeps extends CheckDeps {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/**
 * Random delay of the first startup or readiness check of a container that is not ready, at most.
 * Short, because the replica should become ready soon. The first liveness check, and the first
 * readiness check of a ready container, are spread over the whole period.
 */
const FIRST_CHECK_SPREAD_MS = 100;

/**
 * Probes a container until `signal` is aborted: the caller aborts when the container exits or is
 * unhealthy. Never rejects. The agent does not store that a startup probe has passed. A container
 * that was not ready before a restart of the agent therefore begins with its startup probe again.
 */
export async function probeContainer(
  probed: ProbedContainer,
  listener: ProbeListener,
  deps: ProbeDeps,
  signal: StopSignal,
): Promise<void> {
  const { schedules, wasReady } = probed;
  try {
    if (schedules.startup !== undefined && !wasReady) {
      await awaitStartup(schedules.startup, probed, listener, deps, signal);
      listener.onStartupPassed();
    }
    const { readiness, liveness } = schedules;
    await Promise.all([
      readiness === undefined
        ? undefined
        : probeReadiness(readiness, probed, listener, deps, signal),
      liveness === undefined ? undefined : probeLiveness(liveness, probed, listener, deps, signal),
    ]);
  } catch (reason) {
    if (!(reason instanceof StoppedError)) deps.log.error('probes ended', errorFields(reason));
  }
}

/**
 * Runs the startup probe until the probe passes.
 * @throws StoppedError when `signal` is aborted.
 */
async function awaitStartup(
  schedule: ProbeSchedule,
  probed: ProbedContainer,
  listener: ProbeListener,
  deps: ProbeDeps,
  signal: StopSignal,
): Promise<void> {
  const done = new AbortController();
  const stop = (): void => done.abort();
  signal.addEventListener('abort', stop, { once: true });
  try {
    await runReportedProbe(
      'startup',
      schedule,
      { probed, deps, spreadMs: FIRST_CHECK_SPREAD_MS, verdict: 'undecided' },
      done.signal,
      (state, text) => {
        if (state.verdict === 'passing') done.abort();
        else if (state.verdict === 'failing') listener.onUnhealthy(text);
        else listener.onReadiness(false, text);
      },
    );
  } catch (reason) {
    if (signal.aborted || !done.signal.aborted) throw reason;
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

function probeReadiness(
  schedule: ProbeSchedule,
  probed: ProbedContainer,
  listener: ProbeListener,
  deps: ProbeDeps,
  signal: StopSignal,
): Promise<never> {
  const spreadMs = probed.wasReady ? schedule.periodMs : FIRST_CHECK_SPREAD_MS;
  const verdict = probed.wasReady ? 'passing' : 'undecided';
  return runReportedProbe(
    'readiness',
    schedule,
    { probed, deps, spreadMs, verdict },
    signal,
    (state, text) => {
      if (state.verdict === 'passing') listener.onReadiness(true, '');
      else listener.onReadiness(false, text);
    },
  );
}

function probeLiveness(
  schedule: ProbeSchedule,
  probed: ProbedContainer,
  listener: ProbeListener,
  deps: ProbeDeps,
  signal: StopSignal,
): Promise<never> {
  const context = { probed, deps, spreadMs: schedule.periodMs, verdict: 'undecided' } as const;
  return runReportedProbe('liveness', schedule, context, signal, (state, text) => {
    if (state.verdict === 'failing') listener.onUnhealthy(text);
  });
}

/**
 * Runs one probe until `signal` is aborted. Calls `onChange` when its verdict or reason changes.
 * Details that differ with each check do not count as a change.
 */
function runReportedProbe(
  name: keyof ProbeSchedules,
  schedule: ProbeSchedule,
  context: {
    readonly probed: ProbedContainer;
    readonly deps: ProbeDeps;
    /** The first check is delayed by a random time up to this, and up to the period. */
    readonly spreadMs: number;
    /** Initial verdict. */
    readonly verdict: ProbeVerdict;
  },
  signal: StopSignal,
  onChange: (state: ProbeState, text: string) => void,
): Promise<never> {
  const { probed, deps, spreadMs } = context;
  let state = createProbeState(context.verdict);
  let reportedKey = '';
  let hasPassed = context.verdict === 'passing';
  let lastUnknownReason = '';
  const onResult = (result: CheckResult): 'atPeriod' | 'soon' => {
    if (result.kind === 'unknown' && result.reason !== lastUnknownReason) {
      deps.log.warn('probe not carried out', {
        probe: name,
        containerId: probed.container.id,
        reason: result.reason,
      });
    }
    lastUnknownReason = result.kind === 'unknown' ? result.reason : '';
    state = reduceProbe(state, result, schedule);
    hasPassed ||= state.verdict === 'passing';
    const key =
      state.verdict === 'passing'
        ? 'passing'
        : `${state.verdict} ${formatProbeReason(name, state, schedule, { withDetail: false })}`;
    if (key !== reportedKey) onChange(state, formatProbeReason(name, state, schedule));
    reportedKey = key;
    // Startup and liveness checks keep their period: faster checks would reach the failure
    // threshold earlier than the spec says.
    return name === 'readiness' && !hasPassed && result.kind !== 'passed' ? 'soon' : 'atPeriod';
  };
  const waitMs = Math.max(0, schedule.initialDelayMs - probed.upMs);
  const firstDelayMs =
    waitMs + Math.floor(deps.random.next() * Math.min(spreadMs, schedule.periodMs));
  const check = (checkSignal: AbortSignal): Promise<CheckResult> =>
    checkContainer(schedule, probed.container, deps, checkSignal);
  return runProbe({ schedule, firstDelayMs, check, onResult, clock: deps.clock }, signal);
}
