import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { create } from '@bufbuild/protobuf';
import { Code } from '@connectrpc/connect';
import {
  ReplicaStatus_Phase as Phase,
  Rollout_OnFailure as OnFailure,
  Rollout_Promotion as Promotion,
  Rollout_Strategy as Strategy,
  WorkloadSpecSchema,
} from '@cloudless/api';
import { RolloutScenario } from '../test-cluster/rollout-scenario.js';

/**
 * Sentences of CLD-REQ-023 that the controller and the API implement. The specs of libs/rollout
 * cover those of the planner alone.
 */

const ms = durationFromMs;
const ROLLING = { strategy: Strategy.ROLLING_UPDATE };
const RECREATE = { strategy: Strategy.RECREATE };
const BLUE_GREEN = { strategy: Strategy.BLUE_GREEN };
const crashReplica = (restarts: number) => ({
  ready: false,
  restarts,
  lastExitCode: 7,
  lastLines: ['starting', 'no such table'],
});

describe('CLD-REQ-023 limits', () => {
  it.each([
    { name: 'the default of 3', rollout: {}, floor: 2 },
    { name: 'max_unavailable 2', rollout: { maxUnavailable: 2 }, floor: 1 },
    { name: 'an explicit 3', rollout: { minAvailable: 3 }, floor: 3 },
    {
      name: 'an explicit 3 with max_unavailable 2',
      rollout: { minAvailable: 3, maxUnavailable: 2 },
      floor: 3,
    },
    { name: 'more than the replica count', rollout: { minAvailable: 9 }, floor: 3 },
  ])(
    'a rolling update keeps min_available replicas ready at every moment: $name',
    async ({ rollout, floor }) => {
      const story = await RolloutScenario.start(rollout);
      await story.update();
      const { lowestReady, highestTotal } = await story.observe(6_000);
      expect(lowestReady).toBeGreaterThanOrEqual(floor);
      expect(highestTotal).toBe(4);
      expect(await story.status()).toMatchObject({
        minAvailable: floor,
        updatedReplicas: 3,
        readyReplicas: 3,
        totalReplicas: 3,
      });
    },
  );

  it('a rolling update surges first when no replica may be unavailable', async () => {
    const story = await RolloutScenario.start({ minAvailable: 3 });
    await story.update();
    expect(await story.observe(6_000)).toMatchObject({
      lowestReady: 3,
      highestTotal: 4,
      phases: ['IN_PROGRESS', 'COMPLETED'],
    });
  });

  it('create and update are accepted for a broken workload, and unready old replicas may always be stopped', async () => {
    const story = await RolloutScenario.start({ minAvailable: 3 });
    for (const replica of await story.replicas()) story.changeReport(replica, { ready: false });
    await story.observe(100);
    await story.update();
    await story.observe(6_000);
    expect(await story.rollout()).toMatchObject({ phase: 'COMPLETED', version: 2 });
    expect(await story.replicas(1)).toEqual([]);
  });

  it.each([
    {
      call: 'create',
      attempt: (story: RolloutScenario) => story.create({ maxSurge: 0, minAvailable: 3 }),
    },
    {
      call: 'update',
      attempt: (story: RolloutScenario) =>
        story.update({ rollout: { maxSurge: 0, minAvailable: 3 } }),
    },
  ])(
    'an explicit 0 that leaves no possible move is rejected by $call',
    async ({ call, attempt }) => {
      const story = await RolloutScenario.start();
      if (call === 'create') {
        await story.call((client) => client.deleteWorkload({ name: 'web' }));
        await story.cluster.advance(3_000);
      }
      await expect(attempt(story)).rejects.toMatchObject({
        code: Code.InvalidArgument,
        rawMessage: expect.stringContaining(
          'max_surge 0 and min_available 3 of 3 leave no possible move',
        ) as unknown,
      });
    },
  );

  it('a limit that becomes impossible by scaling pauses the rollout with the reason and never goes below min_available', async () => {
    const limits = { maxSurge: 0, minAvailable: 2, minReadyDuration: ms(500) };
    const story = await RolloutScenario.start({ ...limits, progressDeadline: ms(3_000) });
    await story.observe(500);
    await story.update();
    await story.observe(300);
    await story.call((client) => client.scaleWorkload({ name: 'web', replicas: 2 }));
    const { lowestReady } = await story.observe(6_000);
    expect(lowestReady).toBe(2);
    expect(await story.rollout()).toMatchObject({
      phase: 'PAUSED',
      reason: 'max_surge 0 and min_available 2 of 2 leave no possible move',
    });
    await story.call((client) =>
      client.updateWorkload({ name: 'web', spec: { rollout: { maxSurge: 1 } } }),
    );
    await story.observe(5_000);
    expect(await story.rollout()).toMatchObject({ phase: 'COMPLETED', version: 2, reason: '' });
  });

  it.each([
    { name: 'desired + max_surge (rolling)', rollout: { ...ROLLING, maxSurge: 2 }, highest: 5 },
    { name: '2 × desired (blue/green)', rollout: BLUE_GREEN, highest: 6 },
    { name: 'desired (recreate)', rollout: RECREATE, highest: 3 },
  ])('the ceiling of live replicas is $name', async ({ rollout, highest }) => {
    const story = await RolloutScenario.start(rollout);
    await story.update();
    expect((await story.observe(6_000)).highestTotal).toBe(highest);
    expect(await story.status()).toMatchObject({ updatedReplicas: 3, totalReplicas: 3 });
  });

  it('the ceiling of live replicas grows by 1 per replica that is being drained', async () => {
    const story = await RolloutScenario.start({ minAvailable: 3 });
    story.setBehaviour(2, 'unready');
    await story.update();
    await story.observe(300);
    expect(await story.replicas()).toHaveLength(4);
    const [old] = await story.replicas(1);
    await story.call((client) => client.drainNode({ nodeId: old!.nodeId }));
    const drained = await story.observe(1_000);
    expect(drained).toMatchObject({ lowestReady: 3, highestTotal: 5 });
  });

  it('the ceiling of live replicas is max(old, desired) while scaling down', async () => {
    const story = await RolloutScenario.start({}, { replicas: 6 });
    story.holdStops(true);
    await story.update({ replicas: 2 });
    expect(await story.observe(2_000)).toMatchObject({ highestTotal: 6 });
    story.holdStops(false);
    await story.observe(3_000);
    expect(await story.status()).toMatchObject({ updatedReplicas: 2, totalReplicas: 2 });
  });

  it('the ceiling of live replicas does not count replicas on lost nodes', async () => {
    const story = await RolloutScenario.start({ maxSurge: 1, minAvailable: 3 });
    const [old] = await story.replicas(1);
    story.cluster.agents.get(old!.nodeId)!.sendsPings = false;
    await story.observe(6_000);
    expect(await story.status()).toMatchObject({ readyReplicas: 3, totalReplicas: 3 });
  });
});

describe('CLD-REQ-023 progress', () => {
  it('steps wait for replicas that are ready for min_ready_duration', async () => {
    const story = await RolloutScenario.start({ minReadyDuration: ms(2_000), minAvailable: 3 });
    await story.observe(2_000);
    await story.update();
    await story.observe(1_800);
    // The new replica is ready, but not for long enough.
    expect(await story.replicas(1)).toHaveLength(3);
    await story.observe(600);
    expect(await story.replicas(1)).toHaveLength(2);
    await story.observe(8_000);
    expect(await story.rollout()).toMatchObject({ phase: 'COMPLETED' });
  });

  it('the progress deadline restarts with progress', async () => {
    const story = await RolloutScenario.start({ progressDeadline: ms(3_000) });
    story.setBehaviour(2, 'unready');
    await story.update();
    await story.observe(2_500);
    expect(await story.rollout()).toMatchObject({ phase: 'IN_PROGRESS' });
    for (const replica of await story.replicas(2)) story.changeReport(replica, { ready: true });
    await story.observe(2_500); // that was progress: the deadline counts from this moment
    expect(await story.rollout()).toMatchObject({ phase: 'IN_PROGRESS' });
    await story.observe(1_500);
    expect(await story.rollout()).toMatchObject({ phase: 'FAILED' });
  });

  it('extra old replicas are deleted, not restarted', async () => {
    const story = await RolloutScenario.start({}, { replicas: 5 });
    const before = (await story.replicas()).map(({ id }) => id);
    const starts = (): number =>
      [...story.cluster.agents.values()].reduce((sum, { started }) => sum + started.length, 0);
    const started = starts();
    await story.call((client) => client.scaleWorkload({ name: 'web', replicas: 2 }));
    await story.observe(2_000);
    const after = (await story.replicas()).map(({ id }) => id);
    expect(after).toHaveLength(2);
    expect(before).toEqual(expect.arrayContaining(after));
    expect(starts()).toBe(started);
  });

  it.each([
    { from: 2, to: 5 },
    { from: 5, to: 2 },
    { from: 3, to: 0 },
  ])(
    'scale and update combined end at exactly the desired count: $from to $to',
    async ({ from, to }) => {
      const story = await RolloutScenario.start({}, { replicas: from });
      await story.update({ replicas: to });
      await story.observe(8_000);
      expect(await story.status()).toMatchObject({
        updatedReplicas: to,
        readyReplicas: to,
        totalReplicas: to,
      });
      expect(await story.rollout()).toMatchObject({ phase: 'COMPLETED' });
    },
  );

  it('a new-version replica that restarts before its rollout completes counts as failed', async () => {
    const story = await RolloutScenario.start({ maxFailedNew: 2, minAvailable: 3 });
    story.setBehaviour(2, 'unready');
    await story.update();
    await story.observe(300);
    const [fresh] = await story.replicas(2);
    story.changeReport(fresh!, crashReplica(1));
    await story.observe(300);
    expect((await story.rollout()).status).toMatchObject({ failedNew: 1, updated: 1 });
    expect(await story.replicas(1)).toHaveLength(3);
  });

  it('the rollout fails after max_failed_new failures, with the last log lines of the replica', async () => {
    const story = await RolloutScenario.start({ maxFailedNew: 2 });
    story.setBehaviour(2, 'unready');
    await story.update();
    await story.observe(300);
    const [fresh] = await story.replicas(2);
    story.changeReport(fresh!, crashReplica(2));
    await story.observe(300);
    const { phase, failure, reason } = await story.rollout();
    expect(phase).toBe('FAILED');
    expect(failure).toMatchObject({
      replicaId: fresh!.id,
      nodeId: fresh!.nodeId,
      exitCode: 7,
      lastLines: ['starting', 'no such table'],
      version: 2,
    });
    expect(failure?.reason).toBe(reason);
    expect(reason).toContain('2 times');
    const { lowestReady } = await story.observe(3_000);
    expect(lowestReady).toBeGreaterThanOrEqual(2); // the remaining old replicas keep serving
  });

  it('restarts of old replicas do not count as failures', async () => {
    const story = await RolloutScenario.start({ maxFailedNew: 1 });
    story.setBehaviour(2, 'unready');
    await story.update();
    await story.observe(300);
    const [old] = await story.replicas(1);
    story.changeReport(old!, { restarts: 5, lastExitCode: 1 });
    await story.observe(500);
    expect(await story.rollout()).toMatchObject({ phase: 'IN_PROGRESS' });
  });
});

describe('CLD-REQ-023 strategies', () => {
  it('RECREATE stops all replicas, then starts all; its own stops ignore min_available', async () => {
    const story = await RolloutScenario.start({ ...RECREATE, minAvailable: 2 });
    await story.update();
    const { lowestReady, served, phases } = await story.observe(5_000);
    expect(lowestReady).toBe(0);
    expect(served).toEqual(['', '2']); // never both at the same time
    expect(phases.at(-1)).toBe('COMPLETED');
  });

  it('RECREATE with an explicit min_available above 0 returns a warning', async () => {
    const story = await RolloutScenario.start();
    const warningsOf = async (rollout: object): Promise<readonly string[]> => {
      const spec = create(WorkloadSpecSchema, { rollout });
      const plan = await story.call((client) => client.planWorkload({ name: 'web', spec }));
      return plan.warnings;
    };
    expect((await warningsOf({ ...RECREATE, minAvailable: 2 })).join()).toMatch(
      /min_available 2 cannot be kept/,
    );
    expect((await warningsOf(RECREATE)).join()).not.toContain('min_available');
  });

  it('BLUE_GREEN places the whole new set or nothing', async () => {
    const story = await RolloutScenario.start(
      { ...BLUE_GREEN },
      { resources: { requests: { cpuMillis: 2_000 } } },
      2,
    );
    await story.update(); // two nodes with 4 cores: only one of the three new replicas fits
    await story.observe(2_000);
    expect((await story.replicas(2)).map(({ nodeId }) => nodeId)).toEqual(['', '', '']);
    expect(await story.status()).toMatchObject({ activeVersion: 1, readyReplicas: 3 });
    await story.cluster.addNode('node-8');
    await story.observe(5_000);
    expect(await story.status()).toMatchObject({
      activeVersion: 2,
      readyReplicas: 3,
      totalReplicas: 3,
    });
  });

  it('BLUE_GREEN switches traffic in one step when the new set is ready', async () => {
    const story = await RolloutScenario.start(BLUE_GREEN);
    story.setBehaviour(2, 'unready');
    await story.update();
    expect((await story.observe(500)).served).toEqual(['1']);
    const [first, second, third] = await story.replicas(2);
    for (const replica of [first, second]) story.changeReport(replica!, { ready: true });
    expect((await story.observe(500)).served).toEqual(['1']);
    story.changeReport(third!, { ready: true });
    expect((await story.observe(1_000)).served.slice(-1)).toEqual(['2']);
    expect(await story.status()).toMatchObject({ activeVersion: 2 });
  });

  it('BLUE_GREEN keeps the old set for pause_duration and then removes it', async () => {
    const story = await RolloutScenario.start({ ...BLUE_GREEN, pauseDuration: ms(4_000) });
    await story.update();
    await story.observe(2_000);
    expect(await story.status()).toMatchObject({
      activeVersion: 2,
      readyReplicas: 3,
      totalReplicas: 6,
    });
    const blue = (await story.replicas(1)).map(({ id }) => id);
    await story.call((client) => client.undoRollout({ name: 'web' }));
    expect((await story.observe(200)).served.at(-1)).toBe('1');
    expect((await story.replicas(1)).map(({ id }) => id)).toEqual(blue);
    await story.observe(8_000);
    expect(await story.status()).toMatchObject({ activeVersion: 3, totalReplicas: 3 });
    await story.update();
    await story.observe(8_000);
    expect(await story.status()).toMatchObject({ activeVersion: 4, totalReplicas: 3 });
  });

  it('BLUE_GREEN with MANUAL promotion stays PAUSED until a user promotes', async () => {
    const story = await RolloutScenario.start({
      ...BLUE_GREEN,
      promotion: Promotion.MANUAL,
      progressDeadline: ms(1_000),
    });
    await story.update();
    expect((await story.observe(3_000)).served).toEqual(['1']);
    const { phase, status, reason } = await story.rollout();
    expect({ phase, waits: status.waitsForPromotion }).toEqual({ phase: 'PAUSED', waits: true });
    expect(reason).toContain('promot');
    await story.call((client) => client.promoteRollout({ name: 'web' }));
    expect((await story.observe(3_000)).served.at(-1)).toBe('2');
    expect(await story.rollout()).toMatchObject({ phase: 'COMPLETED' });
  });

  it('canary steps stop at a replica count or percentage for a wait or a promotion', async () => {
    const steps = [
      { replicas: 1, wait: ms(2_000) },
      { percent: 50, promotion: Promotion.MANUAL },
    ];
    const story = await RolloutScenario.start(
      { steps, progressDeadline: ms(1_000) },
      { replicas: 4 },
    );
    const updated = async (): Promise<readonly [number, number]> => {
      const { status } = await story.rollout();
      return [status.step, status.updated];
    };
    await story.update();
    await story.observe(1_800);
    expect(await updated()).toEqual([1, 1]);
    await story.observe(2_500);
    expect(await updated()).toEqual([2, 2]);
    await story.observe(10_000);
    expect(await updated()).toEqual([2, 2]);
    expect(await story.rollout()).toMatchObject({ phase: 'PAUSED' });
    await story.call((client) => client.promoteRollout({ name: 'web' }));
    await story.observe(5_000);
    expect(await updated()).toEqual([0, 4]);
    expect(await story.rollout()).toMatchObject({ phase: 'COMPLETED' });
  });

  it('a canary step that is reached while a stop is unconfirmed still waits for a promotion', async () => {
    const story = await RolloutScenario.start({
      steps: [{ replicas: 1, promotion: Promotion.MANUAL }],
    });
    story.holdStops(true);
    await story.update();
    await story.observe(1_000);
    expect((await story.rollout()).status).toMatchObject({ waitsForPromotion: true, step: 1 });
    story.holdStops(false);
    await story.observe(500);
    expect(await story.rollout()).toMatchObject({
      phase: 'PAUSED',
      status: { waitsForPromotion: true, step: 1 },
    });
  });

  it('both versions serve in a rolling update', async () => {
    const story = await RolloutScenario.start({ minAvailable: 3 });
    await story.update();
    const { served, lowestReady } = await story.observe(5_000);
    expect(served).toEqual(['1', '1,2', '2']);
    expect(lowestReady).toBe(3); // of both versions
  });

  it('only the active version serves under BLUE_GREEN', async () => {
    const story = await RolloutScenario.start({ ...BLUE_GREEN, promotion: Promotion.MANUAL });
    await story.update();
    const { served } = await story.observe(2_000);
    expect(served).toEqual(['1']);
    expect(await story.status()).toMatchObject({ readyReplicas: 3, totalReplicas: 6 });
    const [old] = await story.replicas(1);
    story.changeReport(old!, { ready: false });
    await story.observe(40);
    expect(await story.status()).toMatchObject({ readyReplicas: 2 });
  });
});

describe('CLD-REQ-023 rollout life cycle', () => {
  it('a rollout is asynchronous and reports its phase and its updated, ready and total counts', async () => {
    const story = await RolloutScenario.start({ minAvailable: 3 });
    story.setBehaviour(2, 'unready');
    const answer = await story.update();
    expect(answer.status).toMatchObject({ version: 2, updatedReplicas: 0, readyReplicas: 3 });
    expect((await story.observe(500)).phases.at(-1)).toBe('IN_PROGRESS');
    const { status } = await story.rollout();
    expect(status).toMatchObject({ updated: 1, ready: 3, total: 4, version: 2, fromVersion: 1 });
    story.setBehaviour(2, 'ready');
    for (const replica of await story.replicas(2)) story.changeReport(replica, { ready: true });
    expect((await story.observe(4_000)).phases).toEqual(['IN_PROGRESS', 'COMPLETED']);
    expect((await story.rollout()).status).toMatchObject({ updated: 3, ready: 3, total: 3 });
  });

  it('a rollout fails at its progress deadline', async () => {
    const story = await RolloutScenario.start({ progressDeadline: ms(2_000) });
    story.setBehaviour(2, 'unready');
    await story.update();
    await story.observe(3_000);
    const { phase, reason, failure } = await story.rollout();
    expect(phase).toBe('FAILED');
    expect(reason).toContain('no progress for 2s');
    expect(failure).toMatchObject({ version: 2 });
  });

  it('a rollout can be paused and resumed', async () => {
    const story = await RolloutScenario.start({ progressDeadline: ms(2_000) });
    story.setBehaviour(2, 'unready');
    await story.update();
    await story.observe(300);
    await story.call((client) => client.pauseRollout({ name: 'web' }));
    story.setBehaviour(2, 'ready');
    for (const replica of await story.replicas(2)) story.changeReport(replica, { ready: true });
    // past its deadline, which does not count during the pause
    const { phases } = await story.observe(5_000);
    expect(phases.at(-1)).toBe('PAUSED');
    expect((await story.rollout()).status).toMatchObject({ pausedByUser: true });
    expect((await story.rollout()).reason).toContain('paused by a user');
    expect((await story.replicas(1)).length).toBeGreaterThanOrEqual(2);
    await story.call((client) => client.resumeRollout({ name: 'web' }));
    await story.observe(4_000);
    expect(await story.rollout()).toMatchObject({ phase: 'COMPLETED' });
  });

  it('an undo restores the exact earlier template with the current count and rollout settings', async () => {
    const story = await RolloutScenario.start({}, { env: { COLOUR: 'blue' } });
    const first = (await story.call((client) => client.getWorkload({ name: 'web' }))).spec;
    await story.update({
      env: { COLOUR: 'green' },
      args: ['--new'],
      replicas: 4,
      rollout: { maxUnavailable: 2 },
    });
    await story.observe(5_000);
    const undone = await story.call((client) => client.undoRollout({ name: 'web' }));
    expect(undone.spec).toMatchObject({
      command: first?.command,
      env: { COLOUR: 'blue' },
      args: [],
      replicas: 4,
    });
    expect(undone.spec?.rollout?.maxUnavailable).toBe(2);
    await story.observe(5_000);
    const { versions, totalReplicas } = await story.status();
    expect(versions.at(-1)).toMatchObject({
      version: 3,
      sameAs: 1,
      cause: 'undo to version 1',
      active: true,
    });
    expect(totalReplicas).toBe(4);
  });

  it('the responses of undo and restart contain the changed workload', async () => {
    const story = await RolloutScenario.start({}, { env: { COLOUR: 'blue' } });
    await story.update({ env: { COLOUR: 'green' } });
    await story.observe(5_000);
    const undone = await story.call((client) =>
      client.undoRollout({ name: 'web', requestId: 'undo' }),
    );
    expect(undone).toMatchObject({
      generation: 3n,
      status: { version: 3, rollout: { version: 3 } },
    });
    expect(undone.status?.versions.at(-1)).toMatchObject({
      version: 3,
      sameAs: 1,
      cause: 'undo to version 1',
    });
    const again = await story.call((client) =>
      client.undoRollout({ name: 'web', requestId: 'undo' }),
    );
    expect(again.status?.versions).toEqual(undone.status?.versions);
    await story.observe(5_000);
    const restarted = await story.call((client) => client.restartRollout({ name: 'web' }));
    expect(restarted).toMatchObject({
      generation: 4n,
      status: { version: 4, rollout: { version: 4 } },
    });
    expect(restarted.status?.versions.at(-1)).toMatchObject({ version: 4, active: false });
  });

  it('a rollout can be undone half-way; replicas that were not replaced yet stay', async () => {
    const story = await RolloutScenario.start();
    const before = (await story.replicas()).map(({ id }) => id);
    story.setBehaviour(2, 'unready');
    await story.update();
    await story.observe(500);
    const left = (await story.replicas(1)).map(({ id }) => id);
    await story.call((client) => client.undoRollout({ name: 'web' }));
    await story.observe(3_000);
    expect((await story.replicas()).map(({ id }) => id)).toEqual(expect.arrayContaining(left));
    expect(left.length).toBeGreaterThanOrEqual(2);
    expect(before).toEqual(expect.arrayContaining(left));
    expect(await story.rollout()).toMatchObject({ phase: 'COMPLETED', version: 3 });
  });

  it('a new update supersedes a running rollout', async () => {
    const story = await RolloutScenario.start({ progressDeadline: ms(2_000) });
    story.setBehaviour(2, 'unready');
    await story.update();
    await story.observe(500);
    await story.update();
    await story.observe(5_000);
    expect(await story.rollout()).toMatchObject({ phase: 'COMPLETED', version: 3, fromVersion: 1 });
    const starts = [...story.cluster.agents.values()].flatMap(({ started }) =>
      started.map(({ order }) => (order.case === 'start' ? order.value.version : 0)),
    );
    expect(starts.lastIndexOf(2)).toBeGreaterThan(-1);
    expect(await story.replicas(2)).toEqual([]);
  });

  it('on_failure PAUSE keeps the current state, and resuming tries again', async () => {
    const story = await RolloutScenario.start({ maxFailedNew: 1, onFailure: OnFailure.PAUSE });
    story.setBehaviour(2, 'fails');
    await story.update();
    await story.observe(3_000);
    expect(await story.rollout()).toMatchObject({ phase: 'FAILED', version: 2 });
    expect((await story.replicas(1)).filter(({ ready }) => ready)).toHaveLength(3);
    story.setBehaviour(2, 'ready');
    await story.observe(3_000);
    expect(await story.rollout()).toMatchObject({ phase: 'FAILED', version: 2 });
    await story.call((client) => client.resumeRollout({ name: 'web' }));
    await story.observe(5_000);
    expect(await story.rollout()).toMatchObject({ phase: 'COMPLETED', version: 2 });
  });

  it.each([
    { name: 'ROLLING_UPDATE', rollout: ROLLING },
    { name: 'RECREATE', rollout: RECREATE },
    { name: 'BLUE_GREEN', rollout: BLUE_GREEN },
  ])('on_failure ROLLBACK returns to the previous version: $name', async ({ rollout }) => {
    const story = await RolloutScenario.start(
      { ...rollout, maxFailedNew: 2, onFailure: OnFailure.ROLLBACK },
      { env: { COLOUR: 'blue' } },
    );
    story.setBehaviour(2, 'fails');
    await story.update({ env: { COLOUR: 'green' } });
    const { phases } = await story.observe(10_000);
    const { phase, version, failure } = await story.rollout();
    expect({ phase, version }).toEqual({ phase: 'ROLLED_BACK', version: 3 });
    // At most the COMPLETED from before the update.
    expect(phases.filter((seen) => seen === 'COMPLETED').length).toBeLessThanOrEqual(1);
    expect(failure).toMatchObject({ version: 2, exitCode: 1 });
    const { spec, status } = await story.call((client) => client.getWorkload({ name: 'web' }));
    expect(spec?.env).toEqual({ COLOUR: 'blue' });
    expect(status).toMatchObject({ readyReplicas: 3, totalReplicas: 3, activeVersion: 3 });
    expect(status?.versions.at(-1)).toMatchObject({ cause: 'rollback to version 1', sameAs: 1 });
  });

  it('a first deployment that fails is FAILED, continues to try, and becomes COMPLETED when ready', async () => {
    const story = await RolloutScenario.start(
      { maxFailedNew: 1, onFailure: OnFailure.ROLLBACK },
      { replicas: 0 },
    );
    await story.call((client) => client.deleteWorkload({ name: 'web' }));
    await story.cluster.advance(1_000);
    story.setBehaviour(1, 'fails');
    await story.create({ maxFailedNew: 1, onFailure: OnFailure.ROLLBACK });
    await story.observe(1_000);
    expect(await story.rollout()).toMatchObject({ phase: 'FAILED', version: 1, fromVersion: 0 });
    story.setBehaviour(1, 'ready');
    await story.observe(10_000);
    expect(await story.rollout()).toMatchObject({ phase: 'COMPLETED', version: 1 });
  });

  it('a restart replaces every replica with one of the same template', async () => {
    const story = await RolloutScenario.start();
    const before = (await story.replicas()).map(({ id }) => id);
    await story.call((client) => client.restartRollout({ name: 'web' }));
    await story.observe(5_000);
    const after = await story.replicas();
    expect(after).toHaveLength(3);
    expect(after.filter(({ id, phase }) => before.includes(id) || phase !== Phase.RUNNING)).toEqual(
      [],
    );
    expect((await story.status()).versions.at(-1)).toMatchObject({ version: 2, cause: 'restart' });
  });
});
