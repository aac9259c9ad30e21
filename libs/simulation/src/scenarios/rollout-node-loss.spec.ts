import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { Rollout_Strategy as Strategy } from '@cloudless/api';
import { RolloutScenario } from '../test-cluster/rollout-scenario.js';

const WANT = 5;

/**
 * Returns the ids of the wanted old replicas, and the number of serving replicas of all versions.
 */
async function observeOldReplicas(
  story: RolloutScenario,
): Promise<{ readonly old: ReadonlySet<string>; readonly serving: number }> {
  const staying = await story.replicas();
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
  ])(
    'halts the rollout within one pass until availability is restored: $name',
    async ({ rollout }) => {
      const limits = { minReadyDuration: durationFromMs(1_000), ...rollout };
      const story = await RolloutScenario.start(limits, { replicas: WANT }, 6);
      await story.observe(1_500);
      story.setBehaviour(2, 'unready');
      await story.update();
      await story.observe(200);
      const [victim] = await story.replicas(1);
      const onIt = new Set(
        (await story.replicas())
          .filter(({ nodeId }) => nodeId === victim!.nodeId)
          .map(({ id }) => id),
      );
      story.cluster.agents.get(victim!.nodeId)!.sendsPings = false;
      let before = await observeOldReplicas(story);
      const { serving } = before;
      let halted = 0;
      for (let passed = 0; passed < 6_000; passed += 50) {
        await story.observe(50);
        const now = await observeOldReplicas(story);
        const stopped = [...before.old].filter((id) => !now.old.has(id) && !onIt.has(id));
        // While fewer replicas than wanted serve, no serving replica is stopped.
        if (now.serving < WANT) expect({ passed, stopped }).toEqual({ passed, stopped: [] });
        if (now.serving < serving) halted += 1;
        before = now;
      }
      expect(halted).toBeGreaterThan(0); // the loss reduced availability
      story.setBehaviour(2, 'ready');
      for (const replica of await story.replicas(2))
        if (!replica.stale) story.changeReport(replica, { ready: true });
      await story.observe(15_000);
      expect(await story.rollout()).toMatchObject({ phase: 'COMPLETED', version: 2 });
      expect(await story.status()).toMatchObject({ readyReplicas: WANT, totalReplicas: WANT });
    },
  );
});
