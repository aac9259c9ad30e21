import { readFileSync, readlinkSync } from 'node:fs';
import type { ContainerId } from '@cloudless/base';
import type { ContainerRuntime, ExecRequest } from '@cloudless/runtime';
import { aScript, killSupervisor } from './testing/container-calls.js';
import { findOwnMountsProblem } from './testing/own-mounts-problem.js';
import { openRealMachine, SUPERVISOR_COMMAND, type RealMachine } from './testing/real-machine.js';

const FILE = '/etc/resolv.conf';
const network = { dnsServers: ['10.96.0.10'], dnsSearches: ['svc.test'], dnsOptions: ['ndots:5'] };

async function exec(
  runtime: ContainerRuntime,
  id: ContainerId,
  request: Partial<ExecRequest> = {},
): Promise<string> {
  let text = '';
  const command = { command: ['cat', FILE], ...request };
  for await (const event of runtime.exec(id, command, new AbortController().signal))
    if (event.kind === 'output') text += Buffer.from(event.data).toString();
  return text;
}

const problem = findOwnMountsProblem();
const title = 'the resolv.conf of processes under a supervisor with the rights of root';
(problem === undefined ? describe : describe.skip)(
  problem === undefined ? title : `${title} (skipped: ${problem})`,
  () => {
    let machine: RealMachine;
    afterEach(() => machine.dispose());

    it('is their own for main process, commands and terminals, also under the next supervisor', async () => {
      const before = readFileSync(FILE, 'utf8');
      machine = await openRealMachine();
      const { runtime } = machine;
      expect(runtime.capabilities()).toContain('process.dns');
      const status = await runtime.start(aScript(`cat ${FILE}; exec sleep 3600`, { network }));
      const { containerId } = status;
      expect(status).not.toHaveProperty('problems');
      const logs = runtime.logs(containerId, { follow: true }, new AbortController().signal);
      const lines: string[] = [];
      for await (const { text } of logs)
        if (lines.push(Buffer.from(text).toString()) && lines.at(-1) === 'options ndots:5') break;
      expect(lines).toContain('nameserver 10.96.0.10');
      expect(await exec(runtime, containerId)).toContain('nameserver 10.96.0.10');
      const tty = { columns: 80, rows: 24 };
      if (runtime.capabilities().includes('exec.tty'))
        expect(await exec(runtime, containerId, { tty })).toContain('nameserver 10.96.0.10');
      await killSupervisor(machine);
      expect(await exec(runtime, containerId)).toContain('nameserver 10.96.0.10');
      expect(await runtime.stop(containerId, 5_000)).toMatchObject({ exitCode: 143 });
      expect(readFileSync(FILE, 'utf8')).toBe(before);
    });

    it('is that of the machine without DNS settings, in the mount namespace of the machine', async () => {
      machine = await openRealMachine();
      const { pid = 0 } = await machine.runtime.start(aScript('exec sleep 3600'));
      expect(readlinkSync(`/proc/${pid}/ns/mnt`)).toBe(readlinkSync('/proc/self/ns/mnt'));
    });

    it('is that of the machine, with a reason in the status, without CAP_SYS_ADMIN', async () => {
      const prefix = ['setpriv', '--bounding-set', '-sys_admin', '--inh-caps', '-sys_admin', '--'];
      machine = await openRealMachine({ supervisorCommand: [...prefix, ...SUPERVISOR_COMMAND] });
      const { runtime } = machine;
      expect(runtime.capabilities()).not.toContain('process.dns');
      const status = await runtime.start(aScript('exec sleep 3600', { network }));
      expect(status.phase).toBe('running');
      expect(status.problems).toEqual([
        expect.stringMatching(
          /^names of services do not resolve in this process: unshare: .*Operation not permitted$/,
        ),
      ]);
      expect(await exec(runtime, status.containerId)).toBe(readFileSync(FILE, 'utf8'));
    });
  },
);
