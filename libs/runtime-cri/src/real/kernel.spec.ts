import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { execIn, startIdle } from '../testing/real-commands.js';
import {
  openRealCriMachine,
  SKIP_REASON,
  type RealCriMachine,
} from '../testing/real-cri-machine.js';

const describeReal = SKIP_REASON === undefined ? describe : describe.skip;
const GIB = 1024 ** 3;

let machine: RealCriMachine;

describeReal(
  `kernel settings of real containers${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
  () => {
    beforeAll(async () => {
      machine = await openRealCriMachine({ allowedSysctls: ['net.core.somaxconn'] });
    });
    afterAll(() => machine.dispose());

    it('include safe and allowed kernel parameters, which replace the defaults', async () => {
      const sysctls = {
        'net.ipv4.tcp_keepalive_time': '321',
        'net.ipv4.ip_local_port_range': '40000 40100',
        'kernel.shm_rmid_forced': '1',
        'net.ipv4.ip_unprivileged_port_start': '500',
        'net.core.somaxconn': '1234',
      };
      const { containerId } = await startIdle(machine.runtime, { sysctls });
      const names = Object.keys(sysctls).map((name) => `/proc/sys/${name.replaceAll('.', '/')}`);
      const { text } = await execIn(machine.runtime, containerId, `cat ${names.join(' ')}`);
      expect(text).toBe('321\n40000\t40100\n1\n500\n1234\n');
      expect(readFileSync('/proc/sys/net/ipv4/tcp_keepalive_time', 'utf8')).not.toBe('321\n');
    });

    it('are refused for kernel parameters that are not allowed or affect the whole machine', async () => {
      const startWith = (name: string, overrides: object = {}): Promise<unknown> =>
        startIdle(machine.runtime, { sysctls: { [name]: '1' }, ...overrides });
      await expect(startWith('net.ipv4.ip_forward')).rejects.toMatchObject({
        kind: 'unimplemented',
        message:
          'sysctls.net.ipv4.ip_forward: this node lacks the capability sysctl.net.ipv4.ip_forward: its agent needs --allow-sysctl net.ipv4.ip_forward',
      });
      await expect(startWith('vm.swappiness')).rejects.toMatchObject({ kind: 'invalid' });
      await expect(
        startWith('net.core.somaxconn', { network: { hostNetwork: true } }),
      ).rejects.toMatchObject({ kind: 'invalid' });
    });

    it.each([
      { name: 'half of the memory', memoryBytes: Math.floor(totalmem() / 2), score: 500 },
      { name: 'all memory', memoryBytes: totalmem(), score: 2 },
      { name: 'no memory', memoryBytes: 0, score: 999 },
      {
        name: '256 MiB',
        memoryBytes: GIB / 4,
        score: Math.floor(1_000 - (1_000 * (GIB / 4)) / totalmem()),
      },
    ])(
      'include an OOM score that follows the reservation: $name',
      async ({ memoryBytes, score }) => {
        const { pid = 0 } = await startIdle(machine.runtime, { requests: { memoryBytes } });
        const found = Number(readFileSync(`/proc/${pid}/oom_score_adj`, 'utf8'));
        expect(Math.abs(found - score)).toBeLessThanOrEqual(1); // totalmem is rounded
      },
    );
  },
);
