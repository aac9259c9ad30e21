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

/** Reads user, group and further groups of the main process of a container. */
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

    it.each<{ what: string; security: SecurityRequest; gives: readonly string[] }>([
      {
        what: 'a user by name, with its group',
        security: { userName: 'app' },
        gives: ['1000', '1000', '1000'],
      },
      {
        what: 'a user by name in another group',
        security: { userName: 'app', runAsGroup: 77 },
        gives: ['1000', '77', '77'],
      },
      {
        what: 'further groups of root',
        security: { supplementalGroups: [6000, 5000] },
        gives: ['0', '0', '0 5000 6000'],
      },
      {
        what: 'further groups of a user, with that of directories',
        security: { runAsUser: 1234, runAsGroup: 7, supplementalGroups: [5000], fsGroup: 8000 },
        gives: ['1234', '7', '7 5000 8000'],
      },
      {
        what: 'a group of directories that is named twice',
        security: { supplementalGroups: [5], fsGroup: 5 },
        gives: ['0', '0', '0 5'],
      },
    ])('$what', async ({ security, gives }) => {
      expect(await readIdentity(security)).toEqual(gives);
    });

    it('a user name that the image lacks is refused with that name', async () => {
      await expect(readIdentity({ userName: 'nginx' })).rejects.toMatchObject({
        kind: 'invalid',
        message: expect.stringContaining('security.userName: the image has no user "nginx"'),
      });
      expect(
        await machine.runtime.list().then((all) => all.filter(({ phase }) => phase !== 'running')),
      ).toEqual([]);
    });

    it('empty directories and the files in them belong to fsGroup', async () => {
      const place = (name: string, source: VolumeRequest['source']): VolumeRequest => ({
        ...{ name, mountPath: `/${name}`, readOnly: false, source },
      });
      const volumes = [
        place('disk', { kind: 'emptyDir' }),
        place('memory', { kind: 'emptyDir', memory: {} }),
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
