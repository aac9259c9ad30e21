import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { RolloutStatus_Phase as Phase, Rollout_OnFailure, type Workload } from '@cloudless/api';
import { RealCluster } from './support/cluster.js';
import {
  REQUEST_APP,
  expectServed,
  listLiveIds,
  listLiveReplicas,
  waitUntilRolledOut,
  runUnderLoad,
  createWebSpec,
  type Rollout,
  type Spec,
} from './support/rollout-tools.js';

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start();
});
afterAll(() => cluster.stop());

/** Minimum of available replicas, of 4. */
const MIN_AVAILABLE = 3;
/** Exit code of cloudlessctl for a failed rollout. */
const ROLLOUT_FAILED = 8;
const LAST_WORDS = ['version 2 cannot go on', 'fatal: no such table'];

/** A command that exits with code 3 after a second without listening. */
const CRASHES = { VERSION: '2', LISTEN: 'no', CRASH_AFTER_MS: '1000' };

async function createRunning(name: string, rollout: Rollout): Promise<readonly string[]> {
  await cluster.client.createWorkload({
    name,
    spec: createWebSpec({ minAvailable: MIN_AVAILABLE, maxFailedNew: 2, ...rollout }),
  });
  return listLiveIds(await waitUntilRolledOut(cluster, name));
}

const updateTo = (name: string, env: Record<string, string>): Promise<Workload> =>
  cluster.client.updateWorkload({ name, spec: { env } });
const waitForPhase = (name: string, wanted: Phase): Promise<Workload> =>
  cluster.waitForWorkload(
    name,
    ({ generation, status }) =>
      status!.observedGeneration === generation && status!.rollout!.phase === wanted,
  );

describe('update to a command that crashes after a second', () => {
  it('keeps min_available; the rollout fails with a reason and the last log lines', async () => {
    const name = 'stopped';
    const before = await createRunning(name, {});
    let failed: Workload | undefined;
    const clients = await runUnderLoad(cluster, name, async () => {
      await updateTo(name, CRASHES);
      failed = await waitForPhase(name, Phase.FAILED);
    });
    expectServed(clients, MIN_AVAILABLE);
    for (const { versions } of clients) expect(versions).toEqual(['1']);
    const { reason, replicaId, exitCode, version, lastLines } = failed!.status!.rollout!.failure!;
    expect({ exitCode, version }).toEqual({ exitCode: 3, version: 2 });
    expect(reason).toContain('failed');
    expect(lastLines.slice(-2)).toEqual(LAST_WORDS);
    expect(before).not.toContain(replicaId);
    expect(
      listLiveReplicas(failed!).filter(({ id, ready }) => before.includes(id) && ready).length,
    ).toBeGreaterThanOrEqual(MIN_AVAILABLE);
    const status = await cluster.runCtl('rollout', 'status', name);
    expect(status.code).toBe(ROLLOUT_FAILED);
    for (const text of [reason, replicaId, ...LAST_WORDS])
      expect(status.stdout + status.stderr).toContain(text);
    // A working version replaces the failed one.
    await updateTo(name, { VERSION: '3' });
    await waitUntilRolledOut(cluster, name);
  });

  it('rolls back to the previous version with on_failure ROLLBACK without a failed request', async () => {
    const name = 'returned';
    const before = await createRunning(name, { onFailure: Rollout_OnFailure.ROLLBACK });
    const clients = await runUnderLoad(cluster, name, async () => {
      await updateTo(name, CRASHES);
      await waitUntilRolledOut(cluster, name, Phase.ROLLED_BACK);
    });
    expectServed(clients, MIN_AVAILABLE);
    for (const { versions } of clients) expect(versions).toEqual(['1']);
    const after = await cluster.client.getWorkload({ name });
    expect(after.spec?.env).toEqual({ VERSION: '1' });
    expect(after.status!.rollout!.failure).toMatchObject({ exitCode: 3, version: 2 });
    expect(after.status!.rollout!.failure!.lastLines.slice(-2)).toEqual(LAST_WORDS);
    // Replicas of the restored version are not replaced.
    const kept = listLiveIds(after).filter((id) => before.includes(id));
    expect(kept.length).toBeGreaterThanOrEqual(MIN_AVAILABLE);
  });

  it('keeps min_available when the command serves until it crashes', async () => {
    const name = 'serving';
    const before = await createRunning(name, { minReadyDuration: durationFromMs(2_000) });
    const clients = await runUnderLoad(cluster, name, async () => {
      await updateTo(name, { VERSION: '2', CRASH_AFTER_MS: '1000' });
      await waitForPhase(name, Phase.FAILED);
    });
    for (const { watch, failures } of clients) {
      expect(watch.lowestReady).toBeGreaterThanOrEqual(MIN_AVAILABLE);
      // A request to a crashing replica gets no answer; all other requests are answered.
      expect(
        failures.filter(({ replicaId }) => replicaId === '' || before.includes(replicaId)),
      ).toEqual([]);
    }
  });
});

describe('failing first deployment', () => {
  const createFirst = async (name: string, spec: Spec): Promise<Workload> => {
    await cluster.client.createWorkload({
      name,
      spec: createWebSpec({ maxFailedNew: 2 }, { replicas: 2, ...spec }),
    });
    return waitForPhase(name, Phase.FAILED);
  };

  it('fails for a command that crashes after a second, and cloudlessctl --wait prints its last log lines', async () => {
    const manifest = {
      name: 'crashing',
      spec: {
        command: REQUEST_APP,
        env: CRASHES,
        ports: [{ containerPort: 80 }],
        rollout: { maxFailedNew: 2 },
      },
    };
    const { code, stderr } = await cluster.runCtlWithInput(
      JSON.stringify(manifest),
      'apply',
      '-f',
      '-',
      '--wait',
    );
    expect({ code, stderr }).toEqual({
      code: ROLLOUT_FAILED,
      stderr: expect.stringContaining(LAST_WORDS.join('\n  ')),
    });
    const { status } = await waitForPhase('crashing', Phase.FAILED);
    expect(status!.rollout!.failure).toMatchObject({ exitCode: 3, version: 1 });
  });

  it('fails for a command that does not exist', async () => {
    const { status } = await createFirst('missing', { command: ['/no/such/command'] });
    expect(
      `${status!.rollout!.failure!.reason} ${status!.rollout!.failure!.lastLines.join(' ')}`,
    ).toContain('/no/such/command');
    expect((await cluster.runCtl('rollout', 'status', 'missing')).code).toBe(ROLLOUT_FAILED);
  });

  it('fails by progress_deadline for a command that never becomes ready, and completes with a working command', async () => {
    const { status } = await createFirst('never', {
      env: { VERSION: '1', LISTEN: 'no' },
      rollout: { progressDeadline: durationFromMs(1_500) },
    });
    expect(status!.rollout!.failure!.reason).toContain('no progress for 1.5s');
    await updateTo('never', { VERSION: '2' });
    await waitUntilRolledOut(cluster, 'never');
  });
});

describe('update that never becomes ready', () => {
  it('fails by progress_deadline while the previous replicas serve', async () => {
    const name = 'silent';
    const before = await createRunning(name, { progressDeadline: durationFromMs(2_000) });
    const clients = await runUnderLoad(cluster, name, async () => {
      await updateTo(name, { VERSION: '2', LISTEN: 'no' });
      const { status } = await waitForPhase(name, Phase.FAILED);
      expect(status!.rollout!.failure).toMatchObject({ version: 2 });
      expect(status!.rollout!.failure!.reason).toContain('no progress for 2s');
    });
    expectServed(clients, MIN_AVAILABLE);
    const left = listLiveIds(await cluster.client.getWorkload({ name })).filter((id) =>
      before.includes(id),
    );
    expect(left.length).toBeGreaterThanOrEqual(MIN_AVAILABLE);
  });
});
