import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { DeviceRequest } from '@cloudless/runtime';
import { execIn, startIdle } from '../testing/real-commands.js';
import {
  openRealCriMachine,
  SKIP_REASON,
  type RealCriMachine,
} from '../testing/real-cri-machine.js';

const describeReal = SKIP_REASON === undefined ? describe : describe.skip;

let machine: RealCriMachine;
let home: string;
/**
 * The log of the kernel, a device that no container has by default: include/uapi/linux/major.h,
 * drivers/char/mem.c
 */
let device: string;

/** Output of a shell in a container with a device. */
async function inside(request: DeviceRequest, script: string): Promise<string> {
  const { containerId } = await startIdle(machine.runtime, { devices: [request] });
  return (await execIn(machine.runtime, containerId, script)).text.trim();
}

describeReal(
  `devices of real containers${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
  () => {
    beforeAll(async () => {
      home = mkdtempSync(path.join(tmpdir(), 'cloudless-devices-'));
      device = path.join(home, 'kmsg');
      execFileSync('mknod', [device, 'c', '1', '11']);
      writeFileSync(path.join(home, 'file'), '');
      machine = await openRealCriMachine({ allowedDevices: [device, path.join(home, 'file')] });
    });
    afterAll(async () => {
      await machine.dispose();
      rmSync(home, { recursive: true, force: true });
    });

    it('provide the device at the requested path', async () => {
      const request = { hostPath: device, containerPath: '/dev/kernel-log', permissions: 'rwm' };
      const script = 'stat -c "%F %t:%T" /dev/kernel-log; : > /dev/kernel-log && echo open';
      expect(await inside(request, script)).toBe('character special file 1:b\nopen');
    });

    it('refuse writes to a read-only device', async () => {
      const request = { hostPath: device, containerPath: device, permissions: 'r' };
      expect(await inside(request, `: > ${device} || echo refused`)).toMatch(
        /not permitted[\s\S]*$/,
      );
    });

    it('are refused when the operator did not allow them or the file is not a device', async () => {
      const of = (hostPath: string): DeviceRequest => ({
        hostPath,
        containerPath: '/dev/x',
        permissions: 'r',
      });
      await expect(inside(of('/dev/mem'), '')).rejects.toMatchObject({
        kind: 'unimplemented',
        message:
          'devices./dev/mem: this node lacks the capability device./dev/mem: its agent needs --allow-device /dev/mem',
      });
      await expect(inside(of(path.join(home, 'file')), '')).rejects.toMatchObject({
        kind: 'precondition',
        message: `devices.${home}/file: is not a device on this node`,
      });
    });

    it('an image runs only on nodes of its platform', async () => {
      const own = machine.runtime.capabilities().filter((name) => name.startsWith('platform.'));
      expect(own).toEqual([expect.stringMatching(/^platform\.linux\/[a-z0-9]+$/)]);
      const imagePlatform = (own[0] ?? '').replace('platform.', '');
      expect(await startIdle(machine.runtime, { imagePlatform })).toMatchObject({
        phase: 'running',
      });
      await expect(
        startIdle(machine.runtime, { imagePlatform: 'linux/none' }),
      ).rejects.toMatchObject({
        kind: 'unimplemented',
        message: 'imagePlatform: this node lacks the capability platform.linux/none',
      });
    });
  },
);
