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
import type { ProbePlan, ProbePlans } from './probe-plan.js';
import {
  newProbeState,
  reduceProbe,
  textOfProbe,
  type CheckResult,
  type ProbeState,
  type ProbeVerdict,
} from './probe-state.js';
import { runProbe } from './run-probe.js';

/** What the probes of a container say. */
export interface ProbeListener {
  /** The startup probe has passed. */
  startedUp(): void;
  /**
   * The readiness probe passes or not, or does not for another reason; also while the startup probe
   * has not passed.
   */
  readiness(ready: boolean, reason: string): void;
  /** The liveness or startup probe has failed by its threshold: nothing more is told. */
  unhealthy(reason: string): void;
}

/** Which probes of which container. */
export interface ProbedContainer {
  readonly plans: ProbePlans;
  readonly container: CurrentContainer;
  /** How long it has run, milliseconds. */
  readonly upMs: number;
  /** It was ready before an agent's restart: it stays so until a probe fails by its threshold. */
  readonly wasReady: boolean;
}

/** Needs of {@link probeContainer}. */
export interface ProbeDeps extends CheckDeps {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/**
 * First checks of what is not ready are spread over this, those of what runs well over the whole
 * period.
 */
const FIRST_CHECK_SPREAD_MS = 100;

/**
 * Probes a container until `signal` is aborted, which the listener's owner does when the container
 * ends or has failed. Whether the startup probe had passed is not kept over an agent's restart: one
 * that was not ready starts with it again.
 */
export async function probeContainer(
  probed: ProbedContainer,
  listener: ProbeListener,
  deps: ProbeDeps,
  signal: StopSignal,
): Promise<void> {
  const { plans, wasReady } = probed;
  try {
    if (plans.startup !== undefined && !wasReady) {
      await untilStarted(plans.startup, probed, listener, deps, signal);
      listener.startedUp();
    }
    const { readiness, liveness } = plans;
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

/** Resolves once the startup probe has passed. */
async function untilStarted(
  plan: ProbePlan,
  probed: ProbedContainer,
  listener: ProbeListener,
  deps: ProbeDeps,
  signal: StopSignal,
): Promise<void> {
  const done = new AbortController();
  const stop = (): void => done.abort();
  signal.addEventListener('abort', stop, { once: true });
  try {
    await watch(
      'startup',
      plan,
      { probed, deps, spreadMs: FIRST_CHECK_SPREAD_MS, verdict: 'undecided' },
      done.signal,
      (state, text) => {
        if (state.verdict === 'passing') done.abort();
        else if (state.verdict === 'failing') listener.unhealthy(text);
        else listener.readiness(false, text);
      },
    );
  } catch (reason) {
    if (signal.aborted || !done.signal.aborted) throw reason;
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

function probeReadiness(
  plan: ProbePlan,
  probed: ProbedContainer,
  listener: ProbeListener,
  deps: ProbeDeps,
  signal: StopSignal,
): Promise<never> {
  const spreadMs = probed.wasReady ? plan.periodMs : FIRST_CHECK_SPREAD_MS;
  const verdict = probed.wasReady ? 'passing' : 'undecided';
  return watch('readiness', plan, { probed, deps, spreadMs, verdict }, signal, (state, text) => {
    if (state.verdict === 'passing') listener.readiness(true, '');
    else listener.readiness(false, text);
  });
}

function probeLiveness(
  plan: ProbePlan,
  probed: ProbedContainer,
  listener: ProbeListener,
  deps: ProbeDeps,
  signal: StopSignal,
): Promise<never> {
  const context = { probed, deps, spreadMs: plan.periodMs, verdict: 'undecided' } as const;
  return watch('liveness', plan, context, signal, (state, text) => {
    if (state.verdict === 'failing') listener.unhealthy(text);
  });
}

/** Runs one probe and tells each change that a person would see. */
function watch(
  name: keyof ProbePlans,
  plan: ProbePlan,
  context: {
    readonly probed: ProbedContainer;
    readonly deps: ProbeDeps;
    readonly spreadMs: number;
    readonly verdict: ProbeVerdict;
  },
  signal: StopSignal,
  onChange: (state: ProbeState, text: string) => void,
): Promise<never> {
  const { probed, deps, spreadMs } = context;
  let state = newProbeState(context.verdict);
  let shown = '';
  let everPassed = context.verdict === 'passing';
  let notMade = '';
  const onResult = (result: CheckResult): 'atPeriod' | 'soon' => {
    if (result.kind === 'unknown' && result.reason !== notMade) {
      deps.log.warn('probe not carried out', {
        probe: name,
        containerId: probed.container.id,
        reason: result.reason,
      });
    }
    notMade = result.kind === 'unknown' ? result.reason : '';
    state = reduceProbe(state, result, plan);
    everPassed ||= state.verdict === 'passing';
    const key =
      state.verdict === 'passing'
        ? 'passing'
        : `${state.verdict} ${textOfProbe(name, state, plan, { withDetail: false })}`;
    if (key !== shown) onChange(state, textOfProbe(name, state, plan));
    shown = key;
    // Failures of a startup probe are a budget of time, which quicker checks would cut.
    return name === 'readiness' && !everPassed && result.kind !== 'passed' ? 'soon' : 'atPeriod';
  };
  const waitMs = Math.max(0, plan.initialDelayMs - probed.upMs);
  const firstDelayMs = waitMs + Math.floor(deps.random.next() * Math.min(spreadMs, plan.periodMs));
  const check = (own: AbortSignal): Promise<CheckResult> =>
    checkContainer(plan, probed.container, deps, own);
  return runProbe({ plan, firstDelayMs, check, onResult, clock: deps.clock }, signal);
}
