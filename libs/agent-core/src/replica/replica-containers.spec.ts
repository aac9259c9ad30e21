import { ManualClock } from '@cloudless/base/testing';
import { createFakeRuntime } from '@cloudless/runtime/testing';
import { removeContainers } from './replica-containers.js';

describe('removeContainers', () => {
  const [supervisor, containerRuntime] = ['supervisor of processes', 'container runtime'];
  it.each([
    { usesImage: false, missing: ['process'], name: supervisor },
    { usesImage: false, missing: ['process', 'container'], name: supervisor },
    { usesImage: true, missing: ['container'], name: containerRuntime },
    { usesImage: true, missing: ['process', 'container'], name: containerRuntime },
    { usesImage: undefined, missing: ['process'], name: supervisor },
    { usesImage: undefined, missing: ['process', 'container'], name: containerRuntime },
  ] as const)(
    'fails with the $name when $missing are not listed, for usesImage $usesImage',
    async ({ usesImage, missing, name }) => {
      const runtime = Object.assign(createFakeRuntime({ clock: new ManualClock() }), {
        listAvailable: async () => ({ containers: [], missing }),
      });
      const context = { runtime, clusterId: () => 'cluster-1', nodeId: 'node-1' };
      await expect(removeContainers('web-1', usesImage, context)).rejects.toMatchObject({
        kind: 'unavailable',
        message: `the ${name} does not answer`,
      });
    },
  );
});
