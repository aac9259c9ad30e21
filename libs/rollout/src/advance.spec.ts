import { toReplicaId } from '@cloudless/base';
import { advanceRollout } from './advance.js';
import {
  NO_ROLLOUT,
  type RolloutAdvance,
  type RolloutSettings,
  type RolloutSituation,
  type RolloutState,
} from './rollout-state.js';
import { resolveLimits } from './limits.js';
import type { RolloutReplica } from './observed.js';

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
  /** Whether stops are ordered but not confirmed. */
  delaysStops = false;
  /** Versions whose replicas never become available. */
  readonly broken = new Set<number>();
  readonly sameAs = new Map<number, number>();
  readonly events: string[] = [];
  /** The fewest available replicas of the serving version so far. */
  lowestAvailable = Number.POSITIVE_INFINITY;
  replicas: RolloutReplica[] = [];
  private createdCount = 0;

  constructor(
    readonly want: number,
    public settings: RolloutSettings,
  ) {}

  /** Makes one decision and applies its steps. */
  decideOnce(changes: Partial<RolloutSituation> = {}): RolloutAdvance {
    const canonical = (version: number): number => this.sameAs.get(version) ?? version;
    this.replicas = this.replicas.map((replica): RolloutReplica => ({
      ...replica,
      available: !this.broken.has(replica.version),
    }));
    const advance = advanceRollout(this.state, {
      settings: this.settings,
      version: this.version,
      toCanonical: canonical,
      observed: { ...resolveLimits({ desired: this.want }), replicas: this.replicas },
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
        if (step.kind === 'createReplica') this.create(step.version);
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

  private create(version: number): void {
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
    });
  }
}

/** A workload of 4 replicas whose version 1 is rolled out. */
function aCompletedRollout(settings: Partial<RolloutSettings> = {}, want = 4): SimulatedRollout {
  const world = new SimulatedRollout(want, { ...SETTINGS, ...settings });
  world.runUntilSettled();
  expect(world.state).toMatchObject({ phase: 'completed', activeVersion: 1 });
  return world;
}

describe('advanceRollout', () => {
  it('starts a rollout, and completes it when no replica of another version is left', () => {
    const world = aCompletedRollout().setVersion(2);
    expect(world.decideOnce()).toMatchObject({
      state: { phase: 'inProgress', version: 2, fromVersion: 1, activeVersion: 1 },
    });
    world.runUntilSettled();
    expect(world.state).toMatchObject({ phase: 'completed', activeVersion: 2, reason: '' });
    expect([world.versions, world.events]).toEqual([
      [2, 2, 2, 2],
      ['started', 'completed'],
    ]);
  });

  it('supersedes an unfinished rollout', () => {
    const world = aCompletedRollout().setVersion(2);
    for (let step = 0; step < 3; step += 1) world.decideOnce();
    expect(new Set(world.versions)).toEqual(new Set([1, 2]));
    world.setVersion(3);
    const made = world.replicas.length;
    world.runUntilSettled();
    expect(made).toBeGreaterThan(0);
    expect([world.versions, world.state.activeVersion, world.events]).toEqual([
      [3, 3, 3, 3],
      3,
      ['started', 'completed'],
    ]);
  });

  it('keeps replicas when their template is wanted again', () => {
    const world = aCompletedRollout().setVersion(2);
    world.broken.add(2);
    world.runUntilSettled();
    const old = world.replicas.filter(({ version }) => version === 1).map(({ id }) => id);
    world.sameAs.set(3, 1);
    world.setVersion(3).runUntilSettled();
    expect(world.state).toMatchObject({ phase: 'completed', version: 3, activeVersion: 3 });
    expect(world.replicas.map(({ id }) => id)).toEqual(expect.arrayContaining(old));
  });
});

describe('advanceRollout with failures', () => {
  it('fails after maxFailedNew failures of new replicas, and takes no further step', () => {
    const world = aCompletedRollout({ maxFailedNew: 3 }).setVersion(2);
    world.broken.add(2);
    world.runUntilSettled();
    world.failures = 2;
    expect(world.runUntilSettled().state.phase).toBe('inProgress');
    world.failures = 3;
    const before = world.versions;
    expect(world.runUntilSettled().state).toMatchObject({
      phase: 'failed',
      reason: 'new replicas failed 3 times',
      activeVersion: 1,
    });
    expect(world.versions).toEqual(before);
    expect(world.events.filter((kind) => kind === 'failed')).toHaveLength(1);
  });

  it.each([
    { maxFailedNew: 0, failures: 1, text: 'new replicas failed once' },
    { maxFailedNew: 1, failures: 1, text: 'new replicas failed once' },
  ])('with max_failed_new $maxFailedNew fails at the first', ({ maxFailedNew, failures, text }) => {
    const world = aCompletedRollout({ maxFailedNew }).setVersion(2);
    world.decideOnce();
    world.failures = failures;
    expect(world.decideOnce().state).toMatchObject({ phase: 'failed', reason: text });
  });

  it('fails when the progress deadline passes after the last progress', () => {
    const world = aCompletedRollout({ progressDeadlineMs: 10_000 }).setVersion(2);
    world.broken.add(2);
    world.runUntilSettled();
    const due = world.runUntilSettled().wakeAtMs;
    expect(due).toBe(world.nowMs + 10_000);
    expect(world.advanceTime(9_999).runUntilSettled().state.phase).toBe('inProgress');
    expect(world.advanceTime(1).runUntilSettled().state.phase).toBe('failed');
    expect(world.state.reason).toBe('no progress for 10s: 3 of 4 replicas are ready, 2 not yet');
  });

  it('restarts the progress deadline after a change of the spec', () => {
    const world = aCompletedRollout({ progressDeadlineMs: 10_000 }).setVersion(2);
    world.broken.add(2);
    world.runUntilSettled();
    world.advanceTime(9_999).decideOnce({ changed: true });
    expect(world.advanceTime(9_999).runUntilSettled().state.phase).toBe('inProgress');
  });

  it('does not prolong the progress deadline when the clock was set back', () => {
    const world = aCompletedRollout({ progressDeadlineMs: 10_000 }).setVersion(2);
    world.broken.add(2);
    world.runUntilSettled();
    world.advanceTime(-500_000).runUntilSettled();
    expect(world.advanceTime(9_999).runUntilSettled().state.phase).toBe('inProgress');
    expect(world.advanceTime(1).runUntilSettled().state.phase).toBe('failed');
  });

  it('does not fail while RECREATE waits for stops', () => {
    const world = aCompletedRollout({
      strategy: 'recreate',
      progressDeadlineMs: 10_000,
    }).setVersion(2);
    world.delaysStops = true;
    world.runUntilSettled();
    expect(world.advanceTime(60_000).runUntilSettled()).toMatchObject({
      state: { phase: 'inProgress' },
    });
    expect(world.state.waitsUntilMs).toBeUndefined();
    world.confirmStops();
    world.broken.add(2);
    world.runUntilSettled();
    expect(world.advanceTime(9_999).runUntilSettled().state.phase).toBe('inProgress');
    expect(world.advanceTime(1).runUntilSettled().state.phase).toBe('failed');
  });

  it('continues after a retry, without counting earlier failures', () => {
    const world = aCompletedRollout().setVersion(2);
    world.broken.add(2);
    world.failures = 3;
    world.runUntilSettled();
    world.runUntilSettled();
    expect(world.state.phase).toBe('failed');
    world.state = { ...world.state, retry: true };
    expect(world.runUntilSettled().state).toMatchObject({
      phase: 'inProgress',
      forgiven: 3,
      retry: false,
    });
    world.broken.delete(2);
    expect(world.runUntilSettled().state.phase).toBe('completed');
  });

  it('rolls back with onFailure rollback, and ends in phase rolledBack', () => {
    const world = aCompletedRollout({ onFailure: 'rollback' }).setVersion(2);
    world.broken.add(2);
    world.decideOnce();
    world.failures = 3;
    expect(world.runUntilSettled()).toMatchObject({
      rollBackTo: 1,
      state: { phase: 'failed', rollsBack: 2 },
    });
    world.sameAs.set(3, 1);
    world.failures = 0;
    world.setVersion(3).runUntilSettled();
    expect(world.state).toMatchObject({ phase: 'rolledBack', activeVersion: 3, rollsBack: 0 });
    expect(world.events).toEqual(['started', 'rolledBack']);
    expect(world.versions).toEqual([1, 1, 1, 1]);
  });

  it('does not roll back a failed rollback', () => {
    const world = aCompletedRollout({ onFailure: 'rollback' }).setVersion(2);
    world.decideOnce();
    world.failures = 3;
    world.runUntilSettled();
    world.setVersion(3);
    world.broken.add(3);
    world.failures = 0;
    world.decideOnce();
    world.failures = 3;
    expect(world.runUntilSettled().rollBackTo).toBeUndefined();
    expect(world.state).toMatchObject({ phase: 'failed', version: 3, rollsBack: 2 });
  });

  it('ends a rollback at a change of the spec', () => {
    const world = aCompletedRollout({ onFailure: 'rollback' }).setVersion(2);
    world.decideOnce();
    world.failures = 3;
    world.runUntilSettled();
    world.failures = 0;
    world.setVersion(3).decideOnce();
    expect(world.state.rollsBackFrom).toBe(2);
    world.setVersion(4).runUntilSettled();
    expect(world.state).toMatchObject({ phase: 'completed', rollsBack: 0 });
  });

  it('continues trying after the failure of a first deployment', () => {
    const world = new SimulatedRollout(2, SETTINGS);
    world.broken.add(1);
    world.decideOnce();
    world.failures = 3;
    expect(world.runUntilSettled().state).toMatchObject({ phase: 'failed', activeVersion: 0 });
    world.replicas.pop();
    world.decideOnce();
    expect(world.versions).toEqual([1, 1]);
    world.broken.clear();
    expect(world.runUntilSettled().state).toMatchObject({ phase: 'completed', activeVersion: 1 });
  });
});

describe('advanceRollout with canary steps', () => {
  const stages: RolloutSettings['canarySteps'] = [
    { size: { replicas: 1 }, wait: 'promotion' },
    { size: { percent: 30 }, wait: { ms: 5_000 } },
  ];

  it('waits at each step for a promotion or a time, then updates all replicas', () => {
    const world = aCompletedRollout({ canarySteps: stages }).setVersion(2);
    const first = world.runUntilSettled();
    expect(first.state).toMatchObject({ phase: 'paused', waitsForPromotion: true, stagesDone: 0 });
    expect(first.state.reason).toBe(
      'step 1 of 2: 1 of 4 replicas run version 2; waits for a promotion',
    );
    expect(world.versions).toEqual([1, 1, 1, 2]);
    expect(world.advanceTime(3_600_000).runUntilSettled().state.phase).toBe('paused'); // no deadline runs meanwhile
    world.state = { ...world.state, promoted: true };
    const second = world.runUntilSettled();
    expect(second.state).toMatchObject({
      phase: 'inProgress',
      stagesDone: 1,
      promoted: false,
      untilMs: world.nowMs + 5_000,
    });
    expect([world.versions, second.wakeAtMs]).toEqual([[1, 1, 2, 2], world.nowMs + 5_000]);
    world.advanceTime(4_999).runUntilSettled();
    expect(world.state.stepsDone).toBe(1);
    world.advanceTime(1).runUntilSettled();
    expect(world.state).toMatchObject({ phase: 'completed', stagesDone: 2 });
    expect(world.versions).toEqual([2, 2, 2, 2]);
    expect(world.events).toEqual(['started', 'stageReached', 'stageReached', 'completed']);
  });

  it('restarts the wait of a step when its replicas did not stay available', () => {
    const world = aCompletedRollout({
      canarySteps: [{ size: { replicas: 1 }, wait: { ms: 5_000 } }],
    }).setVersion(2);
    world.runUntilSettled();
    world.advanceTime(4_999);
    world.broken.add(2);
    world.runUntilSettled();
    expect(world.state.stepReachedAtMs).toBeUndefined();
    world.broken.delete(2);
    world.decideOnce();
    world.advanceTime(1).runUntilSettled();
    expect(world.state).toMatchObject({ phase: 'inProgress', stagesDone: 0 });
    world.advanceTime(5_000).runUntilSettled();
    expect(world.state.phase).toBe('completed');
  });

  it('rolls back without canary steps', () => {
    const world = aCompletedRollout({ canarySteps: stages, onFailure: 'rollback' }).setVersion(2);
    world.runUntilSettled();
    world.failures = 3;
    world.state = { ...world.state, promoted: true };
    world.runUntilSettled();
    expect(world.state).toMatchObject({ phase: 'failed', rollsBack: 2 });
    world.failures = 0;
    world.sameAs.set(3, 1);
    expect(world.setVersion(3).runUntilSettled().state.phase).toBe('rolledBack');
    expect(world.events).toEqual(['started', 'rolledBack']);
  });

  it('never reduces the updated replicas from step to step, in replicas or percent', () => {
    const world = aCompletedRollout({
      canarySteps: [
        { size: { replicas: 3 }, wait: { ms: 1_000 } },
        { size: { percent: 25 }, wait: 'promotion' },
      ],
    });
    world.setVersion(2).runUntilSettled();
    expect(world.versions).toEqual([1, 2, 2, 2]);
    world.advanceTime(1_000).runUntilSettled();
    expect([world.versions, world.state.stepsDone]).toEqual([[1, 2, 2, 2], 1]);
    expect(world.state.reason).toBe(
      'step 2 of 2: 3 of 4 replicas run version 2; waits for a promotion',
    );
  });

  it('waits also at a step of all replicas', () => {
    const world = aCompletedRollout(
      { canarySteps: [{ size: { percent: 25 }, wait: 'promotion' }] },
      1,
    ).setVersion(2);
    expect(world.runUntilSettled().state).toMatchObject({
      phase: 'paused',
      waitsForPromotion: true,
    });
    expect(world.versions).toEqual([2]);
    world.state = { ...world.state, promoted: true };
    expect(world.runUntilSettled().state.phase).toBe('completed');
    expect(world.events).toEqual(['started', 'stageReached', 'completed']);
  });

  it.each<{ name: string; settings: Partial<RolloutSettings> }>([
    { name: 'its steps are removed from the spec', settings: { canarySteps: [] } },
    { name: 'its strategy changes', settings: { strategy: 'recreate' } },
  ])('has a deadline again when $name while it waits', ({ settings }) => {
    const world = aCompletedRollout({ canarySteps: stages, progressDeadlineMs: 10_000 }).setVersion(
      2,
    );
    world.runUntilSettled();
    world.settings = { ...world.settings, ...settings };
    world.broken.add(2);
    world.runUntilSettled();
    expect(world.state.stepReachedAtMs).toBeUndefined();
    expect(world.advanceTime(10_000).runUntilSettled().state.phase).toBe('failed');
  });

  it('continues to wait while a replica of the previous version is replaced', () => {
    const world = aCompletedRollout({ canarySteps: stages }).setVersion(2);
    world.runUntilSettled();
    world.replicas = world.replicas.filter(
      ({ version, id }) => version !== 1 || id !== world.replicas[0]?.id,
    );
    const { state } = world.decideOnce();
    expect(state).toMatchObject({ phase: 'paused', waitsForPromotion: true });
    expect(world.runUntilSettled().state.phase).toBe('paused');
    expect(world.events).toEqual(['started', 'stageReached']);
  });

  it('uses no canary steps in a first deployment', () => {
    const world = aCompletedRollout({ canarySteps: stages });
    expect(world.events).toEqual(['started', 'completed']);
  });
});

describe('advanceRollout while paused', () => {
  it('takes no step and counts no deadline, and continues after the resume', () => {
    const world = aCompletedRollout({ progressDeadlineMs: 10_000 }).setVersion(2);
    world.decideOnce();
    world.pausedByUser = true;
    expect(world.runUntilSettled().state).toMatchObject({ phase: 'paused' });
    const { versions } = world;
    world.advanceTime(60_000).runUntilSettled();
    expect([world.versions, world.state.phase]).toEqual([versions, 'paused']);
    world.pausedByUser = false;
    expect(world.runUntilSettled().state.phase).toBe('completed');
    expect(world.events).toEqual(['started', 'paused', 'resumed', 'completed']);
  });

  it('pauses at impossible limits until they change', () => {
    const world = aCompletedRollout().setVersion(2);
    const stuck = {
      ...resolveLimits({ desired: 4, minAvailable: 4, maxSurge: 0 }),
      replicas: world.replicas,
    };
    expect(world.decideOnce({ observed: stuck }).state).toMatchObject({
      phase: 'paused',
      reason: 'max_surge 0 and min_available 4 of 4 leave no possible move',
    });
    expect(world.runUntilSettled().state.phase).toBe('completed');
  });
});

describe('advanceRollout with blue/green', () => {
  const blueGreen: Partial<RolloutSettings> = { strategy: 'blueGreen', pauseMs: 30_000 };

  it('switches when the new set is available, and keeps the previous set for pauseMs', () => {
    const world = aCompletedRollout(blueGreen).setVersion(2);
    world.broken.add(2);
    world.runUntilSettled();
    expect([world.versions, world.state.activeVersion]).toEqual([[1, 1, 1, 1, 2, 2, 2, 2], 1]);
    world.broken.delete(2);
    world.runUntilSettled();
    expect(world.state).toMatchObject({
      phase: 'inProgress',
      activeVersion: 2,
      untilMs: world.nowMs + 30_000,
    });
    expect(world.versions).toEqual([1, 1, 1, 1, 2, 2, 2, 2]);
    world.advanceTime(30_000).runUntilSettled();
    expect([world.versions, world.state.phase]).toEqual([[2, 2, 2, 2], 'completed']);
    expect(world.events).toEqual(['started', 'switched', 'completed']);
  });

  it('waits for a promotion with manualSwitch', () => {
    const world = aCompletedRollout({ ...blueGreen, manualSwitch: true }).setVersion(2);
    expect(world.runUntilSettled().state).toMatchObject({
      phase: 'paused',
      waitsForPromotion: true,
      activeVersion: 1,
    });
    world.advanceTime(3_600_000).runUntilSettled();
    world.state = { ...world.state, promoted: true };
    expect(world.runUntilSettled().state).toMatchObject({
      activeVersion: 2,
      waitsForPromotion: false,
    });
  });

  it.each([
    { when: 'while the former set is kept', progressDeadlineMs: 10_000, former: 3 },
    { when: 'and the former set has gone meanwhile', progressDeadlineMs: 40_000, former: 0 },
  ])(
    'fails and rolls back when the new set stops being available $when',
    ({ progressDeadlineMs, former }) => {
      const world = aCompletedRollout(
        { ...blueGreen, onFailure: 'rollback', progressDeadlineMs },
        3,
      ).setVersion(2);
      world.runUntilSettled();
      expect(world.advanceTime(5_000).runUntilSettled().state).toMatchObject({
        activeVersion: 2,
        phase: 'inProgress',
      });
      world.broken.add(2);
      world.runUntilSettled();
      world.advanceTime(progressDeadlineMs - 1).runUntilSettled();
      expect(world.state.phase).toBe('inProgress');
      expect(world.advanceTime(1).runUntilSettled()).toMatchObject({ rollBackTo: 1 });
      expect(world.versions.filter((version) => version === 1)).toHaveLength(former);
    },
  );

  it('adds one event when it starts to wait for a promotion, and none when the wait ends', () => {
    const world = aCompletedRollout({ ...blueGreen, manualSwitch: true }).setVersion(2);
    world.runUntilSettled();
    world.broken.add(2);
    world.runUntilSettled();
    expect(world.state.phase).toBe('inProgress');
    expect(world.events).toEqual(['started', 'awaitsPromotion']);
  });

  it('returns to a kept previous set without a promotion', () => {
    const world = aCompletedRollout({ ...blueGreen, manualSwitch: true }).setVersion(2);
    world.runUntilSettled();
    world.state = { ...world.state, promoted: true };
    world.runUntilSettled();
    world.sameAs.set(3, 1);
    const former = world.replicas.filter(({ version }) => version === 1).map(({ id }) => id);
    world.setVersion(3).decideOnce();
    expect(world.state.activeVersion).toBe(3);
    expect(world.replicas.map(({ id }) => id)).toEqual(expect.arrayContaining(former));
    world.advanceTime(30_000).runUntilSettled();
    expect([world.versions, world.state.phase]).toEqual([[1, 1, 1, 1], 'completed']);
  });

  it('changes to another strategy only when the set that does not serve is gone', () => {
    const world = aCompletedRollout(blueGreen).setVersion(2);
    world.broken.add(2);
    world.runUntilSettled();
    world.settings = { ...world.settings, strategy: 'rollingUpdate' };
    const leaving = world.decideOnce();
    expect(leaving.observed).toMatchObject({
      version: 1,
      strategy: { kind: 'blueGreen', activeVersion: 1 },
    });
    world.runUntilSettled();
    expect(world.state.strategy).toBe('rollingUpdate');
    world.broken.delete(2);
    world.decideOnce();
    world.runUntilSettled();
    expect([world.versions, world.state.phase]).toEqual([[2, 2, 2, 2], 'completed']);
  });

  it('changes to blue/green only when one version is live', () => {
    const world = aCompletedRollout().setVersion(2);
    for (let step = 0; step < 3; step += 1) world.decideOnce();
    world.settings = { ...world.settings, ...blueGreen };
    world.decideOnce();
    expect(world.state.strategy).toBe('rollingUpdate');
    world.runUntilSettled();
    world.decideOnce();
    expect(world.state).toMatchObject({ phase: 'completed', strategy: 'blueGreen' });
  });
});
