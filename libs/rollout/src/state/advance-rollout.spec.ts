import { toReplicaId } from '@cloudless/base';
import { resolveLimits } from '../steps/limits.js';
import type { RolloutObserved, RolloutReplica } from '../steps/observed.js';
import { advanceRollout } from './advance-rollout.js';
import {
  NO_ROLLOUT,
  type RolloutAdvance,
  type RolloutSettings,
  type RolloutSituation,
  type RolloutState,
} from './rollout-state.js';

const SETTINGS: RolloutSettings = {
  strategy: 'rollingUpdate',
  canarySteps: [],
  manualSwitch: false,
  pauseMs: 0,
  progressDeadlineMs: 600_000,
  maxFailedNew: 3,
  onFailure: 'pause',
};

/**
 * A simulated rollout whose new replicas become available between two decisions, unless their
 * version is broken.
 */
class SimulatedRollout {
  state: RolloutState = NO_ROLLOUT;
  nowMs = 1_000;
  version = 1;
  failures = 0;
  pausedByUser = false;
  /** True while stops are ordered but not confirmed. */
  delaysStops = false;
  /** Versions whose replicas never become available. */
  readonly broken = new Set<number>();
  /** The oldest version with the same template, by version. */
  readonly sameAs = new Map<number, number>();
  readonly events: string[] = [];
  /** The fewest available replicas of the serving version so far. */
  lowestAvailable = Number.POSITIVE_INFINITY;
  replicas: RolloutReplica[] = [];
  /** The target nodes of mode GLOBAL; empty in mode REPLICATED. */
  targets: Pick<RolloutObserved, 'globalTargets' | 'pinnedNodes'> = {};
  private createdCount = 0;

  constructor(
    readonly want: number,
    public settings: RolloutSettings,
  ) {}

  /** Makes one decision and applies its steps. */
  decideOnce(changes: Partial<RolloutSituation> = {}): RolloutAdvance {
    const toCanonical = (version: number): number => this.sameAs.get(version) ?? version;
    this.replicas = this.replicas.map((replica): RolloutReplica => ({
      ...replica,
      available: !this.broken.has(replica.version),
    }));
    const advance = advanceRollout(this.state, {
      settings: this.settings,
      version: this.version,
      toCanonical,
      observed: {
        ...resolveLimits({ desired: this.targets.globalTargets?.length ?? this.want }),
        ...this.targets,
        replicas: this.replicas.map((replica, index) => ({ nodeId: `n${index}`, ...replica })),
      },
      pausedByUser: this.pausedByUser,
      failures: this.failures,
      changed: false,
      nowMs: this.nowMs,
      ...changes,
    });
    this.state = advance.state;
    this.events.push(...advance.events.map(({ kind }) => kind));
    if (advance.decision.kind === 'steps') {
      for (const step of advance.decision.steps) {
        if (step.kind === 'createReplica') this.create(step.version, step.nodeId);
        if (step.kind === 'stopReplica') this.stop(step.replicaId);
      }
    }
    return advance;
  }

  /** Decides until no step is possible. */
  runUntilSettled(): RolloutAdvance {
    for (let round = 0; ; round += 1) {
      if (round > 1_000) throw new Error(`never settles: ${JSON.stringify(this.state)}`);
      const before = this.state;
      const advance = this.decideOnce();
      if (
        advance.decision.kind !== 'steps' &&
        JSON.stringify(before) === JSON.stringify(this.state)
      )
        return advance;
      if (advance.rollBackTo !== undefined) return advance;
    }
  }

  setVersion(version: number, settings: Partial<RolloutSettings> = {}): this {
    this.version = version;
    this.settings = { ...this.settings, ...settings };
    this.events.length = 0;
    return this;
  }

  advanceTime(ms: number): this {
    this.nowMs += ms;
    return this;
  }

  get versions(): readonly number[] {
    return this.replicas.map(({ version }) => version).sort((a, b) => a - b);
  }

  confirmStops(): void {
    this.delaysStops = false;
    this.replicas = this.replicas.filter(({ desired }) => desired === 'running');
  }

  private stop(replicaId: string): void {
    this.replicas = this.replicas.map((replica) =>
      replica.id === replicaId ? { ...replica, desired: 'stopped' } : replica,
    );
    if (!this.delaysStops) this.confirmStops();
  }

  /** Adds an available replica of an older version on a node. */
  addOutdated(nodeId: string, version: number): void {
    this.create(version, nodeId);
  }

  private create(version: number, nodeId?: string): void {
    const createdSequence = (this.createdCount += 1);
    const id = toReplicaId(`w-${createdSequence}`);
    this.replicas.push({
      id,
      version,
      available: false,
      desired: 'running',
      lost: false,
      draining: false,
      createdSequence,
      ...(nodeId === undefined ? {} : { nodeId }),
    });
  }
}

/** A workload of 4 replicas whose version 1 is rolled out. */
function aCompletedRollout(settings: Partial<RolloutSettings> = {}, want = 4): SimulatedRollout {
  const rollout = new SimulatedRollout(want, { ...SETTINGS, ...settings });
  rollout.runUntilSettled();
  expect(rollout.state).toMatchObject({ phase: 'completed', activeVersion: 1 });
  return rollout;
}

describe('advanceRollout', () => {
  it('starts a rollout, and completes it when no replica of another version is left', () => {
    const rollout = aCompletedRollout().setVersion(2);
    expect(rollout.decideOnce()).toMatchObject({
      state: { phase: 'inProgress', version: 2, fromVersion: 1, activeVersion: 1 },
    });
    rollout.runUntilSettled();
    expect(rollout.state).toMatchObject({ phase: 'completed', activeVersion: 2, reason: '' });
    expect([rollout.versions, rollout.events]).toEqual([
      [2, 2, 2, 2],
      ['started', 'completed'],
    ]);
  });

  it('replaces all replicas when a new version supersedes an unfinished rollout', () => {
    const rollout = aCompletedRollout().setVersion(2);
    for (let step = 0; step < 3; step += 1) rollout.decideOnce();
    expect(new Set(rollout.versions)).toEqual(new Set([1, 2]));
    rollout.setVersion(3);
    const replicaCount = rollout.replicas.length;
    rollout.runUntilSettled();
    expect(replicaCount).toBeGreaterThan(0);
    expect([rollout.versions, rollout.state.activeVersion, rollout.events]).toEqual([
      [3, 3, 3, 3],
      3,
      ['started', 'completed'],
    ]);
  });

  it('keeps replicas when their template is wanted again', () => {
    const rollout = aCompletedRollout().setVersion(2);
    rollout.broken.add(2);
    rollout.runUntilSettled();
    const old = rollout.replicas.filter(({ version }) => version === 1).map(({ id }) => id);
    rollout.sameAs.set(3, 1);
    rollout.setVersion(3).runUntilSettled();
    expect(rollout.state).toMatchObject({ phase: 'completed', version: 3, activeVersion: 3 });
    expect(rollout.replicas.map(({ id }) => id)).toEqual(expect.arrayContaining(old));
  });
});

describe('advanceRollout with failures', () => {
  it('fails after maxFailedNew failures of new replicas, and takes no further step', () => {
    const rollout = aCompletedRollout({ maxFailedNew: 3 }).setVersion(2);
    rollout.broken.add(2);
    rollout.runUntilSettled();
    rollout.failures = 2;
    expect(rollout.runUntilSettled().state.phase).toBe('inProgress');
    rollout.failures = 3;
    const before = rollout.versions;
    expect(rollout.runUntilSettled().state).toMatchObject({
      phase: 'failed',
      reason: 'new replicas failed 3 times',
      activeVersion: 1,
    });
    expect(rollout.versions).toEqual(before);
    expect(rollout.events.filter((kind) => kind === 'failed')).toHaveLength(1);
  });

  it.each([
    { maxFailedNew: 0, failures: 1, text: 'new replicas failed once' },
    { maxFailedNew: 1, failures: 1, text: 'new replicas failed once' },
  ])(
    'fails at the first failure when max_failed_new is $maxFailedNew',
    ({ maxFailedNew, failures, text }) => {
      const rollout = aCompletedRollout({ maxFailedNew }).setVersion(2);
      rollout.decideOnce();
      rollout.failures = failures;
      expect(rollout.decideOnce().state).toMatchObject({ phase: 'failed', reason: text });
    },
  );

  it.each([
    { percent: 1, want: 3, limit: 1 },
    { percent: 50, want: 5, limit: 3 },
    { percent: 100, want: 4, limit: 4 },
    { percent: 100, want: 2, limit: 2 },
  ])(
    'fails at failure $limit when max_failed_new is $percent % of $want replicas',
    ({ percent, want, limit }) => {
      const rollout = aCompletedRollout({ maxFailedNew: { percent } }, want).setVersion(2);
      rollout.broken.add(2);
      rollout.decideOnce();
      rollout.failures = limit - 1;
      expect(rollout.decideOnce().state.phase).toBe('inProgress');
      rollout.failures = limit;
      expect(rollout.decideOnce().state.phase).toBe('failed');
    },
  );

  it('fails when the progress deadline passes after the last progress', () => {
    const rollout = aCompletedRollout({ progressDeadlineMs: 10_000 }).setVersion(2);
    rollout.broken.add(2);
    rollout.runUntilSettled();
    const { wakeAtMs } = rollout.runUntilSettled();
    expect(wakeAtMs).toBe(rollout.nowMs + 10_000);
    expect(rollout.advanceTime(9_999).runUntilSettled().state.phase).toBe('inProgress');
    expect(rollout.advanceTime(1).runUntilSettled().state.phase).toBe('failed');
    expect(rollout.state.reason).toBe(
      'no progress for 10s: 3 of 4 replicas are ready, 2 not yet (1 extra)',
    );
  });

  it('restarts the progress deadline after a change of the spec', () => {
    const rollout = aCompletedRollout({ progressDeadlineMs: 10_000 }).setVersion(2);
    rollout.broken.add(2);
    rollout.runUntilSettled();
    rollout.advanceTime(9_999).decideOnce({ changed: true });
    expect(rollout.advanceTime(9_999).runUntilSettled().state.phase).toBe('inProgress');
  });

  it('does not prolong the progress deadline when the clock was set back', () => {
    const rollout = aCompletedRollout({ progressDeadlineMs: 10_000 }).setVersion(2);
    rollout.broken.add(2);
    rollout.runUntilSettled();
    rollout.advanceTime(-500_000).runUntilSettled();
    expect(rollout.advanceTime(9_999).runUntilSettled().state.phase).toBe('inProgress');
    expect(rollout.advanceTime(1).runUntilSettled().state.phase).toBe('failed');
  });

  it('does not fail while RECREATE waits for stops', () => {
    const rollout = aCompletedRollout({
      strategy: 'recreate',
      progressDeadlineMs: 10_000,
    }).setVersion(2);
    rollout.delaysStops = true;
    rollout.runUntilSettled();
    expect(rollout.advanceTime(60_000).runUntilSettled()).toMatchObject({
      state: { phase: 'inProgress' },
    });
    expect(rollout.state.waitsUntilMs).toBeUndefined();
    rollout.confirmStops();
    rollout.broken.add(2);
    rollout.runUntilSettled();
    expect(rollout.advanceTime(9_999).runUntilSettled().state.phase).toBe('inProgress');
    expect(rollout.advanceTime(1).runUntilSettled().state.phase).toBe('failed');
  });

  it('continues after a retry, without counting earlier failures', () => {
    const rollout = aCompletedRollout().setVersion(2);
    rollout.broken.add(2);
    rollout.failures = 3;
    rollout.runUntilSettled();
    rollout.runUntilSettled();
    expect(rollout.state.phase).toBe('failed');
    rollout.state = { ...rollout.state, retry: true };
    expect(rollout.runUntilSettled().state).toMatchObject({
      phase: 'inProgress',
      forgivenFailures: 3,
      retry: false,
    });
    rollout.broken.delete(2);
    expect(rollout.runUntilSettled().state.phase).toBe('completed');
  });

  it('rolls back when onFailure is rollback, and ends in phase rolledBack', () => {
    const rollout = aCompletedRollout({ onFailure: 'rollback' }).setVersion(2);
    rollout.broken.add(2);
    rollout.decideOnce();
    rollout.failures = 3;
    expect(rollout.runUntilSettled()).toMatchObject({
      rollBackTo: 1,
      state: { phase: 'failed', rollsBackFrom: 2 },
    });
    rollout.sameAs.set(3, 1);
    rollout.failures = 0;
    rollout.setVersion(3).runUntilSettled();
    expect(rollout.state).toMatchObject({
      phase: 'rolledBack',
      activeVersion: 3,
      rollsBackFrom: 0,
    });
    expect(rollout.events).toEqual(['started', 'rolledBack']);
    expect(rollout.versions).toEqual([1, 1, 1, 1]);
  });

  it('does not roll back a failed rollback', () => {
    const rollout = aCompletedRollout({ onFailure: 'rollback' }).setVersion(2);
    rollout.decideOnce();
    rollout.failures = 3;
    rollout.runUntilSettled();
    rollout.sameAs.set(3, 1);
    rollout.setVersion(3);
    rollout.broken.add(1).add(3);
    rollout.failures = 0;
    rollout.decideOnce();
    rollout.failures = 3;
    expect(rollout.runUntilSettled().rollBackTo).toBeUndefined();
    expect(rollout.state).toMatchObject({ phase: 'failed', version: 3, rollsBackFrom: 2 });
  });

  it('ends a rollback at a change of the spec', () => {
    const rollout = aCompletedRollout({ onFailure: 'rollback' }).setVersion(2);
    rollout.decideOnce();
    rollout.failures = 3;
    rollout.runUntilSettled();
    rollout.failures = 0;
    rollout.sameAs.set(3, 1);
    rollout.setVersion(3).decideOnce();
    expect(rollout.state.rollsBackFrom).toBe(2);
    rollout.setVersion(4).runUntilSettled();
    expect(rollout.state).toMatchObject({ phase: 'completed', rollsBackFrom: 0 });
  });

  it('keeps the canary steps of a version that replaces a rollback before its first decision', () => {
    const canarySteps = [{ size: { replicas: 1 }, wait: 'promotion' }] as const;
    const rollout = aCompletedRollout({ canarySteps, onFailure: 'rollback' }).setVersion(2);
    rollout.decideOnce();
    rollout.failures = 3;
    expect(rollout.runUntilSettled().rollBackTo).toBe(1);
    rollout.failures = 0;
    rollout.sameAs.set(3, 1); // version 3, the rollback, was never seen by a decision
    rollout.setVersion(4).runUntilSettled();
    expect(rollout.state).toMatchObject({ version: 4, rollsBackFrom: 0, stepsDone: 0 });
    expect(rollout.state.reason).toContain('step 1 of 1');
  });

  it('continues trying after the failure of a first deployment', () => {
    const rollout = new SimulatedRollout(2, SETTINGS);
    rollout.broken.add(1);
    rollout.decideOnce();
    rollout.failures = 3;
    expect(rollout.runUntilSettled().state).toMatchObject({ phase: 'failed', activeVersion: 0 });
    rollout.replicas.pop();
    rollout.decideOnce();
    expect(rollout.versions).toEqual([1, 1]);
    rollout.broken.clear();
    expect(rollout.runUntilSettled().state).toMatchObject({ phase: 'completed', activeVersion: 1 });
  });
});

describe('advanceRollout with canary steps', () => {
  const canarySteps: RolloutSettings['canarySteps'] = [
    { size: { replicas: 1 }, wait: 'promotion' },
    { size: { percent: 30 }, wait: { ms: 5_000 } },
  ];

  it('waits at each step for a promotion or a time, then updates all replicas', () => {
    const rollout = aCompletedRollout({ canarySteps }).setVersion(2);
    const first = rollout.runUntilSettled();
    expect(first.state).toMatchObject({ phase: 'paused', waitsForPromotion: true, stepsDone: 0 });
    expect(first.state.reason).toBe(
      'step 1 of 2: 1 of 4 replicas run version 2; waits for a promotion',
    );
    expect(rollout.versions).toEqual([1, 1, 1, 2]);
    // The progress deadline does not run during the wait.
    expect(rollout.advanceTime(3_600_000).runUntilSettled().state.phase).toBe('paused');
    rollout.state = { ...rollout.state, promoted: true };
    const second = rollout.runUntilSettled();
    expect(second.state).toMatchObject({
      phase: 'inProgress',
      stepsDone: 1,
      promoted: false,
      waitsUntilMs: rollout.nowMs + 5_000,
    });
    expect([rollout.versions, second.wakeAtMs]).toEqual([[1, 1, 2, 2], rollout.nowMs + 5_000]);
    rollout.advanceTime(4_999).runUntilSettled();
    expect(rollout.state.stepsDone).toBe(1);
    rollout.advanceTime(1).runUntilSettled();
    expect(rollout.state).toMatchObject({ phase: 'completed', stepsDone: 2 });
    expect(rollout.versions).toEqual([2, 2, 2, 2]);
    expect(rollout.events).toEqual([
      'started',
      'canaryStepReached',
      'canaryStepReached',
      'completed',
    ]);
  });

  it('restarts the wait of a step when its replicas did not stay available', () => {
    const rollout = aCompletedRollout({
      canarySteps: [{ size: { replicas: 1 }, wait: { ms: 5_000 } }],
    }).setVersion(2);
    rollout.runUntilSettled();
    rollout.advanceTime(4_999);
    rollout.broken.add(2);
    rollout.runUntilSettled();
    expect(rollout.state.stepReachedAtMs).toBeUndefined();
    rollout.broken.delete(2);
    rollout.decideOnce();
    rollout.advanceTime(1).runUntilSettled();
    expect(rollout.state).toMatchObject({ phase: 'inProgress', stepsDone: 0 });
    rollout.advanceTime(5_000).runUntilSettled();
    expect(rollout.state.phase).toBe('completed');
  });

  it('reaches no step after the rollout has failed, also when its replicas become available', () => {
    const rollout = aCompletedRollout({ canarySteps }).setVersion(2);
    rollout.broken.add(2);
    rollout.runUntilSettled();
    rollout.failures = 3;
    expect(rollout.decideOnce().state.phase).toBe('failed');
    rollout.broken.delete(2);
    expect(rollout.runUntilSettled().state).toMatchObject({ phase: 'failed' });
    expect(rollout.state.waitsUntilMs).toBeUndefined();
    expect(rollout.state.stepReachedAtMs).toBeUndefined();
    expect(rollout.events).not.toContain('canaryStepReached');
  });

  it('rolls back without waiting at canary steps', () => {
    const rollout = aCompletedRollout({ canarySteps, onFailure: 'rollback' }).setVersion(2);
    rollout.runUntilSettled();
    rollout.failures = 3;
    rollout.state = { ...rollout.state, promoted: true };
    rollout.runUntilSettled();
    expect(rollout.state).toMatchObject({ phase: 'failed', rollsBackFrom: 2 });
    rollout.failures = 0;
    rollout.sameAs.set(3, 1);
    expect(rollout.setVersion(3).runUntilSettled().state.phase).toBe('rolledBack');
    expect(rollout.events).toEqual(['started', 'rolledBack']);
  });

  it('never reduces the updated replicas from step to step, in replicas or percent', () => {
    const rollout = aCompletedRollout({
      canarySteps: [
        { size: { replicas: 3 }, wait: { ms: 1_000 } },
        { size: { percent: 25 }, wait: 'promotion' },
      ],
    });
    rollout.setVersion(2).runUntilSettled();
    expect(rollout.versions).toEqual([1, 2, 2, 2]);
    rollout.advanceTime(1_000).runUntilSettled();
    expect([rollout.versions, rollout.state.stepsDone]).toEqual([[1, 2, 2, 2], 1]);
    expect(rollout.state.reason).toBe(
      'step 2 of 2: 3 of 4 replicas run version 2; waits for a promotion',
    );
  });

  it('waits also at a step that updates all replicas', () => {
    const rollout = aCompletedRollout(
      { canarySteps: [{ size: { percent: 25 }, wait: 'promotion' }] },
      1,
    ).setVersion(2);
    expect(rollout.runUntilSettled().state).toMatchObject({
      phase: 'paused',
      waitsForPromotion: true,
    });
    expect(rollout.versions).toEqual([2]);
    rollout.state = { ...rollout.state, promoted: true };
    expect(rollout.runUntilSettled().state.phase).toBe('completed');
    expect(rollout.events).toEqual(['started', 'canaryStepReached', 'completed']);
  });

  it.each<{ name: string; settings: Partial<RolloutSettings> }>([
    { name: 'the steps are removed from the spec', settings: { canarySteps: [] } },
    { name: 'the strategy changes', settings: { strategy: 'recreate' } },
  ])('counts the progress deadline again when $name during the wait', ({ settings }) => {
    const rollout = aCompletedRollout({
      canarySteps,
      progressDeadlineMs: 10_000,
    }).setVersion(2);
    rollout.runUntilSettled();
    rollout.settings = { ...rollout.settings, ...settings };
    rollout.broken.add(2);
    rollout.runUntilSettled();
    expect(rollout.state.stepReachedAtMs).toBeUndefined();
    expect(rollout.advanceTime(10_000).runUntilSettled().state.phase).toBe('failed');
  });

  it('continues to wait while a replica of the previous version is replaced', () => {
    const rollout = aCompletedRollout({ canarySteps }).setVersion(2);
    rollout.runUntilSettled();
    rollout.replicas = rollout.replicas.filter(
      ({ version, id }) => version !== 1 || id !== rollout.replicas[0]?.id,
    );
    const { state } = rollout.decideOnce();
    expect(state).toMatchObject({ phase: 'paused', waitsForPromotion: true });
    expect(rollout.runUntilSettled().state.phase).toBe('paused');
    expect(rollout.events).toEqual(['started', 'canaryStepReached']);
  });

  it('uses no canary steps in a first deployment', () => {
    const rollout = aCompletedRollout({ canarySteps });
    expect(rollout.events).toEqual(['started', 'completed']);
  });
});

describe('advanceRollout while paused', () => {
  it('takes no step and counts no deadline, and continues after the resume', () => {
    const rollout = aCompletedRollout({ progressDeadlineMs: 10_000 }).setVersion(2);
    rollout.decideOnce();
    rollout.pausedByUser = true;
    expect(rollout.runUntilSettled().state).toMatchObject({ phase: 'paused' });
    const { versions } = rollout;
    rollout.advanceTime(60_000).runUntilSettled();
    expect([rollout.versions, rollout.state.phase]).toEqual([versions, 'paused']);
    rollout.pausedByUser = false;
    expect(rollout.runUntilSettled().state.phase).toBe('completed');
    expect(rollout.events).toEqual(['started', 'paused', 'resumed', 'completed']);
  });

  it('pauses at impossible limits until they change', () => {
    const rollout = aCompletedRollout().setVersion(2);
    const stuck = {
      ...resolveLimits({ desired: 4, minAvailable: 4, maxSurge: 0 }),
      replicas: rollout.replicas,
    };
    expect(rollout.decideOnce({ observed: stuck }).state).toMatchObject({
      phase: 'paused',
      reason: 'max_surge 0 and min_available 4 of 4 leave no possible move',
    });
    expect(rollout.runUntilSettled().state.phase).toBe('completed');
  });
});

describe('advanceRollout with blue/green', () => {
  const blueGreen: Partial<RolloutSettings> = { strategy: 'blueGreen', pauseMs: 30_000 };

  it('switches when the new set is available, and keeps the previous set for pauseMs', () => {
    const rollout = aCompletedRollout(blueGreen).setVersion(2);
    rollout.broken.add(2);
    rollout.runUntilSettled();
    expect([rollout.versions, rollout.state.activeVersion]).toEqual([[1, 1, 1, 1, 2, 2, 2, 2], 1]);
    rollout.broken.delete(2);
    rollout.runUntilSettled();
    expect(rollout.state).toMatchObject({
      phase: 'inProgress',
      activeVersion: 2,
      waitsUntilMs: rollout.nowMs + 30_000,
    });
    expect(rollout.versions).toEqual([1, 1, 1, 1, 2, 2, 2, 2]);
    rollout.advanceTime(30_000).runUntilSettled();
    expect([rollout.versions, rollout.state.phase]).toEqual([[2, 2, 2, 2], 'completed']);
    expect(rollout.events).toEqual(['started', 'switched', 'completed']);
  });

  it('waits for a promotion before the switch when manualSwitch is set', () => {
    const rollout = aCompletedRollout({ ...blueGreen, manualSwitch: true }).setVersion(2);
    expect(rollout.runUntilSettled().state).toMatchObject({
      phase: 'paused',
      waitsForPromotion: true,
      activeVersion: 1,
    });
    rollout.advanceTime(3_600_000).runUntilSettled();
    rollout.state = { ...rollout.state, promoted: true };
    expect(rollout.runUntilSettled().state).toMatchObject({
      activeVersion: 2,
      waitsForPromotion: false,
    });
  });

  it.each([
    { when: 'while the previous set is kept', progressDeadlineMs: 10_000, former: 3 },
    { when: 'after the previous set was stopped', progressDeadlineMs: 40_000, former: 0 },
  ])(
    'fails and rolls back when the new set stops being available $when',
    ({ progressDeadlineMs, former }) => {
      const rollout = aCompletedRollout(
        { ...blueGreen, onFailure: 'rollback', progressDeadlineMs },
        3,
      ).setVersion(2);
      rollout.runUntilSettled();
      expect(rollout.advanceTime(5_000).runUntilSettled().state).toMatchObject({
        activeVersion: 2,
        phase: 'inProgress',
      });
      rollout.broken.add(2);
      rollout.runUntilSettled();
      rollout.advanceTime(progressDeadlineMs - 1).runUntilSettled();
      expect(rollout.state.phase).toBe('inProgress');
      expect(rollout.advanceTime(1).runUntilSettled()).toMatchObject({ rollBackTo: 1 });
      expect(rollout.versions.filter((version) => version === 1)).toHaveLength(former);
    },
  );

  it('adds one event when it starts to wait for a promotion, and none when the wait ends', () => {
    const rollout = aCompletedRollout({ ...blueGreen, manualSwitch: true }).setVersion(2);
    rollout.runUntilSettled();
    rollout.broken.add(2);
    rollout.runUntilSettled();
    expect(rollout.state.phase).toBe('inProgress');
    expect(rollout.events).toEqual(['started', 'awaitsPromotion']);
  });

  it('returns to a kept previous set without a promotion', () => {
    const rollout = aCompletedRollout({ ...blueGreen, manualSwitch: true }).setVersion(2);
    rollout.runUntilSettled();
    rollout.state = { ...rollout.state, promoted: true };
    rollout.runUntilSettled();
    rollout.sameAs.set(3, 1);
    const former = rollout.replicas.filter(({ version }) => version === 1).map(({ id }) => id);
    rollout.setVersion(3).decideOnce();
    expect(rollout.state.activeVersion).toBe(3);
    expect(rollout.replicas.map(({ id }) => id)).toEqual(expect.arrayContaining(former));
    rollout.advanceTime(30_000).runUntilSettled();
    expect([rollout.versions, rollout.state.phase]).toEqual([[1, 1, 1, 1], 'completed']);
  });

  it('changes to another strategy only when the set that does not serve is gone', () => {
    const rollout = aCompletedRollout(blueGreen).setVersion(2);
    rollout.broken.add(2);
    rollout.runUntilSettled();
    rollout.settings = { ...rollout.settings, strategy: 'rollingUpdate' };
    const leaving = rollout.decideOnce();
    expect(leaving.observed).toMatchObject({
      version: 1,
      strategy: { kind: 'blueGreen', activeVersion: 1 },
    });
    rollout.runUntilSettled();
    expect(rollout.state.strategy).toBe('rollingUpdate');
    rollout.broken.delete(2);
    rollout.decideOnce();
    rollout.runUntilSettled();
    expect([rollout.versions, rollout.state.phase]).toEqual([[2, 2, 2, 2], 'completed']);
  });

  it('changes to blue/green only when one version is live', () => {
    const rollout = aCompletedRollout().setVersion(2);
    for (let step = 0; step < 3; step += 1) rollout.decideOnce();
    rollout.settings = { ...rollout.settings, ...blueGreen };
    rollout.decideOnce();
    expect(rollout.state.strategy).toBe('rollingUpdate');
    rollout.runUntilSettled();
    rollout.decideOnce();
    expect(rollout.state).toMatchObject({ phase: 'completed', strategy: 'blueGreen' });
  });
});

describe('advanceRollout with pinned nodes', () => {
  const settings = { progressDeadlineMs: 10_000, maxFailedNew: 2 };

  /** Version 2 is on two of three nodes; the third accepts nothing new. */
  function waitForPinned(): SimulatedRollout {
    const rollout = aCompletedRollout(settings, 2).setVersion(2);
    rollout.targets = { globalTargets: ['n0', 'n1'], pinnedNodes: ['n2'] };
    rollout.runUntilSettled();
    return rollout;
  }

  it('stays in progress with a reason while a node keeps an outdated replica', () => {
    const rollout = waitForPinned();
    expect(rollout.versions).toEqual([2, 2]);
    expect(rollout.state).toMatchObject({
      phase: 'inProgress',
      activeVersion: 1,
      reason: '1 replica stays at another version as its node takes nothing new: n2',
    });
    expect(rollout.events).not.toContain('completed');
  });

  it('counts neither the deadline nor failures during the wait', () => {
    const rollout = waitForPinned();
    expect(rollout.state.waitsUntilMs).toBeUndefined();
    rollout.failures = 5;
    expect(rollout.advanceTime(3_600_000).runUntilSettled()).toMatchObject({
      state: { phase: 'inProgress' },
    });
  });

  it('counts the deadline when an updated replica is no longer available during the wait', () => {
    const rollout = waitForPinned();
    rollout.broken.add(2);
    rollout.decideOnce();
    expect(rollout.advanceTime(10_000).decideOnce().state.phase).toBe('failed');
  });

  it('does not change the state from decision to decision during the wait', () => {
    const rollout = waitForPinned();
    const before = rollout.state;
    rollout.advanceTime(1_000).decideOnce();
    expect(rollout.state).toEqual(before);
  });

  it('restarts the deadline and forgives failures when the node accepts replicas again', () => {
    const rollout = waitForPinned();
    rollout.failures = 5;
    rollout.advanceTime(3_600_000);
    rollout.addOutdated('n2', 1);
    rollout.targets = { globalTargets: ['n0', 'n1', 'n2'] };
    rollout.broken.add(2);
    rollout.decideOnce();
    expect(rollout.state).toMatchObject({ phase: 'inProgress', forgivenFailures: 5 });
    expect(rollout.advanceTime(9_999).decideOnce().state.phase).toBe('inProgress');
    expect(rollout.advanceTime(1).decideOnce().state.phase).toBe('failed');
  });

  it('completes when the pinned node is updated', () => {
    const rollout = waitForPinned();
    rollout.addOutdated('n2', 1);
    rollout.targets = { globalTargets: ['n0', 'n1', 'n2'] };
    rollout.runUntilSettled();
    expect(rollout.versions).toEqual([2, 2, 2]);
    expect(rollout.state).toMatchObject({ phase: 'completed', activeVersion: 2, reason: '' });
  });

  it('fails after failures of new replicas while other nodes are still to be updated', () => {
    const rollout = aCompletedRollout(settings, 2).setVersion(2);
    rollout.targets = { globalTargets: ['n0', 'n1'], pinnedNodes: ['n2'] };
    rollout.broken.add(2);
    rollout.runUntilSettled();
    rollout.failures = 2;
    expect(rollout.runUntilSettled().state.phase).toBe('failed');
  });
});

describe('advanceRollout at a canary step', () => {
  it('adds the number of updated replicas to the reason when the step has fewer', () => {
    const canarySteps = [{ size: { replicas: 3 }, wait: 'promotion' as const }];
    const rollout = aCompletedRollout({ canarySteps }).setVersion(2);
    rollout.runUntilSettled();
    expect(rollout.versions).toEqual([1, 2, 2, 2]);
    rollout.delaysStops = true;
    rollout.settings = {
      ...rollout.settings,
      canarySteps: [{ size: { replicas: 1 }, wait: 'promotion' }],
    };
    expect(rollout.decideOnce({ changed: true }).state.reason).toContain(
      '; 3 replicas already run version 2, more than the 1 of this step',
    );
  });

  it('does not add the number of updated replicas to the reason when the step has as many', () => {
    const canarySteps = [{ size: { replicas: 1 }, wait: 'promotion' as const }];
    const rollout = aCompletedRollout({ canarySteps }).setVersion(2);
    expect(rollout.runUntilSettled().state.reason).toBe(
      'step 1 of 1: 1 of 4 replicas run version 2; waits for a promotion',
    );
  });
});
