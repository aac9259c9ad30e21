import { ConnectError } from '@connectrpc/connect';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  PolicyRule_Type as Type,
  PolicyVerdict_Decision as Decision,
  Rollout_OnFailure as OnFailure,
  Rollout_Promotion as Promotion,
  Rollout_Strategy as Strategy,
  WorkloadSpec_Mode as Mode,
  createPolicyClient,
  readErrorDetails,
  type PolicyClient,
} from '@cloudless/api';
import { RolloutScenario } from '../test-cluster/rollout-scenario.js';
import type { TestCluster } from '../test-cluster/test-cluster.js';
import { startCluster } from '../test-cluster/web-workload.js';

/** Creates a policy that denies every workload for which the expression is false. */
async function putPolicy(cluster: TestCluster, name: string, expression: string): Promise<void> {
  const rule = {
    name: 'rule',
    type: Type.EXPRESSION,
    config: { case: 'expression' as const, value: { expression } },
  };
  await policyCall(cluster, (client) =>
    client.createPolicy({ name, spec: { namespace: '*', rules: [rule] } }),
  );
}

function policyCall<Result>(
  cluster: TestCluster,
  call: (client: PolicyClient) => Promise<Result>,
): Promise<Result> {
  return cluster.complete(() => call(createPolicyClient(cluster.transport)));
}

/** Returns the reason of a refused call; empty when the call succeeds. */
async function reasonOf(call: Promise<unknown>): Promise<string> {
  try {
    await call;
    return '';
  } catch (reason) {
    return readErrorDetails(ConnectError.from(reason)).reason ?? 'no reason';
  }
}

const DENY_WEB = 'workload_name != "web"';

describe('a policy that denies a workload whose rollout is in progress', () => {
  it.each([
    { name: 'rolling update', rollout: {} },
    { name: 'RECREATE', rollout: { strategy: Strategy.RECREATE } },
    { name: 'BLUE_GREEN', rollout: { strategy: Strategy.BLUE_GREEN } },
    {
      name: 'canary with a promotion by hand',
      rollout: { steps: [{ replicas: 1, promotion: Promotion.MANUAL }] },
    },
  ])('lets a $name complete, and denies the next change', async ({ rollout }) => {
    const scenario = await RolloutScenario.start(rollout);
    await scenario.update();
    await scenario.cluster.advance(40);
    expect((await scenario.rollout()).phase).not.toBe('COMPLETED');
    await putPolicy(scenario.cluster, 'deny-web', DENY_WEB);
    await scenario.observe(400);
    if ('steps' in rollout) await scenario.call((client) => client.promoteRollout({ name: 'web' }));
    const { served } = await scenario.observe(2_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED', version: 2 });
    expect(served.at(-1)).toBe('2');
    const before = await scenario.status();
    expect(await reasonOf(scenario.update())).toBe('POLICY_DENIED');
    expect((await scenario.status()).version).toBe(before.version);
  });

  it('does not keep the workload on a version that fails: the rollback is made', async () => {
    const scenario = await RolloutScenario.start({
      ...{ maxFailedNew: 1, onFailure: OnFailure.ROLLBACK },
    });
    scenario.setBehaviour(2, 'fails');
    await scenario.update();
    await putPolicy(scenario.cluster, 'deny-web', DENY_WEB);
    await scenario.observe(5_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'ROLLED_BACK', version: 3 });
    expect((await scenario.status()).readyReplicas).toBe(3);
  });

  it('does not keep replicas of a drained node from moving', async () => {
    const scenario = await RolloutScenario.start();
    await putPolicy(scenario.cluster, 'deny-web', DENY_WEB);
    const [{ nodeId } = { nodeId: '' }] = await scenario.replicas();
    await scenario.call((client) => client.drainNode({ nodeId }));
    await scenario.observe(2_000);
    const replicas = await scenario.replicas();
    expect(replicas).toHaveLength(3);
    expect(replicas.every((replica) => replica.ready && replica.nodeId !== nodeId)).toBe(true);
  });

  it('lets an override through, as a rollout like any other', async () => {
    const scenario = await RolloutScenario.start();
    await putPolicy(scenario.cluster, 'deny-web', DENY_WEB);
    const policyOverride = { reason: 'incident 4711' };
    await scenario.call((client) => client.restartRollout({ name: 'web', policyOverride }));
    await scenario.observe(2_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED', version: 2 });
  });
});

describe('the report about running workloads', () => {
  it('gives for each what TestPolicy and the next change give, also during a rollout', async () => {
    const cluster = await startCluster(3);
    const specs: Readonly<Record<string, object>> = {
      few: { replicas: 2 },
      many: { replicas: 5 },
      everywhere: { mode: Mode.GLOBAL },
      labelled: { replicas: 1, labels: { team: 'shop' } },
    };
    for (const [name, spec] of Object.entries(specs))
      await cluster.complete(() =>
        cluster.client.createWorkload({ name, spec: { command: ['serve'], ...spec } }),
      );
    await cluster.advance(1_000);
    await putPolicy(cluster, 'at-most-three', 'spec.replicas <= 3');
    await cluster.complete(() =>
      cluster.client.updateWorkload({
        name: 'few',
        spec: { env: { A: 'b' }, rollout: { minReadyDuration: durationFromMs(5_000) } },
      }),
    );
    await putPolicy(cluster, 'teams', '"team" in spec.labels || workload_name == "everywhere"');
    await cluster.advance(100);
    const { workloads } = await cluster.complete(() => cluster.client.listWorkloads({}));
    const running = workloads.filter(({ status }) => (status?.readyReplicas ?? 0) > 0);
    expect(running.map(({ name }) => name).sort()).toEqual(Object.keys(specs).sort());
    const { verdicts } = await policyCall(cluster, (client) => client.testPolicy({}));
    expect(
      Object.fromEntries(verdicts.map(({ name, decision }) => [name, Decision[decision]])),
    ).toEqual({ few: 'DENY', many: 'DENY', everywhere: 'ALLOW', labelled: 'ALLOW' });
    for (const verdict of verdicts) {
      const { name } = verdict;
      const single = await policyCall(cluster, (client) => client.testPolicy({ name }));
      expect(single.verdicts).toEqual([verdict]);
      const restart = cluster.complete(() => cluster.client.restartRollout({ name }));
      const isDenied = verdict.decision === Decision.DENY;
      expect([name, await reasonOf(restart)]).toEqual([name, isDenied ? 'POLICY_DENIED' : '']);
    }
  });
});
