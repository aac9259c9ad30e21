import { performance } from 'node:perf_hooks';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  RolloutStatus_Phase,
  Rollout_Promotion,
  Rollout_Strategy,
  type Workload,
} from '@cloudless/api';
import { RealCluster } from './support/cluster.js';
import {
  expectOneSwitch,
  expectServed,
  listLiveIds,
  waitUntilRolledOut,
  runUnderLoad,
  createWebSpec,
} from './support/rollout-tools.js';

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start();
});
afterAll(() => cluster.stop());

const REPLICAS = 4;
/** Time for which the previous version is kept: longer than any of these tests runs. */
const KEEP_DURATION = durationFromMs(3_600_000);

function createBlueGreen(rollout: {
  readonly maxFailedNew?: number;
  readonly promotion?: Rollout_Promotion;
  readonly pauseDuration?: typeof KEEP_DURATION;
}): ReturnType<typeof createWebSpec> {
  return createWebSpec({
    strategy: Rollout_Strategy.BLUE_GREEN,
    minAvailable: REPLICAS,
    ...rollout,
  });
}

const updateTo = (name: string, version: string): Promise<Workload> =>
  cluster.client.updateWorkload({ name, spec: { env: { VERSION: version } } });
const waitForActiveVersion = (name: string, version: number): Promise<Workload> =>
  cluster.waitForWorkload(name, ({ status }) => status!.activeVersion === version);

describe('blue/green rollout under load', () => {
  it('switches all clients at once, back by an undo, and then stops the other version', async () => {
    const name = 'shop';
    await cluster.client.createWorkload({
      name,
      spec: createBlueGreen({ pauseDuration: KEEP_DURATION }),
    });
    const blue = listLiveIds(await waitUntilRolledOut(cluster, name), 1);
    const switching = await runUnderLoad(cluster, name, async () => {
      await updateTo(name, '2');
      await waitForActiveVersion(name, 2);
    });
    expectServed(switching, REPLICAS);
    const both = await cluster.client.getWorkload({ name });
    const green = listLiveIds(both, 2);
    expectOneSwitch(switching, blue, green);
    expect(listLiveIds(both, 1)).toEqual(blue);

    let undoneAtMs = 0;
    const back = await runUnderLoad(cluster, name, async () => {
      undoneAtMs = performance.now();
      await cluster.client.undoRollout({ name });
      await waitForActiveVersion(name, 3);
    });
    expectServed(back, REPLICAS);
    // the kept replicas of the previous version serve again, not new replicas
    expectOneSwitch(back, green, blue);
    for (const {
      watch: { receivedSets },
    } of back)
      process.stdout.write(
        `blue/green: back ${Math.round(receivedSets.at(-1)!.atMs - undoneAtMs)} ms after the undo\n`,
      );

    // the other version is stopped after pause_duration, which is shortened here
    await cluster.client.updateWorkload({
      name,
      spec: { rollout: { pauseDuration: durationFromMs(0) } },
    });
    const after = await waitUntilRolledOut(cluster, name);
    expect(listLiveIds(after)).toEqual(blue);
    expect(after.spec?.env).toEqual({ VERSION: '1' });
  });

  it('waits for a promotion with all new replicas, which get no request before', async () => {
    const name = 'desk';
    await cluster.client.createWorkload({
      name,
      spec: createBlueGreen({ promotion: Rollout_Promotion.MANUAL }),
    });
    const blue = listLiveIds(await waitUntilRolledOut(cluster, name), 1);
    let green: readonly string[] = [];
    const clients = await runUnderLoad(cluster, name, async ([first]) => {
      await updateTo(name, '2');
      const waiting = await cluster.waitForWorkload(
        name,
        ({ status }) => status!.rollout!.waitsForPromotion,
      );
      green = listLiveIds(waiting, 2);
      expect(green).toHaveLength(REPLICAS);
      expect(waiting.status).toMatchObject({
        activeVersion: 1,
        readyReplicas: REPLICAS,
        totalReplicas: 2 * REPLICAS,
      });
      await first!.waitForAnswers(100);
      await cluster.client.promoteRollout({ name, version: 2 });
      await waitUntilRolledOut(cluster, name);
    });
    expectServed(clients, REPLICAS);
    expectOneSwitch(clients, blue, green);
    expect(listLiveIds(await cluster.client.getWorkload({ name }))).toEqual(green);
  });

  it('never sends a request to a failing version, and an undo keeps the previous replicas', async () => {
    const name = 'office';
    await cluster.client.createWorkload({ name, spec: createBlueGreen({ maxFailedNew: 1 }) });
    const blue = listLiveIds(await waitUntilRolledOut(cluster, name), 1);
    const clients = await runUnderLoad(cluster, name, async () => {
      await cluster.client.updateWorkload({
        name,
        spec: { env: { VERSION: '2', CRASH_AFTER_MS: '1000', LISTEN: 'no' } },
      });
      const failed = await cluster.waitForWorkload(
        name,
        ({ status }) => status!.rollout!.phase === RolloutStatus_Phase.FAILED,
      );
      expect(failed.status).toMatchObject({
        activeVersion: 1,
        rollout: { failure: { exitCode: 3, version: 2 } },
      });
      await cluster.client.undoRollout({ name, toVersion: 1 });
      await waitUntilRolledOut(cluster, name);
    });
    expectServed(clients, REPLICAS);
    for (const { versions } of clients) expect(versions).toEqual(['1']);
    expect(listLiveIds(await cluster.client.getWorkload({ name }))).toEqual(blue);
  });
});
