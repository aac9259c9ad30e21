import fc from 'fast-check';
import { resolveLimits } from '../steps/limits.js';
import { aReplica } from '../testing/builders.js';
import { advanceRollout } from './advance-rollout.js';
import {
  NO_ROLLOUT,
  type CanaryStep,
  type GateVerdict,
  type RolloutAdvance,
  type RolloutSettings,
  type RolloutSituation,
  type RolloutState,
} from './rollout-state.js';
import { GATE_INTERVAL_MS, GATE_TOLERANCE_MS } from './step-gate.js';

const GATE = 'errors_per_s < 1';
const WAIT_MS = 60_000;
const DEADLINE_MS = 120_000;
const STEP: CanaryStep = { size: { percent: 10 }, wait: { ms: WAIT_MS }, gate: GATE };
const SETTINGS: RolloutSettings = {
  strategy: 'rollingUpdate',
  canarySteps: [STEP, { size: { percent: 50 }, wait: 'promotion' }],
  manualSwitch: false,
  pauseMs: 0,
  progressDeadlineMs: DEADLINE_MS,
  maxFailedNew: 3,
  onFailure: 'rollback',
};

/** A rollout of version 2 at a step with one of ten replicas, all of which are available. */
class GatedRollout {
  nowMs = 1_000;
  pausedByUser = false;
  isAvailable = true;
  settings: RolloutSettings;
  last: RolloutAdvance | undefined;
  state: RolloutState = {
    ...NO_ROLLOUT,
    phase: 'completed',
    version: 1,
    activeVersion: 1,
  };

  constructor(settings: Partial<RolloutSettings> = {}) {
    this.settings = { ...SETTINGS, ...settings };
  }

  decide(verdict: GateVerdict | undefined, changes: Partial<RolloutSituation> = {}): RolloutState {
    const gate = { expression: GATE, verdict: verdict ?? 'noData', text: `seen ${verdict}` };
    const advance = advanceRollout(this.state, {
      settings: this.settings,
      version: 2,
      toCanonical: (version) => version,
      observed: {
        ...resolveLimits({ desired: 10 }),
        replicas: Array.from({ length: 10 }, (_, index) =>
          index === 0
            ? aReplica(11, { version: 2, available: this.isAvailable })
            : aReplica(index, { version: 1 }),
        ),
      },
      pausedByUser: this.pausedByUser,
      failures: 0,
      changed: false,
      nowMs: this.nowMs,
      ...(verdict === undefined ? {} : { gate }),
      ...changes,
    });
    this.last = advance;
    this.state = advance.state;
    return advance.state;
  }

  /** Decides at each interval of a duration. */
  run(verdict: GateVerdict | undefined, durationMs: number): RolloutState {
    const endMs = this.nowMs + durationMs;
    let state = this.decide(verdict);
    while (this.nowMs < endMs) {
      this.nowMs += GATE_INTERVAL_MS;
      state = this.decide(verdict);
    }
    return state;
  }
}

describe('a canary step with a gate', () => {
  it('is completed when the gate has been true for the whole wait', () => {
    const rollout = new GatedRollout();
    rollout.run('passed', WAIT_MS - GATE_INTERVAL_MS);
    expect(rollout.state).toMatchObject({ stepsDone: 0, phase: 'inProgress' });
    expect(rollout.state.reason).toBe(
      'step 1 of 2: 1 of 10 replicas run version 2; gate "errors_per_s < 1" is true, and has to stay true for 1m',
    );
    expect(rollout.last?.wakeAtMs).toBe(rollout.nowMs + GATE_INTERVAL_MS);
    rollout.nowMs += GATE_INTERVAL_MS;
    expect(rollout.decide('passed').stepsDone).toBe(1);
  });

  it.each<[string, (rollout: GatedRollout) => void]>([
    ['the gate was false', (rollout) => rollout.decide('failed')],
    ['figures were missing', (rollout) => rollout.decide('noData')],
    ['the gate was not evaluated', (rollout) => rollout.decide(undefined)],
    ['another gate was evaluated', (rollout) => rollout.decide('passed', { gate: OTHER_GATE })],
    [
      'the spec changed',
      (rollout) => {
        rollout.decide('passed', { changed: true });
        // The gate is true from this moment on, unlike in the other cases.
        rollout.nowMs -= GATE_INTERVAL_MS;
      },
    ],
    [
      'a user paused and resumed',
      (rollout) => {
        rollout.pausedByUser = true;
        rollout.decide('passed');
        rollout.pausedByUser = false;
      },
    ],
    [
      'a replica of the step was not available',
      (rollout) => {
        rollout.isAvailable = false;
        rollout.decide('passed');
        rollout.isAvailable = true;
      },
    ],
  ])('waits anew after %s', (_title, disturb) => {
    const rollout = new GatedRollout();
    rollout.run('passed', WAIT_MS - GATE_INTERVAL_MS);
    disturb(rollout);
    rollout.nowMs += GATE_INTERVAL_MS;
    rollout.run('passed', WAIT_MS - GATE_INTERVAL_MS);
    expect(rollout.state.stepsDone).toBe(0);
    rollout.nowMs += GATE_INTERVAL_MS;
    expect(rollout.decide('passed').stepsDone).toBe(1);
  });

  it('without a wait is completed by one evaluation', () => {
    const rollout = new GatedRollout({ canarySteps: [{ ...STEP, wait: { ms: 0 } }] });
    expect(rollout.decide('noData').stepsDone).toBe(0);
    expect(rollout.decide('passed').stepsDone).toBe(1);
  });

  it('fails the rollout, with the figures, when the gate was false for the tolerance', () => {
    const rollout = new GatedRollout();
    rollout.run('failed', GATE_TOLERANCE_MS - GATE_INTERVAL_MS);
    expect(rollout.state.phase).toBe('inProgress');
    expect(rollout.state.waitsUntilMs).toBe(rollout.nowMs + GATE_INTERVAL_MS);
    rollout.nowMs += GATE_INTERVAL_MS;
    expect(rollout.decide('failed')).toMatchObject({
      phase: 'failed',
      reason: 'gate "errors_per_s < 1" of step 1 was false for 30s: seen failed',
      rollsBackFrom: 2,
    });
    expect(rollout.last).toMatchObject({ rollBackTo: 1, decision: { kind: 'waiting' } });
  });

  it('is evaluated anew by a retry', () => {
    const rollout = new GatedRollout({ onFailure: 'pause' });
    rollout.run('failed', GATE_TOLERANCE_MS);
    expect(rollout.state.phase).toBe('failed');
    expect(rollout.decide('failed').gate).toBeUndefined();
    rollout.state = { ...rollout.state, retry: true };
    rollout.run('failed', GATE_TOLERANCE_MS - GATE_INTERVAL_MS);
    expect(rollout.state.phase).toBe('inProgress');
    rollout.run('passed', WAIT_MS);
    expect(rollout.state.stepsDone).toBe(1);
  });

  it.each(['noData', undefined] as const)(
    'without figures (%s) fails at the progress deadline after its wait',
    (verdict) => {
      const rollout = new GatedRollout();
      rollout.run(verdict, WAIT_MS + DEADLINE_MS - GATE_INTERVAL_MS);
      expect(rollout.state).toMatchObject({ phase: 'inProgress', stepsDone: 0 });
      rollout.nowMs += GATE_INTERVAL_MS;
      expect(rollout.decide(verdict)).toMatchObject({
        phase: 'failed',
        reason: expect.stringMatching(/^no progress for 2m: step 1 .* has no result: /),
      });
    },
  );

  it('fails at the deadline when the gate is never true for long enough', () => {
    const rollout = new GatedRollout();
    for (let round = 0; rollout.state.phase !== 'failed' && round < 100; round += 1)
      rollout.run(round % 2 === 0 ? 'passed' : 'failed', 2 * GATE_INTERVAL_MS);
    expect(rollout.state).toMatchObject({ phase: 'failed', stepsDone: 0 });
    expect(rollout.nowMs).toBeLessThanOrEqual(1_000 + WAIT_MS + DEADLINE_MS + 2 * GATE_INTERVAL_MS);
  });

  it('does not fail the rollout during a pause', () => {
    const rollout = new GatedRollout();
    rollout.decide('failed');
    rollout.pausedByUser = true;
    rollout.run('failed', 10 * GATE_TOLERANCE_MS);
    expect(rollout.state.phase).toBe('paused');
  });

  it('is not evaluated on the way back to the version before', () => {
    const rollout = new GatedRollout();
    rollout.state = { ...rollout.state, phase: 'inProgress', version: 2, rollsBackFrom: 1 };
    rollout.run('failed', 2 * GATE_TOLERANCE_MS);
    expect(rollout.state.gate).toBeUndefined();
    expect(rollout.state.phase).not.toBe('failed');
  });
});

describe('a canary step with a gate and a promotion', () => {
  const canarySteps: readonly CanaryStep[] = [{ ...STEP, wait: 'promotion' }];

  it('needs the promotion and a gate that is true', () => {
    const rollout = new GatedRollout({ canarySteps });
    rollout.run('passed', WAIT_MS);
    expect(rollout.state).toMatchObject({ phase: 'paused', waitsForPromotion: true, stepsDone: 0 });
    rollout.decide('failed');
    rollout.state = { ...rollout.state, promoted: true };
    expect(rollout.decide('failed')).toMatchObject({
      phase: 'inProgress',
      waitsForPromotion: false,
      stepsDone: 0,
    });
    expect(rollout.state.reason).toMatch(/; promoted; gate "errors_per_s < 1" is false/);
    expect(rollout.decide('passed').stepsDone).toBe(1);
  });

  it('fails when the gate is false while the rollout waits for the promotion', () => {
    const rollout = new GatedRollout({ canarySteps });
    rollout.run('failed', GATE_TOLERANCE_MS);
    expect(rollout.state.phase).toBe('failed');
  });

  it('waits for the promotion without figures, and after the promotion for the deadline', () => {
    const rollout = new GatedRollout({ canarySteps });
    rollout.run('noData', 10 * DEADLINE_MS);
    expect(rollout.state.phase).toBe('paused');
    rollout.state = { ...rollout.state, promoted: true };
    rollout.run('noData', DEADLINE_MS - GATE_INTERVAL_MS);
    expect(rollout.state.phase).toBe('inProgress');
    rollout.run('noData', 2 * GATE_INTERVAL_MS);
    expect(rollout.state.phase).toBe('failed');
  });
});

it('a step is completed by a gate that was true for the whole wait, and by nothing else', () => {
  const arbMoment = fc.record({
    verdict: fc.constantFrom<GateVerdict | undefined>(
      'passed',
      'passed',
      'failed',
      'noData',
      undefined,
    ),
    count: fc.integer({ min: 1, max: 14 }),
    event: fc.constantFrom('none', 'none', 'none', 'pause', 'resume', 'unavailable', 'retry'),
  });
  fc.assert(
    fc.property(fc.array(arbMoment, { maxLength: 12 }), (moments) => {
      const rollout = new GatedRollout({ onFailure: 'pause', canarySteps: [STEP] });
      let trueSinceMs: number | undefined;
      let falseSinceMs: number | undefined;
      for (const { verdict, count, event } of moments) {
        if (event === 'pause') rollout.pausedByUser = true;
        if (event === 'resume') rollout.pausedByUser = false;
        rollout.isAvailable = event !== 'unavailable';
        if (event === 'retry') rollout.state = { ...rollout.state, retry: true };
        for (let index = 0; index < count; index += 1) {
          const wasFailed = rollout.state.phase === 'failed' && !rollout.state.retry;
          const isEvaluated = !rollout.pausedByUser && rollout.isAvailable && !wasFailed;
          trueSinceMs =
            isEvaluated && verdict === 'passed' ? (trueSinceMs ?? rollout.nowMs) : undefined;
          falseSinceMs =
            isEvaluated && verdict === 'failed' ? (falseSinceMs ?? rollout.nowMs) : undefined;
          const { stepsDone, phase } = rollout.decide(verdict);
          const isHeld = trueSinceMs !== undefined && rollout.nowMs - trueSinceMs >= WAIT_MS;
          if (stepsDone === 1) {
            expect(isHeld).toBe(true);
            return;
          }
          // A deadline that passes at the same moment wins.
          expect(isHeld && phase !== 'failed').toBe(false);
          if (falseSinceMs !== undefined && rollout.nowMs - falseSinceMs >= GATE_TOLERANCE_MS)
            expect(phase).toBe('failed');
          rollout.nowMs += GATE_INTERVAL_MS;
        }
      }
    }),
    { numRuns: 300 },
  );
});

const OTHER_GATE = { expression: 'true', verdict: 'passed', text: '' } as const;
