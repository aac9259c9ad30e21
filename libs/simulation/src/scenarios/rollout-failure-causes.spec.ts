import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  ReplicaStatus_Phase as Phase,
  Rollout_OnFailure as OnFailure,
  Rollout_Promotion as Promotion,
  Rollout_Strategy as Strategy,
  type ReplicaStatus,
} from '@cloudless/api';
import { RolloutScenario } from '../test-cluster/rollout-scenario.js';

/** Causes of rollout failures, the replicas that count, and the target of a rollback. */

const ms = durationFromMs;
const BLUE_GREEN = { strategy: Strategy.BLUE_GREEN };
const MANUAL = Promotion.MANUAL;

/**
 * Replicas of version 1 fail and are replaced by others of version 1, the newest of which restarts.
 */
async function failReplicasOfVersion1(story: RolloutScenario): Promise<void> {
  const [old] = await story.replicas(1);
  story.changeReport(old!, {
    phase: Phase.FAILED,
    ready: false,
    reason: 'exit code 1',
    lastExitCode: 1,
  });
  await story.observe(1_500);
  const replacement = (await story.replicas(1)).at(-1)!;
  expect(replacement.id).not.toBe(old!.id);
  story.changeReport(replacement, { restarts: 1, ready: true, lastExitCode: 1 });
  await story.observe(500);
}

describe('rollout failure', () => {
  it('is not caused by replacements of the previous version at a canary step', async () => {
    const steps = [{ replicas: 1, promotion: MANUAL }];
    const story = await RolloutScenario.start({
      steps,
      onFailure: OnFailure.ROLLBACK,
      maxFailedNew: 1,
    });
    await story.update();
    await story.observe(2_000);
    await failReplicasOfVersion1(story);
    await story.call((client) => client.promoteRollout({ name: 'web' }));
    await story.observe(5_000);
    expect(await story.rollout()).toMatchObject({ phase: 'COMPLETED', version: 2 });
  });

  it('is not caused by replacements in the active set of BLUE_GREEN', async () => {
    const story = await RolloutScenario.start({
      ...BLUE_GREEN,
      promotion: MANUAL,
      maxFailedNew: 1,
    });
    story.setBehaviour(2, 'unready');
    await story.update();
    await story.observe(500);
    await failReplicasOfVersion1(story);
    expect(await story.rollout()).toMatchObject({ phase: 'IN_PROGRESS', status: { failedNew: 0 } });
  });

  it('names the replica that failed, also when it serves again after each crash', async () => {
    const story = await RolloutScenario.start({ maxFailedNew: 3, minReadyDuration: ms(60_000) });
    await story.update();
    await story.observe(800);
    const [fresh] = await story.replicas(2);
    for (const restarts of [1, 2, 3]) {
      story.changeReport(fresh!, {
        restarts,
        ready: true,
        lastExitCode: 1,
        lastLines: [`crash ${restarts}`],
      });
      await story.observe(200);
    }
    expect(await story.rollout()).toMatchObject({
      phase: 'FAILED',
      failure: { replicaId: fresh!.id, lastLines: ['crash 3'] },
    });
  });

  it('rolls back at once when the new BLUE_GREEN set stops being ready after the switch', async () => {
    const story = await RolloutScenario.start({
      ...BLUE_GREEN,
      onFailure: OnFailure.ROLLBACK,
      progressDeadline: ms(5_000),
      pauseDuration: ms(60_000),
    });
    await story.update();
    await story.observe(3_000);
    expect(await story.status()).toMatchObject({ activeVersion: 2 });
    const former = idsOf(await story.replicas(1));
    for (const replica of await story.replicas(2))
      story.changeReport(replica, { ready: false, reason: 'readiness probe: HTTP 500' });
    await story.observe(4_000);
    expect(await story.status()).toMatchObject({ activeVersion: 2 });
    await story.observe(2_000);
    expect(await story.status()).toMatchObject({ activeVersion: 3, readyReplicas: 3 });
    expect(idsOf(await story.replicas(1))).toEqual(former);
  });

  it('ignores replicas that failed during a pause when the rollout is resumed', async () => {
    const story = await RolloutScenario.start({ maxFailedNew: 2 });
    story.setBehaviour(2, 'unready');
    await story.update();
    await story.observe(300);
    await story.call((client) => client.pauseRollout({ name: 'web' }));
    await story.observe(300);
    const [fresh] = await story.replicas(2);
    story.changeReport(fresh!, { restarts: 5, ready: false, lastExitCode: 1 });
    await story.observe(300);
    await story.call((client) => client.resumeRollout({ name: 'web' }));
    await story.observe(300);
    expect(await story.rollout()).toMatchObject({ phase: 'IN_PROGRESS' });
  });
});

describe('undo without a version', () => {
  it('skips versions that were never rolled out', async () => {
    const story = await RolloutScenario.start({ onFailure: OnFailure.ROLLBACK, maxFailedNew: 1 });
    story.setBehaviour(2, 'fails');
    await story.update();
    await story.observe(8_000);
    expect(await story.rollout()).toMatchObject({ phase: 'ROLLED_BACK', version: 3 });
    await expect(story.call((client) => client.undoRollout({ name: 'web' }))).rejects.toThrow(
      'workload "default/web" has no earlier version to go back to that was rolled out; name one of its versions with to_version',
    );
    await story.call((client) => client.undoRollout({ name: 'web', toVersion: 2 }));
  });

  it('goes to the newest completed version and skips a failed one', async () => {
    const story = await RolloutScenario.start({ maxFailedNew: 1 });
    story.setBehaviour(2, 'fails');
    await story.update();
    await story.observe(3_000);
    await story.update();
    await story.observe(6_000);
    expect(await story.rollout()).toMatchObject({ phase: 'COMPLETED', version: 3 });
    await story.call((client) => client.undoRollout({ name: 'web' }));
    expect((await story.status()).versions.at(-1)).toMatchObject({
      version: 4,
      sameAs: 1,
      cause: 'undo to version 1',
    });
  });
});

describe('pause', () => {
  it('of a failed first deployment is rejected with advice', async () => {
    const story = await RolloutScenario.start();
    await story.call((client) => client.deleteWorkload({ name: 'web' }));
    await story.cluster.advance(3_000, 50);
    story.setBehaviour(1, 'fails');
    await story.create({ maxFailedNew: 1 });
    await story.observe(2_000);
    await expect(story.call((client) => client.pauseRollout({ name: 'web' }))).rejects.toThrow(
      /its rollout failed: .*; the first rollout of a workload keeps trying: update the workload, scale it to 0, or delete it$/,
    );
  });
});

const idsOf = (replicas: readonly ReplicaStatus[]): readonly string[] =>
  replicas.map(({ id }) => id).sort();
