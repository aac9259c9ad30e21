import { create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  Rollout_OnFailure as OnFailure,
  Rollout_Promotion as Promotion,
  RolloutGateStatus_Verdict as Verdict,
  RolloutStatus_Phase as Phase,
  type RolloutStatus,
} from '@cloudless/api';
import { ServiceRecordSchema } from '@cloudless/api/store';
import type { TestCluster } from '../index.js';
import { SimulatedProxy } from '../test-cluster/simulated-proxy.js';
import { createWeb, readWeb, startCluster } from '../test-cluster/web-workload.js';

const GATE = 'errors_per_s < 1 && p99_ms < 200';
const WAIT_MS = 60_000;
const DEADLINE_MS = 120_000;
/** Time between two reports of a proxy. */
const REPORT_MS = 5_000;
const REQUESTS_PER_REPORT = 500;

/** Answers of the replicas of a version. */
type Answers = Readonly<Record<number, { readonly status: number; readonly durationMs: number }>>;

describe('the gate of a canary step', () => {
  let cluster: TestCluster;
  let proxy: SimulatedProxy;
  let answers: Answers;

  beforeEach(async () => {
    answers = { 1: { status: 200, durationMs: 20 }, 2: { status: 200, durationMs: 25 } };
    cluster = await startCluster(4);
    const network = { address: '10.0.0.9:9443', hostId: 'host-9' };
    await cluster.addNode('edge', { network, maxReplicas: 1 });
    proxy = new SimulatedProxy('edge');
    await createWeb(cluster, {
      replicas: 10,
      ports: [{ name: 'http', containerPort: 80 }],
      rollout: {
        steps: [
          { percent: 10, weightPercent: 10, wait: durationFromMs(WAIT_MS), gate: GATE },
          { percent: 50, gate: 'error_ratio <= stable.error_ratio && restarts == 0' },
        ],
        onFailure: OnFailure.ROLLBACK,
        progressDeadline: durationFromMs(DEADLINE_MS),
        minReadyDuration: durationFromMs(0),
      },
    });
    const service = create(ServiceRecordSchema, {
      ...{ namespace: 'default', name: 'web', uid: 'service-1' },
      spec: { workload: 'web', ports: [{ name: 'http', port: 80 }] },
    });
    const transaction = cluster.state.transaction().put('service', 'default/web', service);
    await cluster.complete(() => cluster.state.commitObserved(transaction));
    proxy.connect(cluster);
    await serve(20_000);
  });

  afterEach(async () => {
    proxy.disconnect();
    await cluster.stopCoordinator();
  });

  /** Lets time pass in which clients send requests and the proxy reports, until `isOver`. */
  async function serve(
    durationMs: number,
    isOver: (rollout: RolloutStatus) => boolean = () => false,
  ): Promise<number> {
    for (let passed = 0; passed < durationMs; passed += REPORT_MS) {
      const rollout = await readRollout();
      if (isOver(rollout)) return passed;
      for (let part = 0; part < 10; part += 1) {
        proxy.serve('default/web', REQUESTS_PER_REPORT / 10, ({ version }) => answers[version]!);
        await cluster.advance(REPORT_MS / 10, 100);
      }
      proxy.reportTraffic();
      await cluster.advance(0);
    }
    return durationMs;
  }

  async function readRollout(): Promise<RolloutStatus> {
    const { status } = await readWeb(cluster);
    return status!.rollout!;
  }

  const update = () =>
    cluster.complete(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { env: { NEW: 'yes' } } }),
    );

  const listEvents = async (reason: string) =>
    [...cluster.state.view().events()].filter((e) => e.reason === reason);

  it('promotes a canary whose gate holds, and shows its figures', async () => {
    await update();
    await serve(40_000);
    const { gate, step, reason } = await readRollout();
    expect(step).toBe(1);
    expect(gate).toMatchObject({ expression: GATE, verdict: Verdict.PASSED, reason: '' });
    expect(gate?.values.map(({ name }) => name)).toEqual(['errors_per_s', 'p99_ms']);
    expect(gate?.values[0]?.value).toBe(0);
    expect(gate?.values[1]?.value).toBeGreaterThan(20);
    expect(gate?.values[1]?.value).toBeLessThan(32);
    expect(reason).toContain('is true, and has to stay true for 1m');
    const passed = await serve(180_000, ({ phase }) => phase === Phase.COMPLETED);
    expect(passed).toBeGreaterThanOrEqual(20_000);
    expect(await readRollout()).toMatchObject({ phase: Phase.COMPLETED, version: 2 });
    expect((await readRollout()).gate).toBeUndefined();
    expect(proxy.served.get(1)?.errors).toBe(0);
  });

  it('gives a step with only a weight the replicas for the weight, and waits for its gate', async () => {
    const steps = [
      { weightPercent: 15, wait: durationFromMs(WAIT_MS), gate: GATE },
      { weightPercent: 60, promotion: Promotion.MANUAL },
    ];
    await cluster.complete(() =>
      cluster.client.updateWorkload({
        name: 'web',
        spec: { env: { NEW: 'yes' }, rollout: { steps } },
      }),
    );
    await serve(40_000);
    const { gate, reason } = await readRollout();
    expect(gate).toMatchObject({ expression: GATE, verdict: Verdict.PASSED });
    expect(reason).toContain('step 1 of 2: 2 of 10 replicas run version 2');
    const passed = await serve(180_000, ({ waitsForPromotion }) => waitsForPromotion);
    expect(passed).toBeGreaterThanOrEqual(20_000);
    expect((await readRollout()).reason).toBe(
      'step 2 of 2: 6 of 10 replicas run version 2; waits for a promotion',
    );
  });

  it('rolls back a canary whose gate fails, with no failed request but those of the canary', async () => {
    answers = { ...answers, 2: { status: 500, durationMs: 25 } };
    await update();
    const passed = await serve(180_000, ({ phase }) => phase === Phase.ROLLED_BACK);
    expect(passed).toBeLessThan(60_000);
    const { failure, version } = await readRollout();
    expect(version).toBe(3);
    expect(failure?.reason).toMatch(
      /^gate "errors_per_s < 1 && p99_ms < 200" of step 1 was false for 30s: errors_per_s = [\d.]+, p99_ms = [\d.]+$/,
    );
    expect((await listEvents('RolloutFailed'))[0]?.message).toContain('errors_per_s = ');
    const { requests, errors } = proxy.served.get(2)!;
    expect(errors).toBe(requests);
    const all = [...proxy.served.values()].reduce((sum, each) => sum + each.requests, 0);
    expect(requests).toBeLessThan(all * 0.12);
    for (const [version, served] of proxy.served) if (version !== 2) expect(served.errors).toBe(0);
  });

  it('fails a canary that is slower than the gate permits', async () => {
    answers = { ...answers, 2: { status: 200, durationMs: 300 } };
    await update();
    await serve(180_000, ({ phase }) => phase === Phase.ROLLED_BACK);
    expect((await readRollout()).failure?.reason).toMatch(/p99_ms = (2[5-9]\d|3[0-5]\d)/);
  });

  it('begins anew with a coordinator that has no figures yet', async () => {
    await update();
    await serve(50_000);
    proxy.disconnect();
    await cluster.restartCoordinator();
    for (const nodeId of cluster.agents.keys()) await cluster.reconnect(nodeId);
    await cluster.advance(2_000);
    proxy.connect(cluster);
    await cluster.advance(1_000);
    expect((await readRollout()).gate).toMatchObject({
      verdict: Verdict.NO_DATA,
      reason:
        'no data: errors_per_s, p99_ms: this coordinator has just begun to collect the figures of proxies',
    });
    await serve(WAIT_MS);
    expect((await readRollout()).step).toBe(1);
    await serve(180_000, ({ phase }) => phase === Phase.COMPLETED);
    expect((await readRollout()).phase).toBe(Phase.COMPLETED);
  });

  it('without figures waits for the progress deadline', async () => {
    proxy.disconnect();
    await update();
    await cluster.advance(WAIT_MS + DEADLINE_MS - REPORT_MS, 1_000);
    expect(await readRollout()).toMatchObject({
      phase: Phase.IN_PROGRESS,
      step: 1,
      gate: {
        verdict: Verdict.NO_DATA,
        reason: expect.stringContaining('the network proxy of node edge does not report'),
      },
    });
    await cluster.advance(4 * REPORT_MS, 1_000);
    const { failure } = await readRollout();
    expect(failure?.reason).toMatch(/^no progress for 2m: step 1 of 2: .* has no result: no data/);
  });

  it.each([
    ['p95_ms < 1', 'p95_ms is not a variable'],
    ['p99_ms + 1', 'the result is a number'],
    ['p99_ms <', ''],
  ])('%s is refused with its path', async (gate, message) => {
    const steps = [{ replicas: 1 }, { replicas: 2, gate }];
    const call = cluster.complete(() =>
      cluster.client.createWorkload({
        name: 'other',
        spec: { command: ['x'], rollout: { steps } },
      }),
    );
    await expect(call).rejects.toMatchObject({
      code: 3,
      message: expect.stringContaining('spec.rollout.steps[1].gate: ' + message),
    });
  });
});
