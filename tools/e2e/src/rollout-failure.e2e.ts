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
/** Last lines of a server of version 2 that crashes. */
const LAST_LINES = ['version 2 cannot go on', 'fatal: no such table'];

/** Environment of a server that never listens, and exits with code 3 after a second. */
const CRASHING_ENV = { VERSION: '2', LISTEN: 'no', CRASH_AFTER_MS: '1000' };

/** Creates a workload, waits until it is rolled out, and returns its replica ids. */
async function createRunning(name: string, rollout: Rollout): Promise<readonly string[]> {
  await cluster.client.createWorkload({
    name,
    spec: createWebSpec({ minAvailable: MIN_AVAILABLE, maxFailedNew: 2, ...rollout }),
  });
  return listLiveIds(await waitUntilRolledOut(cluster, name));
}

const updateTo = (name: string, env: Record<string, string>): Promise<Workload> =>
  cluster.client.updateWorkload({ name, spec: { env } });
const waitForPhase = (name: string, phase: Phase): Promise<Workload> =>
  cluster.waitForWorkload(
    name,
    ({ generation, status }) =>
      status!.observedGeneration === generation && status!.rollout!.phase === phase,
  );

describe('update to a command that crashes after a second', () => {
  it('fails with a reason and the last log lines, and keeps min_available', async () => {
    const name = 'stopped';
    const before = await createRunning(name, {});
    let failed: Workload | undefined;
    const clients = await runUnderLoad(cluster, name, async () => {
      await updateTo(name, CRASHING_ENV);
      failed = await waitForPhase(name, Phase.FAILED);
    });
    expectServed(clients, MIN_AVAILABLE);
    for (const { versions } of clients) expect(versions).toEqual(['1']);
    const { reason, replicaId, exitCode, version, lastLines } = failed!.status!.rollout!.failure!;
    expect({ exitCode, version }).toEqual({ exitCode: 3, version: 2 });
    expect(reason).toContain('failed');
    expect(lastLines.slice(-2)).toEqual(LAST_LINES);
    expect(before).not.toContain(replicaId);
    expect(
      listLiveReplicas(failed!).filter(({ id, ready }) => before.includes(id) && ready).length,
    ).toBeGreaterThanOrEqual(MIN_AVAILABLE);
    const status = await cluster.runCtl('rollout', 'status', name);
    expect(status.code).toBe(ROLLOUT_FAILED);
    for (const text of [reason, replicaId, ...LAST_LINES])
      expect(status.stdout + status.stderr).toContain(text);
    // a working version replaces the failed version
    await updateTo(name, { VERSION: '3' });
    await waitUntilRolledOut(cluster, name);
  });

  it('is rolled back with on_failure ROLLBACK, without a failed request', async () => {
    const name = 'returned';
    const before = await createRunning(name, { onFailure: Rollout_OnFailure.ROLLBACK });
    const clients = await runUnderLoad(cluster, name, async () => {
      await updateTo(name, CRASHING_ENV);
      await waitUntilRolledOut(cluster, name, Phase.ROLLED_BACK);
    });
    expectServed(clients, MIN_AVAILABLE);
    for (const { versions } of clients) expect(versions).toEqual(['1']);
    const after = await cluster.client.getWorkload({ name });
    expect(after.spec?.env).toEqual({ VERSION: '1' });
    expect(after.status!.rollout!.failure).toMatchObject({ exitCode: 3, version: 2 });
    expect(after.status!.rollout!.failure!.lastLines.slice(-2)).toEqual(LAST_LINES);
    // replicas of the restored version are not replaced
    const kept = listLiveIds(after).filter((id) => before.includes(id));
    expect(kept.length).toBeGreaterThanOrEqual(MIN_AVAILABLE);
  });

  it('keeps min_available when the command serves until the crash', async () => {
    const name = 'serving';
    const before = await createRunning(name, { minReadyDuration: durationFromMs(2_000) });
    const clients = await runUnderLoad(cluster, name, async () => {
      await updateTo(name, { VERSION: '2', CRASH_AFTER_MS: '1000' });
      await waitForPhase(name, Phase.FAILED);
    });
    for (const { watch, failures } of clients) {
      expect(watch.lowestReady).toBeGreaterThanOrEqual(MIN_AVAILABLE);
      // only requests to a crashing replica may fail
      expect(
        failures.filter(({ replicaId }) => replicaId === '' || before.includes(replicaId)),
      ).toEqual([]);
    }
  });
});

describe('first rollout of a workload', () => {
  const createFirst = async (name: string, spec: Spec): Promise<Workload> => {
    await cluster.client.createWorkload({
      name,
      spec: createWebSpec({ maxFailedNew: 2 }, { replicas: 2, ...spec }),
    });
    return waitForPhase(name, Phase.FAILED);
  };

  it('fails for a command that crashes, and cloudlessctl --wait prints its last log lines', async () => {
    const manifest = {
      name: 'crashing',
      spec: {
        command: REQUEST_APP,
        env: CRASHING_ENV,
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
      stderr: expect.stringContaining(LAST_LINES.join('\n  ')),
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

  it('fails at progress_deadline when it never becomes ready, and a working command completes', async () => {
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
  it('fails at progress_deadline while the previous replicas serve', async () => {
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
