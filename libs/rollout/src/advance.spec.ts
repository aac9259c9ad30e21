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
  stages: [],
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
class World {
  state: RolloutState = NO_ROLLOUT;
  nowMs = 1_000;
  version = 1;
  failures = 0;
  pausedByUser = false;
  /** Whether stops are ordered but not confirmed. */
  holdsStops = false;
  /** Versions whose replicas never become available. */
  readonly broken = new Set<number>();
  readonly sameAs = new Map<number, number>();
  readonly told: string[] = [];
  /** The fewest available replicas of the serving version so far. */
  lowestReady = Number.POSITIVE_INFINITY;
  replicas: RolloutReplica[] = [];
  private made = 0;

  constructor(
    readonly want: number,
    public settings: RolloutSettings,
  ) {}

  /** Makes one decision and applies its steps. */
  step(changes: Partial<RolloutSituation> = {}): RolloutAdvance {
    const canonical = (version: number): number => this.sameAs.get(version) ?? version;
    this.replicas = this.replicas.map((replica): RolloutReplica => ({
      ...replica,
      ready: !this.broken.has(replica.version),
    }));
    const advance = advanceRollout(this.state, {
      settings: this.settings,
      version: this.version,
      canonical,
      observed: { ...resolveLimits({ desired: this.want }), replicas: this.replicas },
      pausedByUser: this.pausedByUser,
      failures: this.failures,
      changed: false,
      nowMs: this.nowMs,
      ...changes,
    });
    this.state = advance.state;
    this.told.push(...advance.news.map(({ kind }) => kind));
    if (advance.decision.kind === 'steps') {
      for (const step of advance.decision.steps) {
        if (step.kind === 'createReplica') this.create(step.version);
        if (step.kind === 'stopReplica') this.stop(step.replicaId);
      }
    }
    return advance;
  }

  /** Decides until no step is possible. */
  run(): RolloutAdvance {
    for (let round = 0; ; round += 1) {
      if (round > 1_000) throw new Error(`never settles: ${JSON.stringify(this.state)}`);
      const before = this.state;
      const advance = this.step();
      if (
        advance.decision.kind !== 'steps' &&
        JSON.stringify(before) === JSON.stringify(this.state)
      )
        return advance;
      if (advance.rollBackTo !== undefined) return advance;
    }
  }

  update(version: number, settings: Partial<RolloutSettings> = {}): this {
    this.version = version;
    this.settings = { ...this.settings, ...settings };
    this.told.length = 0;
    return this;
  }

  later(ms: number): this {
    this.nowMs += ms;
    return this;
  }

  get versions(): readonly number[] {
    return this.replicas.map(({ version }) => version).sort((a, b) => a - b);
  }

  letStop(): void {
    this.holdsStops = false;
    this.replicas = this.replicas.filter(({ desired }) => desired === 'running');
  }

  private stop(replicaId: string): void {
    this.replicas = this.replicas.map((replica) =>
      replica.id === replicaId ? { ...replica, desired: 'stopped' } : replica,
    );
    if (!this.holdsStops) this.letStop();
  }

  private create(version: number): void {
    const createdSequence = (this.made += 1);
    const id = toReplicaId(`w-${createdSequence}`);
    this.replicas.push({
      id,
      version,
      ready: false,
      desired: 'running',
      lost: false,
      draining: false,
      createdSequence,
    });
  }
}

/** A workload of 4 replicas whose version 1 is rolled out. */
function running(settings: Partial<RolloutSettings> = {}, want = 4): World {
  const world = new World(want, { ...SETTINGS, ...settings });
  world.run();
  expect(world.state).toMatchObject({ phase: 'completed', activeVersion: 1 });
  return world;
}

describe('advanceRollout', () => {
  it('starts a rollout, and completes it when no replica of another version is left', () => {
    const world = running().update(2);
    expect(world.step()).toMatchObject({
      state: { phase: 'inProgress', version: 2, fromVersion: 1, activeVersion: 1 },
    });
    world.run();
    expect(world.state).toMatchObject({ phase: 'completed', activeVersion: 2, reason: '' });
    expect([world.versions, world.told]).toEqual([
      [2, 2, 2, 2],
      ['started', 'completed'],
    ]);
  });

  it('supersedes an unfinished rollout', () => {
    const world = running().update(2);
    for (let step = 0; step < 3; step += 1) world.step();
    expect(new Set(world.versions)).toEqual(new Set([1, 2]));
    world.update(3);
    const made = world.replicas.length;
    world.run();
    expect(made).toBeGreaterThan(0);
    expect([world.versions, world.state.activeVersion, world.told]).toEqual([
      [3, 3, 3, 3],
      3,
      ['started', 'completed'],
    ]);
  });

  it('keeps replicas when their template is wanted again', () => {
    const world = running().update(2);
    world.broken.add(2);
    world.run();
    const old = world.replicas.filter(({ version }) => version === 1).map(({ id }) => id);
    world.sameAs.set(3, 1);
    world.update(3).run();
    expect(world.state).toMatchObject({ phase: 'completed', version: 3, activeVersion: 3 });
    expect(world.replicas.map(({ id }) => id)).toEqual(expect.arrayContaining(old));
  });
});

describe('advanceRollout with failures', () => {
  it('fails after maxFailedNew failures of new replicas, and takes no further step', () => {
    const world = running({ maxFailedNew: 3 }).update(2);
    world.broken.add(2);
    world.run();
    world.failures = 2;
    expect(world.run().state.phase).toBe('inProgress');
    world.failures = 3;
    const before = world.versions;
    expect(world.run().state).toMatchObject({
      phase: 'failed',
      reason: 'new replicas failed 3 times',
      activeVersion: 1,
    });
    expect(world.versions).toEqual(before);
    expect(world.told.filter((kind) => kind === 'failed')).toHaveLength(1);
  });

  it.each([
    { maxFailedNew: 0, failures: 1, text: 'new replicas failed once' },
    { maxFailedNew: 1, failures: 1, text: 'new replicas failed once' },
  ])('with max_failed_new $maxFailedNew fails at the first', ({ maxFailedNew, failures, text }) => {
    const world = running({ maxFailedNew }).update(2);
    world.step();
    world.failures = failures;
    expect(world.step().state).toMatchObject({ phase: 'failed', reason: text });
  });

  it('fails when the progress deadline passes after the last progress', () => {
    const world = running({ progressDeadlineMs: 10_000 }).update(2);
    world.broken.add(2);
    world.run();
    const due = world.run().wakeAtMs;
    expect(due).toBe(world.nowMs + 10_000);
    expect(world.later(9_999).run().state.phase).toBe('inProgress');
    expect(world.later(1).run().state.phase).toBe('failed');
    expect(world.state.reason).toBe('no progress for 10s: 3 of 4 replicas are ready, 2 not yet');
  });

  it('restarts the progress deadline after a change of the spec', () => {
    const world = running({ progressDeadlineMs: 10_000 }).update(2);
    world.broken.add(2);
    world.run();
    world.later(9_999).step({ changed: true });
    expect(world.later(9_999).run().state.phase).toBe('inProgress');
  });

  it('does not prolong the progress deadline when the clock was set back', () => {
    const world = running({ progressDeadlineMs: 10_000 }).update(2);
    world.broken.add(2);
    world.run();
    world.later(-500_000).run();
    expect(world.later(9_999).run().state.phase).toBe('inProgress');
    expect(world.later(1).run().state.phase).toBe('failed');
  });

  it('does not fail while RECREATE waits for stops', () => {
    const world = running({ strategy: 'recreate', progressDeadlineMs: 10_000 }).update(2);
    world.holdsStops = true;
    world.run();
    expect(world.later(60_000).run()).toMatchObject({ state: { phase: 'inProgress' } });
    expect(world.state.untilMs).toBeUndefined();
    world.letStop();
    world.broken.add(2);
    world.run();
    expect(world.later(9_999).run().state.phase).toBe('inProgress');
    expect(world.later(1).run().state.phase).toBe('failed');
  });

  it('continues after a retry, without counting earlier failures', () => {
    const world = running().update(2);
    world.broken.add(2);
    world.failures = 3;
    world.run();
    world.run();
    expect(world.state.phase).toBe('failed');
    world.state = { ...world.state, retry: true };
    expect(world.run().state).toMatchObject({ phase: 'inProgress', forgiven: 3, retry: false });
    world.broken.delete(2);
    expect(world.run().state.phase).toBe('completed');
  });

  it('rolls back with onFailure rollback, and ends in phase rolledBack', () => {
    const world = running({ onFailure: 'rollback' }).update(2);
    world.broken.add(2);
    world.step();
    world.failures = 3;
    expect(world.run()).toMatchObject({ rollBackTo: 1, state: { phase: 'failed', rollsBack: 2 } });
    world.sameAs.set(3, 1);
    world.failures = 0;
    world.update(3).run();
    expect(world.state).toMatchObject({ phase: 'rolledBack', activeVersion: 3, rollsBack: 0 });
    expect(world.told).toEqual(['started', 'rolledBack']);
    expect(world.versions).toEqual([1, 1, 1, 1]);
  });

  it('does not roll back a failed rollback', () => {
    const world = running({ onFailure: 'rollback' }).update(2);
    world.step();
    world.failures = 3;
    world.run();
    world.update(3);
    world.broken.add(3);
    world.failures = 0;
    world.step();
    world.failures = 3;
    expect(world.run().rollBackTo).toBeUndefined();
    expect(world.state).toMatchObject({ phase: 'failed', version: 3, rollsBack: 2 });
  });

  it('ends a rollback at a change of the spec', () => {
    const world = running({ onFailure: 'rollback' }).update(2);
    world.step();
    world.failures = 3;
    world.run();
    world.failures = 0;
    world.update(3).step();
    expect(world.state.rollsBack).toBe(2);
    world.update(4).run();
    expect(world.state).toMatchObject({ phase: 'completed', rollsBack: 0 });
  });

  it('continues trying after the failure of a first deployment', () => {
    const world = new World(2, SETTINGS);
    world.broken.add(1);
    world.step();
    world.failures = 3;
    expect(world.run().state).toMatchObject({ phase: 'failed', activeVersion: 0 });
    world.replicas.pop();
    world.step();
    expect(world.versions).toEqual([1, 1]);
    world.broken.clear();
    expect(world.run().state).toMatchObject({ phase: 'completed', activeVersion: 1 });
  });
});

describe('advanceRollout with canary steps', () => {
  const stages: RolloutSettings['stages'] = [
    { size: { replicas: 1 }, wait: 'promotion' },
    { size: { percent: 30 }, wait: { ms: 5_000 } },
  ];

  it('waits at each step for a promotion or a time, then updates all replicas', () => {
    const world = running({ stages }).update(2);
    const first = world.run();
    expect(first.state).toMatchObject({ phase: 'paused', waitsForPromotion: true, stagesDone: 0 });
    expect(first.state.reason).toBe(
      'step 1 of 2: 1 of 4 replicas run version 2; waits for a promotion',
    );
    expect(world.versions).toEqual([1, 1, 1, 2]);
    expect(world.later(3_600_000).run().state.phase).toBe('paused'); // no deadline runs meanwhile
    world.state = { ...world.state, promoted: true };
    const second = world.run();
    expect(second.state).toMatchObject({
      phase: 'inProgress',
      stagesDone: 1,
      promoted: false,
      untilMs: world.nowMs + 5_000,
    });
    expect([world.versions, second.wakeAtMs]).toEqual([[1, 1, 2, 2], world.nowMs + 5_000]);
    world.later(4_999).run();
    expect(world.state.stagesDone).toBe(1);
    world.later(1).run();
    expect(world.state).toMatchObject({ phase: 'completed', stagesDone: 2 });
    expect(world.versions).toEqual([2, 2, 2, 2]);
    expect(world.told).toEqual(['started', 'stageReached', 'stageReached', 'completed']);
  });

  it('restarts the wait of a step when its replicas did not stay available', () => {
    const world = running({ stages: [{ size: { replicas: 1 }, wait: { ms: 5_000 } }] }).update(2);
    world.run();
    world.later(4_999);
    world.broken.add(2);
    world.run();
    expect(world.state.stageReachedAtMs).toBeUndefined();
    world.broken.delete(2);
    world.step();
    world.later(1).run();
    expect(world.state).toMatchObject({ phase: 'inProgress', stagesDone: 0 });
    world.later(5_000).run();
    expect(world.state.phase).toBe('completed');
  });

  it('rolls back without canary steps', () => {
    const world = running({ stages, onFailure: 'rollback' }).update(2);
    world.run();
    world.failures = 3;
    world.state = { ...world.state, promoted: true };
    world.run();
    expect(world.state).toMatchObject({ phase: 'failed', rollsBack: 2 });
    world.failures = 0;
    world.sameAs.set(3, 1);
    expect(world.update(3).run().state.phase).toBe('rolledBack');
    expect(world.told).toEqual(['started', 'rolledBack']);
  });

  it('never reduces the updated replicas from step to step, in replicas or percent', () => {
    const world = running({
      stages: [
        { size: { replicas: 3 }, wait: { ms: 1_000 } },
        { size: { percent: 25 }, wait: 'promotion' },
      ],
    });
    world.update(2).run();
    expect(world.versions).toEqual([1, 2, 2, 2]);
    world.later(1_000).run();
    expect([world.versions, world.state.stagesDone]).toEqual([[1, 2, 2, 2], 1]);
    expect(world.state.reason).toBe(
      'step 2 of 2: 3 of 4 replicas run version 2; waits for a promotion',
    );
  });

  it('waits also at a step of all replicas', () => {
    const world = running({ stages: [{ size: { percent: 25 }, wait: 'promotion' }] }, 1).update(2);
    expect(world.run().state).toMatchObject({ phase: 'paused', waitsForPromotion: true });
    expect(world.versions).toEqual([2]);
    world.state = { ...world.state, promoted: true };
    expect(world.run().state.phase).toBe('completed');
    expect(world.told).toEqual(['started', 'stageReached', 'completed']);
  });

  it.each<{ name: string; settings: Partial<RolloutSettings> }>([
    { name: 'its steps are removed from the spec', settings: { stages: [] } },
    { name: 'its strategy changes', settings: { strategy: 'recreate' } },
  ])('has a deadline again when $name while it waits', ({ settings }) => {
    const world = running({ stages, progressDeadlineMs: 10_000 }).update(2);
    world.run();
    world.settings = { ...world.settings, ...settings };
    world.broken.add(2);
    world.run();
    expect(world.state.stageReachedAtMs).toBeUndefined();
    expect(world.later(10_000).run().state.phase).toBe('failed');
  });

  it('continues to wait while a replica of the previous version is replaced', () => {
    const world = running({ stages }).update(2);
    world.run();
    world.replicas = world.replicas.filter(
      ({ version, id }) => version !== 1 || id !== world.replicas[0]?.id,
    );
    const { state } = world.step();
    expect(state).toMatchObject({ phase: 'paused', waitsForPromotion: true });
    expect(world.run().state.phase).toBe('paused');
    expect(world.told).toEqual(['started', 'stageReached']);
  });

  it('uses no canary steps in a first deployment', () => {
    const world = running({ stages });
    expect(world.told).toEqual(['started', 'completed']);
  });
});

describe('advanceRollout while paused', () => {
  it('takes no step and counts no deadline, and continues after the resume', () => {
    const world = running({ progressDeadlineMs: 10_000 }).update(2);
    world.step();
    world.pausedByUser = true;
    expect(world.run().state).toMatchObject({ phase: 'paused' });
    const { versions } = world;
    world.later(60_000).run();
    expect([world.versions, world.state.phase]).toEqual([versions, 'paused']);
    world.pausedByUser = false;
    expect(world.run().state.phase).toBe('completed');
    expect(world.told).toEqual(['started', 'paused', 'resumed', 'completed']);
  });

  it('pauses at impossible limits until they change', () => {
    const world = running().update(2);
    const stuck = {
      ...resolveLimits({ desired: 4, minAvailable: 4, maxSurge: 0 }),
      replicas: world.replicas,
    };
    expect(world.step({ observed: stuck }).state).toMatchObject({
      phase: 'paused',
      reason: 'max_surge 0 and min_available 4 of 4 leave no possible move',
    });
    expect(world.run().state.phase).toBe('completed');
  });
});

describe('advanceRollout with blue/green', () => {
  const blueGreen: Partial<RolloutSettings> = { strategy: 'blueGreen', pauseMs: 30_000 };

  it('switches when the new set is available, and keeps the previous set for pauseMs', () => {
    const world = running(blueGreen).update(2);
    world.broken.add(2);
    world.run();
    expect([world.versions, world.state.activeVersion]).toEqual([[1, 1, 1, 1, 2, 2, 2, 2], 1]);
    world.broken.delete(2);
    world.run();
    expect(world.state).toMatchObject({
      phase: 'inProgress',
      activeVersion: 2,
      untilMs: world.nowMs + 30_000,
    });
    expect(world.versions).toEqual([1, 1, 1, 1, 2, 2, 2, 2]);
    world.later(30_000).run();
    expect([world.versions, world.state.phase]).toEqual([[2, 2, 2, 2], 'completed']);
    expect(world.told).toEqual(['started', 'switched', 'completed']);
  });

  it('waits for a promotion with manualSwitch', () => {
    const world = running({ ...blueGreen, manualSwitch: true }).update(2);
    expect(world.run().state).toMatchObject({
      phase: 'paused',
      waitsForPromotion: true,
      activeVersion: 1,
    });
    world.later(3_600_000).run();
    world.state = { ...world.state, promoted: true };
    expect(world.run().state).toMatchObject({ activeVersion: 2, waitsForPromotion: false });
  });

  it.each([
    { when: 'while the former set is kept', progressDeadlineMs: 10_000, former: 3 },
    { when: 'and the former set has gone meanwhile', progressDeadlineMs: 40_000, former: 0 },
  ])(
    'fails and rolls back when the new set stops being available $when',
    ({ progressDeadlineMs, former }) => {
      const world = running({ ...blueGreen, onFailure: 'rollback', progressDeadlineMs }, 3).update(
        2,
      );
      world.run();
      expect(world.later(5_000).run().state).toMatchObject({
        activeVersion: 2,
        phase: 'inProgress',
      });
      world.broken.add(2);
      world.run();
      world.later(progressDeadlineMs - 1).run();
      expect(world.state.phase).toBe('inProgress');
      expect(world.later(1).run()).toMatchObject({ rollBackTo: 1 });
      expect(world.versions.filter((version) => version === 1)).toHaveLength(former);
    },
  );

  it('adds one event when it starts to wait for a promotion, and none when the wait ends', () => {
    const world = running({ ...blueGreen, manualSwitch: true }).update(2);
    world.run();
    world.broken.add(2);
    world.run();
    expect(world.state.phase).toBe('inProgress');
    expect(world.told).toEqual(['started', 'awaitsPromotion']);
  });

  it('returns to a kept previous set without a promotion', () => {
    const world = running({ ...blueGreen, manualSwitch: true }).update(2);
    world.run();
    world.state = { ...world.state, promoted: true };
    world.run();
    world.sameAs.set(3, 1);
    const former = world.replicas.filter(({ version }) => version === 1).map(({ id }) => id);
    world.update(3).step();
    expect(world.state.activeVersion).toBe(3);
    expect(world.replicas.map(({ id }) => id)).toEqual(expect.arrayContaining(former));
    world.later(30_000).run();
    expect([world.versions, world.state.phase]).toEqual([[1, 1, 1, 1], 'completed']);
  });

  it('changes to another strategy only when the set that does not serve is gone', () => {
    const world = running(blueGreen).update(2);
    world.broken.add(2);
    world.run();
    world.settings = { ...world.settings, strategy: 'rollingUpdate' };
    const leaving = world.step();
    expect(leaving.observed).toMatchObject({
      version: 1,
      strategy: { kind: 'blueGreen', activeVersion: 1 },
    });
    world.run();
    expect(world.state.strategy).toBe('rollingUpdate');
    world.broken.delete(2);
    world.step();
    world.run();
    expect([world.versions, world.state.phase]).toEqual([[2, 2, 2, 2], 'completed']);
  });

  it('changes to blue/green only when one version is live', () => {
    const world = running().update(2);
    for (let step = 0; step < 3; step += 1) world.step();
    world.settings = { ...world.settings, ...blueGreen };
    world.step();
    expect(world.state.strategy).toBe('rollingUpdate');
    world.run();
    world.step();
    expect(world.state).toMatchObject({ phase: 'completed', strategy: 'blueGreen' });
  });
});
