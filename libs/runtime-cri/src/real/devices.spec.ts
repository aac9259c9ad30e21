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
let tempDirectory: string;
/**
 * Path of a device file for the log of the kernel, which no container has by default.
 * @see Linux kernel, include/uapi/linux/major.h and drivers/char/mem.c
 */
let device: string;

/** Starts a container with a device, runs a script in the container and returns its output. */
async function runWithDevice(request: DeviceRequest, script: string): Promise<string> {
  const { containerId } = await startIdle(machine.runtime, { devices: [request] });
  return (await execIn(machine.runtime, containerId, script)).text.trim();
}

describeReal(
  `devices of real containers${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
  () => {
    beforeAll(async () => {
      tempDirectory = mkdtempSync(path.join(tmpdir(), 'cloudless-devices-'));
      device = path.join(tempDirectory, 'kmsg');
      execFileSync('mknod', [device, 'c', '1', '11']);
      writeFileSync(path.join(tempDirectory, 'file'), '');
      machine = await openRealCriMachine({
        allowedDevices: [device, path.join(tempDirectory, 'file')],
      });
    });
    afterAll(async () => {
      await machine.dispose();
      rmSync(tempDirectory, { recursive: true, force: true });
    });

    it('exist at the requested path with the numbers of the device on the node', async () => {
      const request = { hostPath: device, containerPath: '/dev/kernel-log', permissions: 'rwm' };
      const script = 'stat -c "%F %t:%T" /dev/kernel-log; : > /dev/kernel-log && echo open';
      expect(await runWithDevice(request, script)).toBe('character special file 1:b\nopen');
    });

    it('cannot be written when the request permits only reading', async () => {
      const request = { hostPath: device, containerPath: device, permissions: 'r' };
      expect(await runWithDevice(request, `: > ${device} || echo refused`)).toMatch(
        /not permitted[\s\S]*$/,
      );
    });

    it('are refused when the operator did not allow them or the file is not a device', async () => {
      const requestDevice = (hostPath: string): DeviceRequest => ({
        hostPath,
        containerPath: '/dev/x',
        permissions: 'r',
      });
      await expect(runWithDevice(requestDevice('/dev/mem'), '')).rejects.toMatchObject({
        kind: 'unimplemented',
        message:
          'devices./dev/mem: this node lacks the capability device./dev/mem: its agent needs --allow-device /dev/mem',
      });
      await expect(
        runWithDevice(requestDevice(path.join(tempDirectory, 'file')), ''),
      ).rejects.toMatchObject({
        kind: 'precondition',
        message: `devices.${tempDirectory}/file: is not a device on this node`,
      });
    });
  },
);

describeReal(
  `image platforms of real containers${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
  () => {
    beforeAll(async () => {
      machine = await openRealCriMachine();
    });
    afterAll(() => machine.dispose());

    it('are accepted when they equal the platform of the node, and refused otherwise', async () => {
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
