import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { SecurityRequest, VolumeRequest } from '@cloudless/runtime';
import { execIn, startIdle, readProcessStatus } from '../testing/real-commands.js';
import {
  openRealCriMachine,
  SKIP_REASON,
  type RealCriMachine,
} from '../testing/real-cri-machine.js';

const describeReal = SKIP_REASON === undefined ? describe : describe.skip;

let machine: RealCriMachine;

/** Starts a container and returns user, group and supplemental groups of its main process. */
async function readIdentity(security: SecurityRequest): Promise<readonly (string | undefined)[]> {
  const fields = await readProcessStatus(await startIdle(machine.runtime, { security }));
  const first = (name: string): string | undefined => fields.get(name)?.split('\t')[0];
  return [first('Uid'), first('Gid'), fields.get('Groups')];
}

describeReal(
  `users and groups of real containers${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
  () => {
    beforeAll(async () => {
      machine = await openRealCriMachine();
    });
    afterAll(() => machine.dispose());

    it.each<{ name: string; security: SecurityRequest; expected: readonly string[] }>([
      {
        name: 'a user name without a group',
        security: { userName: 'app' },
        expected: ['1000', '1000', '1000'],
      },
      {
        name: 'a user name with another group',
        security: { userName: 'app', runAsGroup: 77 },
        expected: ['1000', '77', '77'],
      },
      {
        name: 'supplemental groups of root',
        security: { supplementalGroups: [6000, 5000] },
        expected: ['0', '0', '0 5000 6000'],
      },
      {
        name: 'a user with a supplemental group and fsGroup',
        security: { runAsUser: 1234, runAsGroup: 7, supplementalGroups: [5000], fsGroup: 8000 },
        expected: ['1234', '7', '7 5000 8000'],
      },
      {
        name: 'fsGroup that is also a supplemental group',
        security: { supplementalGroups: [5], fsGroup: 5 },
        expected: ['0', '0', '0 5'],
      },
    ])('are $expected for $name', async ({ security, expected }) => {
      expect(await readIdentity(security)).toEqual(expected);
    });

    it('are refused with the user name when the image lacks that user', async () => {
      await expect(readIdentity({ userName: 'nginx' })).rejects.toMatchObject({
        kind: 'invalid',
        message: expect.stringContaining('security.userName: the image has no user "nginx"'),
      });
      expect(
        await machine.runtime.list().then((all) => all.filter(({ phase }) => phase !== 'running')),
      ).toEqual([]);
    });
  },
);

describeReal(
  `fsGroup of real containers${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
  () => {
    beforeAll(async () => {
      machine = await openRealCriMachine();
    });
    afterAll(() => machine.dispose());

    it('owns empty directories and the files that are created in them', async () => {
      const aVolume = (name: string, source: VolumeRequest['source']): VolumeRequest => ({
        ...{ name, mountPath: `/${name}`, readOnly: false, source },
      });
      const volumes = [
        aVolume('disk', { kind: 'emptyDir' }),
        aVolume('memory', { kind: 'emptyDir', memory: {} }),
      ];
      const security = { runAsUser: 1234, runAsGroup: 7, fsGroup: 8000 };
      const { containerId } = await startIdle(machine.runtime, { volumes, security });
      const script =
        'for at in /disk /memory; do touch $at/a; mkdir $at/b; stat -c "%g %a" $at $at/b; stat -c "%u %g" $at/a; done';
      const each = '8000 2777\n8000 2755\n1234 8000\n';
      expect(await execIn(machine.runtime, containerId, script)).toEqual({
        exitCode: 0,
        text: each + each,
      });
    });
  },
);
