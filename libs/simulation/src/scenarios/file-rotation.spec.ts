import { createClient } from '@connectrpc/connect';
import {
  ConfigsService,
  Reload_Mode as Reload,
  Rollout_OnFailure as OnFailure,
} from '@cloudless/api';
import { RolloutScenario } from '../test-cluster/rollout-scenario.js';

const bytes = (value: string): Uint8Array => new TextEncoder().encode(value);

describe('rotation of a config', () => {
  /** A workload of three replicas on nodes that deliver files. */
  async function start(
    ref: object = {},
    rollout: Parameters<typeof RolloutScenario.start>[0] = {},
  ): Promise<RolloutScenario> {
    const scenario = await RolloutScenario.open(4, {
      capabilities: ['runtime.process', 'files.secrets'],
    });
    const { cluster } = scenario;
    const configs = createClient(ConfigsService, cluster.transport);
    await cluster.complete(() => configs.createConfig({ name: 'web', data: { a: bytes('1') } }));
    await scenario.create(rollout, { configs: [{ name: 'web', ...ref }] });
    await scenario.observe(500);
    return scenario;
  }

  const rotate = ({ cluster }: RolloutScenario, value: string) =>
    cluster.complete(() =>
      createClient(ConfigsService, cluster.transport).updateConfig({
        name: 'web',
        data: { a: bytes(value) },
      }),
    );
  const getSpec = async (scenario: RolloutScenario) =>
    (await scenario.call((client) => client.getWorkload({ name: 'web' }))).spec;

  it('replaces all replicas as an update does, and keeps min_available', async () => {
    const scenario = await start({}, { minAvailable: 3 });
    await rotate(scenario, '2');
    const { lowestReady, highestTotal } = await scenario.observe(2_000);
    expect(lowestReady).toBe(3);
    expect(highestTotal).toBe(4);
    expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED', version: 2 });
    const { versions } = await scenario.status();
    expect(versions.at(-1)).toMatchObject({
      cause: 'config web version 2',
      changes: ['configs["web"].version 1 -> 2'],
    });
    expect((await getSpec(scenario))?.configs[0]?.version).toBe(0);
  });

  it('returns to the older version when replicas with the newer one fail', async () => {
    const scenario = await start(undefined, { onFailure: OnFailure.ROLLBACK, maxFailedNew: 0 });
    scenario.setBehaviour(2, 'fails');
    await rotate(scenario, '2');
    await scenario.observe(3_000);
    // The rotation is not repeated: the rollback names the version in the spec.
    expect((await getSpec(scenario))?.configs[0]?.version).toBe(1);
    expect(await scenario.status()).toMatchObject({ version: 3, readyReplicas: 3 });
    expect((await scenario.rollout()).phase).toBe('ROLLED_BACK');
  });

  it('is undone, and rolled out again when the user removes the version from the spec', async () => {
    const scenario = await start();
    await rotate(scenario, '2');
    await scenario.observe(2_000);
    await scenario.call((client) => client.undoRollout({ name: 'web' }));
    await scenario.observe(2_000);
    expect((await getSpec(scenario))?.configs[0]?.version).toBe(1);
    await rotate(scenario, '3');
    await scenario.observe(1_000);
    expect((await scenario.status()).version).toBe(3);
    await scenario.call((client) =>
      client.updateWorkload({ name: 'web', spec: { configs: [{ name: 'web' }] } }),
    );
    await scenario.observe(2_000);
    expect((await scenario.status()).versions.at(-1)?.changes).toEqual([
      'configs["web"].version 1 -> 3',
    ]);
  });

  it('starts no rollout with the reload mode SIGNAL', async () => {
    const scenario = await start({ reload: { mode: Reload.SIGNAL } });
    await rotate(scenario, '2');
    await scenario.observe(1_000);
    expect((await scenario.status()).version).toBe(1);
  });

  it('is rolled out by the next leader when the coordinator ends at once', async () => {
    const scenario = await start();
    await scenario.cluster.complete(() =>
      createClient(ConfigsService, scenario.cluster.transport).updateConfig({
        name: 'web',
        data: { a: bytes('2') },
      }),
    );
    await scenario.cluster.restartCoordinator();
    for (const nodeId of scenario.cluster.agents.keys()) await scenario.cluster.reconnect(nodeId);
    await scenario.observe(2_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED', version: 2 });
  });

  it('waits for a version with the keys that the workload names', async () => {
    const scenario = await start({ keys: [{ key: 'a' }] });
    const configs = createClient(ConfigsService, scenario.cluster.transport);
    const { cluster } = scenario;
    await cluster.complete(() => configs.updateConfig({ name: 'web', data: { b: bytes('2') } }));
    await scenario.observe(500);
    expect((await scenario.status()).version).toBe(1);
    const { events } = await scenario.call((client) => client.listEvents({ workload: 'web' }));
    expect(events.filter(({ reason }) => reason === 'RotationBlocked')).toMatchObject([
      {
        message: 'workload default/web stays at its version: version 2 of config web has no key a',
      },
    ]);
    await rotate(scenario, '3');
    await scenario.observe(2_000);
    expect((await scenario.status()).version).toBe(2);
  });
});
