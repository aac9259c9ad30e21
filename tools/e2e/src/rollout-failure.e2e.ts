import { RolloutStatus_Phase as Phase, Rollout_OnFailure, type Workload } from '@cloudless/api';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { RealCluster } from './cluster.js';
import {
  REQUEST_APP,
  expectServed,
  liveIds,
  liveReplicas,
  rolledOut,
  underLoad,
  webSpec,
  type Rollout,
  type Spec,
} from './rollout-tools.js';

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start();
});
afterAll(() => cluster.stop());

/** Of 4. */
const MIN_AVAILABLE = 3;
/** How cloudlessctl ends when a rollout has failed. */
const ROLLOUT_FAILED = 8;
const LAST_WORDS = ['version 2 cannot go on', 'fatal: no such table'];

/** What ends with code 3 a second after its start, without ever listening. */
const CRASHES = { VERSION: '2', LISTEN: 'no', CRASH_AFTER_MS: '1000' };

async function running(name: string, rollout: Rollout): Promise<readonly string[]> {
  await cluster.client.createWorkload({
    name,
    spec: webSpec({ minAvailable: MIN_AVAILABLE, maxFailedNew: 2, ...rollout }),
  });
  return liveIds(await rolledOut(cluster, name));
}

const update = (name: string, env: Record<string, string>): Promise<Workload> =>
  cluster.client.updateWorkload({ name, spec: { env } });
const phase = (name: string, wanted: Phase): Promise<Workload> =>
  cluster.until(
    name,
    ({ generation, status }) =>
      status!.observedGeneration === generation && status!.rollout!.phase === wanted,
  );

describe('a command that crashes after a second, as an update', () => {
  it('takes no more replicas down than it may; the rollout stops, says why and shows the last lines', async () => {
    const name = 'stopped';
    const before = await running(name, {});
    let failed: Workload | undefined;
    const clients = await underLoad(cluster, name, async () => {
      await update(name, CRASHES);
      failed = await phase(name, Phase.FAILED);
    });
    expectServed(clients, MIN_AVAILABLE);
    for (const { versions } of clients) expect(versions).toEqual(['1']);
    const { reason, replicaId, exitCode, version, lastLines } = failed!.status!.rollout!.failure!;
    expect({ exitCode, version }).toEqual({ exitCode: 3, version: 2 });
    expect(reason).toContain('failed');
    expect(lastLines.slice(-2)).toEqual(LAST_WORDS);
    expect(before).not.toContain(replicaId);
    expect(
      liveReplicas(failed!).filter(({ id, ready }) => before.includes(id) && ready).length,
    ).toBeGreaterThanOrEqual(MIN_AVAILABLE);
    const status = await cluster.ctl('rollout', 'status', name);
    expect(status.code).toBe(ROLLOUT_FAILED);
    for (const text of [reason, replicaId, ...LAST_WORDS])
      expect(status.stdout + status.stderr).toContain(text);
    // A better version goes over the one that failed.
    await update(name, { VERSION: '3' });
    await rolledOut(cluster, name);
  });

  it('goes back to the version before with on_failure ROLLBACK, and nobody has noticed', async () => {
    const name = 'returned';
    const before = await running(name, { onFailure: Rollout_OnFailure.ROLLBACK });
    const clients = await underLoad(cluster, name, async () => {
      await update(name, CRASHES);
      await rolledOut(cluster, name, Phase.ROLLED_BACK);
    });
    expectServed(clients, MIN_AVAILABLE);
    for (const { versions } of clients) expect(versions).toEqual(['1']);
    const after = await cluster.client.getWorkload({ name });
    expect(after.spec?.env).toEqual({ VERSION: '1' });
    expect(after.status!.rollout!.failure).toMatchObject({ exitCode: 3, version: 2 });
    expect(after.status!.rollout!.failure!.lastLines.slice(-2)).toEqual(LAST_WORDS);
    // Replicas of the version it goes back to are not replaced.
    const kept = liveIds(after).filter((id) => before.includes(id));
    expect(kept.length).toBeGreaterThanOrEqual(MIN_AVAILABLE);
  });

  it('that serves until it crashes does not take the floor away either', async () => {
    const name = 'serving';
    const before = await running(name, { minReadyDuration: durationFromMs(2_000) });
    const clients = await underLoad(cluster, name, async () => {
      await update(name, { VERSION: '2', CRASH_AFTER_MS: '1000' });
      await phase(name, Phase.FAILED);
    });
    for (const { watch, failures } of clients) {
      expect(watch.lowestReady).toBeGreaterThanOrEqual(MIN_AVAILABLE);
      // Whoever asks a replica that crashes gets no answer from it; all others answer.
      expect(
        failures.filter(({ replicaId }) => replicaId === '' || before.includes(replicaId)),
      ).toEqual([]);
    }
  });
});

describe('a first deployment that cannot work has failed, and says why', () => {
  const deploy = async (name: string, spec: Spec): Promise<Workload> => {
    await cluster.client.createWorkload({
      name,
      spec: webSpec({ maxFailedNew: 2 }, { replicas: 2, ...spec }),
    });
    return phase(name, Phase.FAILED);
  };

  it('with a command that crashes after a second; cloudlessctl --wait ends with its last lines', async () => {
    const manifest = {
      name: 'crashing',
      spec: {
        command: REQUEST_APP,
        env: CRASHES,
        ports: [{ containerPort: 80 }],
        rollout: { maxFailedNew: 2 },
      },
    };
    const { code, stderr } = await cluster.ctlWithInput(
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
    const { status } = await phase('crashing', Phase.FAILED);
    expect(status!.rollout!.failure).toMatchObject({ exitCode: 3, version: 1 });
  });

  it('with a command that does not exist', async () => {
    const { status } = await deploy('missing', { command: ['/no/such/command'] });
    expect(
      `${status!.rollout!.failure!.reason} ${status!.rollout!.failure!.lastLines.join(' ')}`,
    ).toContain('/no/such/command');
    expect((await cluster.ctl('rollout', 'status', 'missing')).code).toBe(ROLLOUT_FAILED);
  });

  it('with one that never becomes ready, by progress_deadline; a better command completes', async () => {
    const { status } = await deploy('never', {
      env: { VERSION: '1', LISTEN: 'no' },
      rollout: { progressDeadline: durationFromMs(1_500) },
    });
    expect(status!.rollout!.failure!.reason).toContain('no progress for 1.5s');
    await update('never', { VERSION: '2' });
    await rolledOut(cluster, 'never');
  });
});

describe('an update that never becomes ready', () => {
  it('has failed by progress_deadline, and the replicas of before serve on', async () => {
    const name = 'silent';
    const before = await running(name, { progressDeadline: durationFromMs(2_000) });
    const clients = await underLoad(cluster, name, async () => {
      await update(name, { VERSION: '2', LISTEN: 'no' });
      const { status } = await phase(name, Phase.FAILED);
      expect(status!.rollout!.failure).toMatchObject({ version: 2 });
      expect(status!.rollout!.failure!.reason).toContain('no progress for 2s');
    });
    expectServed(clients, MIN_AVAILABLE);
    const left = liveIds(await cluster.client.getWorkload({ name })).filter((id) =>
      before.includes(id),
    );
    expect(left.length).toBeGreaterThanOrEqual(MIN_AVAILABLE);
  });
});
