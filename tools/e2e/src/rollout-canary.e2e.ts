import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { Rollout_Promotion, type Workload } from '@cloudless/api';
import { RealCluster } from './support/cluster.js';
import type { RequestClient } from './support/request-client.js';
import {
  expectServed,
  listLiveIds,
  waitUntilRolledOut,
  runUnderLoad,
  createWebSpec,
} from './support/rollout-tools.js';

const MIN_AVAILABLE = 4;
const STEPS = [
  { replicas: 1, promotion: Rollout_Promotion.MANUAL },
  { percent: 50, wait: durationFromMs(300) },
];
/** Answers of each client from which the share of the canary is measured. */
const SAMPLE_SIZE = 200;

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start();
  await cluster.client.createWorkload({
    name: 'web',
    spec: createWebSpec({ minAvailable: MIN_AVAILABLE, steps: STEPS }),
  });
  await waitUntilRolledOut(cluster, 'web');
});
afterAll(() => cluster.stop());

/** Starts a rollout and waits until it waits for a promotion at its first step. */
async function startRollout(version: string): Promise<Workload> {
  await cluster.client.updateWorkload({ name: 'web', spec: { env: { VERSION: version } } });
  return cluster.waitForWorkload('web', ({ generation, status }) => {
    return (
      status!.observedGeneration === generation &&
      status!.rollout!.waitsForPromotion &&
      status!.totalReplicas === 4
    );
  });
}

/** Returns the share of the next answers that come from a version, from 0 to 1. */
async function measureShare(client: RequestClient, version: string): Promise<number> {
  const from = client.answers.length;
  await client.waitForAnswers(SAMPLE_SIZE);
  const answers = client.answers.slice(from);
  return answers.filter((answer) => answer.version === version).length / answers.length;
}

describe('canary rollout under load', () => {
  it('sends a quarter of the requests to the canary until the promotion, then completes', async () => {
    const clients = await runUnderLoad(cluster, 'web', async (requestClients) => {
      const waiting = await startRollout('2');
      expect([listLiveIds(waiting, 1).length, listLiveIds(waiting, 2).length]).toEqual([3, 1]);
      for (const share of await Promise.all(
        requestClients.map((client) => measureShare(client, '2')),
      )) {
        expect(Math.abs(share - 1 / 4)).toBeLessThan(0.1);
      }
      await cluster.client.promoteRollout({ name: 'web', version: 2 });
      await waitUntilRolledOut(cluster, 'web');
    });
    expectServed(clients, MIN_AVAILABLE);
    expect(listLiveIds(await cluster.client.getWorkload({ name: 'web' }), 2)).toHaveLength(4);
  });

  it('replaces only the canary replica when it is undone at its first step', async () => {
    let before: readonly string[] = [];
    const clients = await runUnderLoad(cluster, 'web', async () => {
      const waiting = await startRollout('3');
      before = listLiveIds(waiting, 2);
      await cluster.client.undoRollout({ name: 'web' });
      await waitUntilRolledOut(cluster, 'web');
    });
    expectServed(clients, MIN_AVAILABLE);
    const after = await cluster.client.getWorkload({ name: 'web' });
    expect(after.spec?.env).toEqual({ VERSION: '2' });
    expect(listLiveIds(after)).toEqual(expect.arrayContaining([...before]));
    expect(before).toHaveLength(3);
  });
});
