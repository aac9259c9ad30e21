import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { silentLog } from '@cloudless/base';
import type { ContainerRequest, StartProgress } from '@cloudless/runtime';
import { systemClock } from '@cloudless/app-kit';
import { CriClient } from '../client/cri-client.js';
import { aScriptRequest } from '../testing/real-commands.js';
import {
  openRealCriMachine,
  TEST_IMAGE,
  waitUntil,
  type RealCriMachine,
} from '../testing/real-cri-machine.js';
import { TestContainerd, CONTAINERD_SKIP_REASON } from '../testing/test-containerd.js';

const WEB_IMAGE = process.env['CLOUDLESS_CRI_WEB_IMAGE'] ?? 'nginx:alpine';
const never = new AbortController().signal;
const describeReal = CONTAINERD_SKIP_REASON === undefined ? describe : describe.skip;
const START_MS = 60_000;

/** Returns a request for a container of this image that only sleeps. */
function createRequest(image: string): ContainerRequest {
  return aScriptRequest('', { image, command: ['sleep', '1000'] });
}

describeReal(
  `images of a real container runtime${CONTAINERD_SKIP_REASON === undefined ? '' : ` (${CONTAINERD_SKIP_REASON})`}`,
  () => {
    let containerd: TestContainerd;
    let client: CriClient;
    let machine: RealCriMachine;
    let availableBytes: number;
    /** Names of the removed images. */
    let removals: string[];
    /** Number of reads of the disk usage. */
    let diskReads: number;

    beforeEach(async () => {
      availableBytes = 100;
      removals = [];
      diskReads = 0;
      containerd = new TestContainerd();
      client = new CriClient({ socketPath: containerd.socketPath, clock: systemClock });
      await containerd.retryUntilAnswered(() => client.version());
      // Pull an image as another program would.
      await client.callImage('PullImage', (calls) =>
        calls.pullImage({ image: { image: TEST_IMAGE } }),
      );
      machine = await openRealCriMachine({
        socketPath: containerd.socketPath,
        imageCollection: {
          minIdleMs: 0,
          checkMs: 20,
          readDisk: async () => ((diskReads += 1), { capacityBytes: 100, availableBytes }),
        },
        log: {
          ...silentLog,
          child: () => silentLog,
          info: (message, fields) =>
            void (message.startsWith('image removed') && removals.push(String(fields?.['image']))),
        },
      });
    }, START_MS);

    afterEach(async () => {
      await machine.dispose();
      client.close();
      await containerd.dispose();
    }, START_MS);

    const isPresent = async (image: string): Promise<boolean> =>
      (await client.callImage('ImageStatus', (calls) => calls.imageStatus({ image: { image } })))
        .image !== undefined;

    it(
      'are removed from a full disk only when this cluster pulled them and no container uses them',
      async () => {
        const { runtime } = machine;
        const steps: StartProgress[] = [];
        const web = createRequest(WEB_IMAGE);
        await runtime.prepare(web, (step) => steps.push(step), never);
        expect(steps).toEqual([
          { kind: 'pulling', image: WEB_IMAGE },
          {
            kind: 'pulled',
            image: WEB_IMAGE,
            tookMs: expect.any(Number),
            sizeBytes: expect.any(Number),
          },
        ]);
        await runtime.start(web);
        const foreign = createRequest(TEST_IMAGE);
        await runtime.start({ ...foreign, imagePull: 'always' });
        await runtime.stop(foreign.containerId, 0);
        await runtime.remove(foreign.containerId);
        availableBytes = 0;
        const before = diskReads;
        // Wait for the end of a collection that has read the full disk.
        await waitUntil(() => diskReads > before + 1);
        expect([await isPresent(WEB_IMAGE), await isPresent(TEST_IMAGE), removals]).toEqual([
          true,
          true,
          [],
        ]);
        await runtime.stop(web.containerId, 0);
        await runtime.remove(web.containerId);
        await waitUntil(() => removals.length > 0);
        expect(removals).toEqual([expect.stringContaining(WEB_IMAGE.split(':')[0] ?? '')]);
        expect([await isPresent(WEB_IMAGE), await isPresent(TEST_IMAGE)]).toEqual([false, true]);
      },
      START_MS,
    );

    it('are refused when the registry has no such image, or when a missing image has policy never', async () => {
      const missing = createRequest('cloudless/no-such-image:1');
      await expect(machine.runtime.prepare(missing, () => undefined, never)).rejects.toMatchObject({
        kind: 'precondition',
        message: expect.stringMatching(/cloudless\/no-such-image:1 cannot be pulled: .*not found/s),
      });
      await expect(
        machine.runtime.prepare(
          { ...createRequest(WEB_IMAGE), imagePull: 'never' },
          () => undefined,
          never,
        ),
      ).rejects.toMatchObject({
        kind: 'precondition',
        message: expect.stringContaining('image_pull.policy is NEVER'),
      });
      expect(await isPresent(WEB_IMAGE)).toBe(false);
    });
  },
);
