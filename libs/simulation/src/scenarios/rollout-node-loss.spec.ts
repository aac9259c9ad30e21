import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { Rollout_Strategy as Strategy } from '@cloudless/api';
import { RolloutScenario } from '../test-cluster/rollout-scenario.js';

const REPLICAS = 5;

/**
 * Returns the ids of the wanted old replicas, and the number of serving replicas of all versions.
 */
async function observeOldReplicas(
  scenario: RolloutScenario,
): Promise<{ readonly old: ReadonlySet<string>; readonly serving: number }> {
  const staying = await scenario.replicas();
  const serving = staying.filter(({ ready, stale }) => ready && !stale).length;
  return {
    old: new Set(staying.filter(({ version }) => version === 1).map(({ id }) => id)),
    serving,
  };
}

describe('invariant 10: a node loss during a rollout', () => {
  it.each([
    { name: 'a rolling update', rollout: {} },
    { name: 'canary steps', rollout: { steps: [{ replicas: 2 }] } },
    { name: 'the active set of BLUE_GREEN', rollout: { strategy: Strategy.BLUE_GREEN } },
  ])('stops no serving old replica until availability is restored: $name', async ({ rollout }) => {
    const limits = { minReadyDuration: durationFromMs(1_000), ...rollout };
    const scenario = await RolloutScenario.start(limits, { replicas: REPLICAS }, 6);
    await scenario.observe(1_500);
    scenario.setBehaviour(2, 'unready');
    await scenario.update();
    await scenario.observe(200);
    const [victim] = await scenario.replicas(1);
    const onLostNode = new Set(
      (await scenario.replicas())
        .filter(({ nodeId }) => nodeId === victim!.nodeId)
        .map(({ id }) => id),
    );
    scenario.cluster.agents.get(victim!.nodeId)!.sendsPings = false;
    let before = await observeOldReplicas(scenario);
    const { serving } = before;
    let observationsBelow = 0;
    for (let passed = 0; passed < 6_000; passed += 50) {
      await scenario.observe(50);
      const now = await observeOldReplicas(scenario);
      const stopped = [...before.old].filter((id) => !now.old.has(id) && !onLostNode.has(id));
      // While fewer replicas than wanted serve, no serving replica is stopped.
      if (now.serving < REPLICAS) expect({ passed, stopped }).toEqual({ passed, stopped: [] });
      if (now.serving < serving) observationsBelow += 1;
      before = now;
    }
    expect(observationsBelow).toBeGreaterThan(0); // The loss reduced availability.
    scenario.setBehaviour(2, 'ready');
    for (const replica of await scenario.replicas(2))
      if (!replica.stale) scenario.changeReport(replica, { ready: true });
    await scenario.observe(15_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED', version: 2 });
    expect(await scenario.status()).toMatchObject({
      readyReplicas: REPLICAS,
      totalReplicas: REPLICAS,
    });
  });
});
