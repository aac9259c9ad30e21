import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import type { ContainerStatus } from '@cloudless/runtime';
import { resolveHostname } from '../containers/config/network.js';
import { execIn, startIdle } from '../testing/real-commands.js';
import {
  openRealCriMachine,
  SKIP_REASON,
  type RealCriMachine,
} from '../testing/real-cri-machine.js';

const describeReal = SKIP_REASON === undefined ? describe : describe.skip;

const EXTRA_HOSTS = [
  { ip: '192.0.2.10', hostnames: ['db', 'db.internal'] },
  { ip: '2001:db8::10', hostnames: ['cache'] },
];

describeReal(
  `the hosts file of real containers${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
  () => {
    let machine: RealCriMachine;
    beforeEach(async () => {
      machine = await openRealCriMachine();
    });
    afterEach(() => machine.dispose());

    const runScript = async ({ containerId }: ContainerStatus, script: string): Promise<string> =>
      (await execIn(machine.runtime, containerId, script)).text.trim();

    it('resolves the host name of the container to its own address', async () => {
      const status = await startIdle(machine.runtime);
      expect(await runScript(status, 'hostname -i')).toBe(status.ip);
      expect(await runScript(status, 'hostname -f')).toBe(resolveHostname(status));
    });

    it('resolves the requested host name, localhost and the extra hosts', async () => {
      const status = await startIdle(machine.runtime, {
        network: { hostname: 'shop-1', extraHosts: EXTRA_HOSTS },
        security: { capabilitiesAdd: ['SYS_ADMIN'] },
      });
      // `hostname -i` is the only command of the image that resolves a name, and it resolves the
      // host name of the container. So the test renames the container for each name.
      const readAddress = (name: string): Promise<string> =>
        runScript(status, `hostname ${name}; hostname -i`);
      const names = ['shop-1', 'localhost', 'db', 'db.internal'];
      const found: string[] = [];
      for (const name of names) found.push(await readAddress(name));
      expect(found).toEqual([status.ip, '127.0.0.1', '192.0.2.10', '192.0.2.10']);
      expect(await runScript(status, 'grep cache /etc/hosts')).toBe('2001:db8::10\tcache');
    });

    it('exists and cannot be written when the root file system is read-only', async () => {
      const status = await startIdle(machine.runtime, {
        security: { readOnlyRootFilesystem: true },
      });
      expect(await runScript(status, 'hostname -i')).toBe(status.ip);
      expect(await runScript(status, 'echo x >> /etc/hosts || echo refused')).toContain('refused');
    });

    it('differs from the file of the node, and a change in one container affects no other', async () => {
      const [first, second] = [await startIdle(machine.runtime), await startIdle(machine.runtime)];
      expect(await runScript(first, 'cat /etc/hosts')).not.toBe(
        readFileSync('/etc/hosts', 'utf8').trim(),
      );
      await runScript(first, 'echo 192.0.2.99 changed >> /etc/hosts');
      expect(await runScript(first, 'grep -c changed /etc/hosts')).toBe('1');
      expect(await runScript(second, 'grep -c changed /etc/hosts')).toBe('0');
      expect(readFileSync('/etc/hosts', 'utf8')).not.toContain('changed');
    });

    it('contains the lines of the node, the name of the node and the extra hosts with hostNetwork', async () => {
      const status = await startIdle(machine.runtime, {
        network: { hostNetwork: true, extraHosts: EXTRA_HOSTS },
      });
      const text = await runScript(status, 'cat /etc/hosts');
      for (const line of readFileSync('/etc/hosts', 'utf8').trim().split('\n'))
        expect(text).toContain(line);
      expect(text).toContain('192.0.2.10\tdb db.internal');
      expect(await runScript(status, 'hostname')).toBe(hostname());
      expect(await runScript(status, 'hostname -i')).toMatch(/^127\./);
    });

    it('exists also when a volume is mounted at /etc', async () => {
      const volumes = [
        { name: 'etc', mountPath: '/etc', readOnly: false, source: { kind: 'emptyDir' as const } },
      ];
      const status = await startIdle(machine.runtime, { volumes });
      expect(await runScript(status, 'hostname -i')).toBe(status.ip);
    });

    it('stays unchanged when the agent restarts, and is removed with the container', async () => {
      const status = await startIdle(machine.runtime, { network: { extraHosts: EXTRA_HOSTS } });
      const before = await runScript(status, 'cat /etc/hosts');
      const reopened = await machine.reopen();
      await reopened.list();
      expect(await runScript(status, 'cat /etc/hosts')).toBe(before);
      const { logDirectory } = machine.options;
      expect(existsSync(path.join(logDirectory, status.containerId))).toBe(true);
      await reopened.stop(status.containerId, 0);
      await reopened.remove(status.containerId);
      expect(
        readdirSync(logDirectory).filter((name) =>
          name.startsWith(status.containerId.slice(0, 12)),
        ),
      ).toEqual([]);
    });
  },
);
