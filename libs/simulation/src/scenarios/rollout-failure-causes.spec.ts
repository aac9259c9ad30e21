import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  ReplicaStatus_Phase as Phase,
  Rollout_OnFailure as OnFailure,
  Rollout_Promotion as Promotion,
  Rollout_Strategy as Strategy,
  type ReplicaStatus,
} from '@cloudless/api';
import { RolloutScenario } from '../test-cluster/rollout-scenario.js';

const ms = durationFromMs;
const BLUE_GREEN = { strategy: Strategy.BLUE_GREEN };
const MANUAL = Promotion.MANUAL;

/**
 * Lets a replica of version 1 fail, so that another replica of version 1 replaces it, and restarts
 * the replacement.
 */
async function failReplicasOfVersion1(scenario: RolloutScenario): Promise<void> {
  const [old] = await scenario.replicas(1);
  scenario.changeReport(old!, {
    phase: Phase.FAILED,
    ready: false,
    reason: 'exit code 1',
    lastExitCode: 1,
  });
  await scenario.observe(1_500);
  const replacement = (await scenario.replicas(1)).at(-1)!;
  expect(replacement.id).not.toBe(old!.id);
  scenario.changeReport(replacement, { restarts: 1, ready: true, lastExitCode: 1 });
  await scenario.observe(500);
}

describe('rollout failure', () => {
  it('is not caused by replicas of the previous version that fail at a canary step', async () => {
    const steps = [{ replicas: 1, promotion: MANUAL }];
    const scenario = await RolloutScenario.start({
      steps,
      onFailure: OnFailure.ROLLBACK,
      maxFailedNew: 1,
    });
    await scenario.update();
    await scenario.observe(2_000);
    await failReplicasOfVersion1(scenario);
    await scenario.call((client) => client.promoteRollout({ name: 'web' }));
    await scenario.observe(5_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED', version: 2 });
  });

  it('is not caused by replicas that fail in the active set of BLUE_GREEN', async () => {
    const scenario = await RolloutScenario.start({
      ...BLUE_GREEN,
      promotion: MANUAL,
      maxFailedNew: 1,
    });
    scenario.setBehaviour(2, 'unready');
    await scenario.update();
    await scenario.observe(500);
    await failReplicasOfVersion1(scenario);
    expect(await scenario.rollout()).toMatchObject({
      phase: 'IN_PROGRESS',
      status: { failedNew: 0 },
    });
  });

  it('names the replica that failed, also when it serves again after each crash', async () => {
    const scenario = await RolloutScenario.start({ maxFailedNew: 3, minReadyDuration: ms(60_000) });
    await scenario.update();
    await scenario.observe(800);
    const [newReplica] = await scenario.replicas(2);
    for (const restarts of [1, 2, 3]) {
      scenario.changeReport(newReplica!, {
        restarts,
        ready: true,
        lastExitCode: 1,
        lastLines: [`crash ${restarts}`],
      });
      await scenario.observe(200);
    }
    expect(await scenario.rollout()).toMatchObject({
      phase: 'FAILED',
      failure: { replicaId: newReplica!.id, lastLines: ['crash 3'] },
    });
  });

  it('rolls back at the progress deadline when the new BLUE_GREEN set stops being ready after the switch', async () => {
    const scenario = await RolloutScenario.start({
      ...BLUE_GREEN,
      onFailure: OnFailure.ROLLBACK,
      progressDeadline: ms(5_000),
      pauseDuration: ms(60_000),
    });
    await scenario.update();
    await scenario.observe(3_000);
    expect(await scenario.status()).toMatchObject({ activeVersion: 2 });
    const former = idsOf(await scenario.replicas(1));
    for (const replica of await scenario.replicas(2))
      scenario.changeReport(replica, { ready: false, reason: 'readiness probe: HTTP 500' });
    await scenario.observe(4_000);
    expect(await scenario.status()).toMatchObject({ activeVersion: 2 });
    await scenario.observe(2_000);
    expect(await scenario.status()).toMatchObject({ activeVersion: 3, readyReplicas: 3 });
    expect(idsOf(await scenario.replicas(1))).toEqual(former);
  });

  it('is not caused by replicas that restarted during a pause, after the rollout is resumed', async () => {
    const scenario = await RolloutScenario.start({ maxFailedNew: 2 });
    scenario.setBehaviour(2, 'unready');
    await scenario.update();
    await scenario.observe(300);
    await scenario.call((client) => client.pauseRollout({ name: 'web' }));
    await scenario.observe(300);
    const [newReplica] = await scenario.replicas(2);
    scenario.changeReport(newReplica!, { restarts: 5, ready: false, lastExitCode: 1 });
    await scenario.observe(300);
    await scenario.call((client) => client.resumeRollout({ name: 'web' }));
    await scenario.observe(300);
    expect(await scenario.rollout()).toMatchObject({ phase: 'IN_PROGRESS' });
  });
});

describe('undo without a version', () => {
  it('skips versions that were never rolled out', async () => {
    const scenario = await RolloutScenario.start({
      onFailure: OnFailure.ROLLBACK,
      maxFailedNew: 1,
    });
    scenario.setBehaviour(2, 'fails');
    await scenario.update();
    await scenario.observe(8_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'ROLLED_BACK', version: 3 });
    await expect(scenario.call((client) => client.undoRollout({ name: 'web' }))).rejects.toThrow(
      'workload "default/web" has no earlier version to go back to that was rolled out; name one of its versions with to_version',
    );
    await scenario.call((client) => client.undoRollout({ name: 'web', toVersion: 2 }));
  });

  it('goes to the newest completed version and skips a failed one', async () => {
    const scenario = await RolloutScenario.start({ maxFailedNew: 1 });
    scenario.setBehaviour(2, 'fails');
    await scenario.update();
    await scenario.observe(3_000);
    await scenario.update();
    await scenario.observe(6_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED', version: 3 });
    await scenario.call((client) => client.undoRollout({ name: 'web' }));
    expect((await scenario.status()).versions.at(-1)).toMatchObject({
      version: 4,
      sameAs: 1,
      cause: 'undo to version 1',
    });
  });
});

describe('pause', () => {
  it('of a failed first deployment is rejected with advice', async () => {
    const scenario = await RolloutScenario.start();
    await scenario.call((client) => client.deleteWorkload({ name: 'web' }));
    await scenario.cluster.advance(3_000, 50);
    scenario.setBehaviour(1, 'fails');
    await scenario.create({ maxFailedNew: 1 });
    await scenario.observe(2_000);
    await expect(scenario.call((client) => client.pauseRollout({ name: 'web' }))).rejects.toThrow(
      /its rollout failed: .*; the first rollout of a workload keeps trying: update the workload, scale it to 0, or delete it$/,
    );
  });
});

const idsOf = (replicas: readonly ReplicaStatus[]): readonly string[] =>
  replicas.map(({ id }) => id).sort();
